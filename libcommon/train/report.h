/* Metrics: a JSON line a step, and what is measured once for them. */
#ifndef DT_TRAIN_REPORT_H
#define DT_TRAIN_REPORT_H

#include "base/trace.h"
#include "plan/memory.h"
#include "train/loop.h"

/* The line that people watch (progress.c). */
struct progress {
	FILE *f;		   /* NULL: none */
	bool in_place;		   /* drawn over and over, else a new line each time */
	bool drawn;		   /* it stands on the terminal */
	double last, said, step_s; /* the step before ended; the line was written; seconds a step, smoothed */
	double loss, eval_loss;
	int64_t done, saved; /* steps of this process; step of the last checkpoint, 0: none */
};

/* All f64, so that ranks add it up as one array. */
struct report_memory {
	double cat_bytes[DT_MEM_CAT_N];						/* at the peak */
	double points, phase[DT_MEM_POINTS], over[DT_MEM_POINTS][DT_MEM_CAT_N]; /* dt_memory_point */
};

struct report {
	struct progress progress;
	struct dt_trace *trace;	     /* NULL: none */
	FILE *f;		     /* rank 0; NULL: none */
	double matmul_rate;	     /* of all ranks together, flop/s; 0: not measured */
	double sample_flops;	     /* of a sample of a step, that MFU counts */
	double sheet_rate;	     /* likewise as the cards' data sheet has it; 0: not known */
	double peak_bytes;	     /* of the rank whose plan is the largest */
	struct report_memory memory; /* of that rank */
	bool memory_said;
};

int metrics_open(struct trainer *t, struct dt_err *err);
/* The largest plan of all ranks, and the rate of products where it is asked for. Every rank calls it. */
int metrics_measure(struct trainer *t, struct dt_err *err);
/* That MFU counts, of all ranks in the step under way. */
double metrics_flops(const struct trainer *t);
/* In which the products are that MFU is measured by. */
enum dt_dtype metrics_rate_type(const struct trainer *t);
int metrics_step(struct trainer *t, const struct step_result *r, struct dt_err *err);
int metrics_eval(struct trainer *t, const struct eval_result *r, double seconds, struct dt_err *err);
/*
 * After the run has gone back from step spiked to t's own: what the file says of the steps in between goes,
 * and a line says what happened.
 */
int metrics_rewind(struct trainer *t, int64_t spiked, int64_t from, int64_t to, struct dt_err *err);
/*
 * After the ranks have become others: a line and a message, with how long it took, and how many microbatches
 * the first rank had computed of the step under way, or of the one before where none was.
 */
void metrics_ranks(struct trainer *t, int was, const char *why, double seconds, int64_t computed);
int metrics_close(struct trainer *t, struct dt_err *err);
void progress_open(struct trainer *t);
/* After a step; final: the run ends with it. r NULL: nothing new, draw again. */
void progress_step(struct trainer *t, const struct step_result *r);
/* Erases the line, or leaves the last one, and says what was reached, where it is and what it is good for. */
void progress_close(struct trainer *t, bool whole);
/* trace.c: --trace. Every rank calls both; closing none does nothing. whole: all ranks are there. */
int trace_open(struct trainer *t, struct dt_err *err);
int trace_close(struct trainer *t, bool whole, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
