/*
 * What --details adds to a step's line every so many steps: norms of each unit, times of each rank,
 * percentiles of the step's time, what processors, memory, links and cards did.
 */
#ifndef DT_TRAIN_DETAILS_H
#define DT_TRAIN_DETAILS_H

#include "base/json.h"
#include "plan/usage.h"
#include "train/loop.h"

struct trainer;

/* What a rank and its machine used since the last line with details (usage.c): one value per table row. */
enum { USAGE_VALUES = 12 };
struct usage_row {
	const char *key;	 /* in the metrics */
	const char *name, *help; /* for Prometheus */
};
struct usage {
	struct dt_usage *counters; /* NULL: none */
	struct dt_nvml *card;	   /* NULL: none */
	struct dt_usage_now last;
	double at, sent; /* dt_now() and dt_world_sent() of the last time */
};
/* Row i of the table; NULL past its end. */
const struct usage_row *usage_row(int i);
/* Usage since the last call or usage_open; NAN: not known, or reported by another rank of the machine. */
void usage_read(struct trainer *t, double ret[USAGE_VALUES]);
int usage_open(struct trainer *t, struct dt_err *err);
void usage_release(struct trainer *t);

enum { DETAILS_STEPS = 4096 }; /* newest steps whose times are kept for percentiles */
enum {
	DETAILS_COMPUTE,
	DETAILS_DATA,
	DETAILS_COMM,
	DETAILS_OPTIMIZER,
	DETAILS_CHECKPOINT,
	DETAILS_SECTIONS,
};

struct tally;

struct details {
	double step_s[DETAILS_STEPS];	  /* ring: seconds of the steps since the last line with details */
	int64_t steps;			  /* number of steps since then */
	double section[DETAILS_SECTIONS]; /* seconds of this rank in those steps, by section */
	struct usage usage;
	double *extremes; /* [DT_WATCH_N, layers + 2] largest magnitudes of this rank; NULL: not asked for */
	bool looked;	  /* the step that ends has filled extremes */
	struct tally *tally; /* histogram.c: gradients counted before the update; NULL: none */
	json_t *line;	     /* rank 0: details for the step's line; NULL: none */
};

/* Before the first step. Does nothing without --details. */
int details_open(struct trainer *t, struct dt_err *err);
/* Where the step that begins records its largest magnitudes (nn/watch.h); NULL: it records none. */
double *details_extremes(struct trainer *t);
/* Between the gradients of a step and its update. Every rank calls it. */
int details_gradients(struct trainer *t, const struct step_result *r, struct dt_err *err);
/* After a step, before its line. Every rank calls it. */
int details_step(struct trainer *t, const struct step_result *r, struct dt_err *err);
/* The details of this step's line, which the caller then owns; NULL: none. */
json_t *details_take(struct trainer *t);
void details_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
