/*
 * Images of a step. Ranks that share batch statistics meet in every microbatch, so a step is a number of
 * rounds that is the same for all of them: the batch is divided into rounds of equal size, or that differ by
 * one image, and a round into a part for each rank, in the order of images. Parts are equal, or by the speeds
 * of --shares (dt_shares_best with none at least); a part may be empty, and none is larger than a microbatch.
 */
#ifndef DT_PLAN_ROUNDS_H
#define DT_PLAN_ROUNDS_H

#include "plan/run.h"

/*
 * ret_each [dp]: what an image costs a rank, 1 / speed of --shares; 1 where it is equal. -EINVAL: it is no
 * list of so many speeds.
 */
int dt_rounds_each(const struct dt_run *r, double *ret_each, struct dt_err *err);

/* The most images of a round, of which the largest part is a microbatch; or a negative errno, as above. */
int64_t dt_rounds_most(const struct dt_run *r, struct dt_err *err);

/* Number in the step of a round's first image; of round `rounds`: of the end. */
static inline int64_t dt_rounds_first(int64_t batch, int64_t rounds, int64_t round)
{
	return batch / rounds * round + batch % rounds * round / rounds;
}

/* Whether ranks or rounds of a settled run of images have unequal numbers of them. */
static inline bool dt_rounds_uneven(const struct dt_run *r)
{
	return dt_run_unequal(r) || r->global_batch % (r->microbatch * r->layout.dp);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
