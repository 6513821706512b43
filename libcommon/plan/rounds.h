/*
 * Images of a step. Ranks that share batch statistics meet in every microbatch, so a step is a number of
 * rounds that is the same for all of them: the batch is divided into rounds of equal size, or that differ by
 * one image, and a round into a part for each rank, in the order of images. Parts are equal, or by the speeds
 * of --shares; a part may be empty, and none is larger than a microbatch. With auto, whose speeds are
 * measured, equal parts are half a microbatch, so that a rank has room for twice as much.
 */
#ifndef DT_PLAN_ROUNDS_H
#define DT_PLAN_ROUNDS_H

#include "plan/run.h"

#include <string.h>

/*
 * ret_each [dp]: what an image costs a rank, 1 / speed of --shares; 1 where it is equal. -EINVAL: it is no
 * list of so many speeds.
 */
int dt_rounds_each(const struct dt_run *r, double *ret_each, struct dt_err *err);

/* The most images of a round, of which the largest part is a microbatch; or a negative errno, as above. */
int64_t dt_rounds_most(const struct dt_run *r, struct dt_err *err);

/*
 * ret [dp]: parts of a round of so many images, where ranks take fixed (NULL: no) seconds and each an image.
 * Measured speeds leave every rank an image, so that it can be measured again.
 */
void dt_rounds_parts(const struct dt_run *r, const double *fixed, const double *each, int64_t images,
		     int64_t *ret);

/* Number in the step of a round's first image; of round `rounds`: of the end. */
static inline int64_t dt_rounds_first(int64_t batch, int64_t rounds, int64_t round)
{
	return batch / rounds * round + batch % rounds * round / rounds;
}

static inline bool dt_rounds_measured(const struct dt_run *r)
{
	return dt_run_unequal(r) && !strcmp(r->shares, "auto");
}

/* Whether ranks or rounds of a settled run of images have unequal numbers of them. */
static inline bool dt_rounds_uneven(const struct dt_run *r)
{
	return dt_run_unequal(r) || r->global_batch % (r->microbatch * r->layout.dp);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
