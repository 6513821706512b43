/*
 * --shares: data-parallel ranks compute unequal numbers of a step's microbatches (plan/shares.h). The
 * microbatches of rank r follow those of the ranks before it, and gradients are sums over samples divided by
 * the number of all targets: so the shares change a result only by the order of sums, and with --reproducible
 * not at all. auto measures: every few steps ranks exchange the time that a step took them without waiting,
 * and change their shares if that shortens the step by at least a twentieth.
 *
 * With images each rank has a part of every round (plan/rounds.h), with or without --shares; times are of a
 * round.
 */
#ifndef DT_TRAIN_SHARES_H
#define DT_TRAIN_SHARES_H

#include "base/json.h"
#include "plan/shares.h"

struct trainer;

struct shares {
	int64_t *n;		   /* [dp] microbatches in this step, then scratch; NULL: all ranks equal */
	double *fixed, *each;	   /* [dp] time = fixed + each * count, in s; with a list 0 and 1 / speed */
	double *took;		   /* [dp] measured seconds of a step, then scratch for new fixed and each */
	struct dt_shares_fit *fit; /* [dp] */
	bool automatic, changed;
	int64_t first, total; /* microbatches of a step: those before this rank's, and all */
	int64_t *part;	      /* [dp] images in a round, then scratch; NULL: shares are of microbatches */
	int64_t of;	      /* images of the round that part is for */
	int steps;	      /* since ranks last exchanged times */
	double sum;	      /* seconds of these steps */
};

int shares_open(struct trainer *t, struct dt_err *err);
void shares_release(struct trainer *t);
/* Before a step: sets the shares for its number of microbatches. */
void shares_begin(struct trainer *t);
/* After the gradients of a step: records their time, and exchanges times when due. */
int shares_end(struct trainer *t, struct dt_err *err);
/* This rank's images of a round of the step: [*ret_first, *ret_end) of the run. */
void shares_images(struct trainer *t, int64_t round, int64_t *ret_first, int64_t *ret_end);
void shares_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
