/*
 * What --details adds to a step's line every so many steps: norms of each unit, times of each rank,
 * percentiles of the step's time.
 */
#ifndef DT_TRAIN_DETAILS_H
#define DT_TRAIN_DETAILS_H

#include "base/json.h"
#include "train/loop.h"

struct trainer;

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
	json_t *line;			  /* rank 0: for the step about to be written; NULL */
};

/* After a step, before its line. Every rank calls it. */
int details_step(struct trainer *t, const struct step_result *r, struct dt_err *err);
/* What the line of this step says, which is then the caller's; NULL: nothing. */
json_t *details_take(struct trainer *t);
void details_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
