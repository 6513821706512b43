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

/* What a rank and its machine use between two lines with details (usage.c): a number a row of its table. */
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
/* NULL: no more. */
const struct usage_row *usage_row(int i);
/* Since the last time, or since usage_open; NAN: not known, or another rank of the machine says it. */
void usage_read(struct trainer *t, double ret[USAGE_VALUES]);
int usage_open(struct trainer *t, struct dt_err *err);
void usage_release(struct trainer *t);

enum { DETAILS_STEPS = 4096 }; /* whose times are kept for percentiles */
enum {
	DETAILS_COMPUTE,
	DETAILS_DATA,
	DETAILS_COMM,
	DETAILS_OPTIMIZER,
	DETAILS_CHECKPOINT,
	DETAILS_SECTIONS,
};

struct details {
	double step_s[DETAILS_STEPS];	  /* the newest of the steps since the last line with details */
	int64_t steps;			  /* since then */
	double section[DETAILS_SECTIONS]; /* seconds of this rank in them */
	struct usage usage;
	double *extremes; /* [DT_WATCH_N, layers + 2] of this rank; NULL: not asked for */
	bool looked;	  /* in the step that ends */
	json_t *line;	  /* rank 0: for the step about to be written; NULL */
};

/* Before the first step; only with --details it does anything. */
int details_open(struct trainer *t, struct dt_err *err);
/* Where the step that begins raises its largest values (nn/watch.h); NULL: it need not look. */
double *details_extremes(struct trainer *t);
/* After a step, before its line. Every rank calls it. */
int details_step(struct trainer *t, const struct step_result *r, struct dt_err *err);
/* What the line of this step says, which is then the caller's; NULL: nothing. */
json_t *details_take(struct trainer *t);
void details_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
