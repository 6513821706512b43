/* Metrics: one JSON line per step, the progress line, and measurements made once per run. */
#ifndef DT_TRAIN_REPORT_H
#define DT_TRAIN_REPORT_H

#include "base/trace.h"
#include "plan/estimate.h"
#include "train/loop.h"

/* The progress line on the terminal (progress.c). */
struct progress {
	FILE *f;		   /* NULL: none */
	bool in_place;		   /* the line is overwritten; else a new line each time */
	bool drawn;		   /* the line is on the terminal now */
	double last, said, step_s; /* times: last step's end, last line written; smoothed seconds per step */
	double loss, eval_loss, top1; /* top1: of the evaluation; NaN: it has none */
	int64_t done, saved;	      /* steps of this process; step of the last checkpoint, 0: none */
};

/* All fields are f64, so that one all-reduce can sum them as an array. */
struct report_memory {
	double cat_bytes[DT_EST_CAT_N];						/* at the peak */
	double points, phase[DT_MEM_POINTS], over[DT_MEM_POINTS][DT_EST_CAT_N]; /* dt_memory_point */
};

struct report {
	struct progress progress;
	struct dt_trace *trace;	     /* NULL: none */
	FILE *f;		     /* rank 0; NULL: none */
	double matmul_rate;	     /* of all ranks together, flop/s; 0: not measured */
	double sample_flops;	     /* model flops of a sample in a training step, for MFU */
	double sheet_rate;	     /* flop/s of all ranks by the devices' data sheet; 0: not known */
	double peak_bytes;	     /* of the rank that needs the most memory */
	struct report_memory memory; /* of that rank */
	bool memory_own;	     /* that is this rank */
	bool memory_said;	     /* a line of metrics has had it */
};

int metrics_open(struct trainer *t, struct dt_err *err);
/* Finds the largest memory plan, and measures the matmul rate if asked to. Every rank calls it. */
int metrics_measure(struct trainer *t, struct dt_err *err);
/* The model flops of all ranks in the step under way, for MFU. */
double metrics_flops(const struct trainer *t);
/* The type of the matrix products whose rate MFU is relative to. */
enum dt_dtype metrics_rate_type(const struct trainer *t);
/* Whether anyone reads metrics lines; on rank 0. */
bool metrics_wanted(const struct trainer *t);
/* Writes a line and drops it; NULL: out of memory. */
int metrics_write(struct trainer *t, json_t *line, struct dt_err *err);
int metrics_step(struct trainer *t, const struct step_result *r, struct dt_err *err);
int metrics_eval(struct trainer *t, const struct eval_result *r, double seconds, struct dt_err *err);
/*
 * After a rollback from step `spiked` to the step of t: removes the lines of the steps in between from the
 * file, and writes a line about the rollback. from, to: the samples that are skipped.
 */
int metrics_rewind(struct trainer *t, int64_t spiked, int64_t from, int64_t to, struct dt_err *err);
/*
 * After an elastic run has re-formed: writes the line of the newest step, unless it is known to be written or
 * in the file. A rank 0 that was lost may have written it or not.
 */
void metrics_late(struct trainer *t);
/*
 * After an elastic run has re-formed: writes a line and a log message. was: the number of ranks before;
 * seconds: how long it took; computed: microbatches that the first rank had computed of the step under way,
 * or of the step before if none was.
 */
void metrics_ranks(struct trainer *t, int was, const char *why, double seconds, int64_t computed);
int metrics_close(struct trainer *t, struct dt_err *err);
void progress_open(struct trainer *t);
/* After a step: writes the line, at most once a second, and always after the run's last step. */
void progress_step(struct trainer *t, const struct step_result *r);
/*
 * Erases the line. whole: the run ended well; logs the last loss, where the checkpoint is, and its next use.
 */
void progress_close(struct trainer *t, bool whole);
/* trace.c: --trace. Every rank calls both; closing without a trace does nothing. whole: no rank is lost. */
int trace_open(struct trainer *t, struct dt_err *err);
int trace_close(struct trainer *t, bool whole, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
