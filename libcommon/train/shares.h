/*
 * --shares: data-parallel ranks that compute unequal numbers of a step's microbatches (plan/shares.h). Rank r
 * has those behind the ones of ranks before it, and gradients are sums over samples divided by all targets:
 * so what is computed does not depend on the shares but by the order of sums, and with --reproducible not at
 * all. auto measures: every few steps ranks tell each other what a step took them without waiting, and change
 * their shares where that is to shorten the step by a twentieth.
 *
 * Of images ranks have parts of every round (plan/rounds.h), with --shares or without; seconds are a round's.
 */
#ifndef DT_TRAIN_SHARES_H
#define DT_TRAIN_SHARES_H

#include "base/json.h"
#include "plan/shares.h"

struct trainer;

struct shares {
	int64_t *n;		   /* [dp] of this step, and room for others; NULL: equal */
	double *fixed, *each;	   /* [dp] seconds, and a microbatch or image; of a list 0 and 1 / speed */
	double *took;		   /* [dp] seconds of a step, as ranks tell them, and room for new lines */
	struct dt_shares_fit *fit; /* [dp] */
	bool automatic, changed;
	int64_t first, total; /* microbatches of a step: before this rank's, and all */
	int64_t *part;	      /* [dp] images of a round of this many, and room; NULL: microbatches */
	int64_t of;
	int steps;  /* since ranks last told each other */
	double sum; /* seconds of these */
};

int shares_open(struct trainer *t, struct dt_err *err);
void shares_release(struct trainer *t);
/* Before a step: for as many microbatches as it has. */
void shares_begin(struct trainer *t);
/* After its gradients, whose seconds are known. */
int shares_end(struct trainer *t, struct dt_err *err);
/* This rank's images of a round of the step: [*ret_first, *ret_end) of the run. */
void shares_images(struct trainer *t, int64_t round, int64_t *ret_first, int64_t *ret_end);
void shares_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
