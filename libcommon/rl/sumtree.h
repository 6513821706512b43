/*
 * A sum tree over n non-negative numbers: changing one, and finding the one at a given prefix sum, take log n
 * steps (Schaul et al. 2016, appendix B.2.1). An inner node is the sum of its two children, recomputed at
 * each change, so that rounding errors do not accumulate.
 */
#ifndef DT_RL_SUMTREE_H
#define DT_RL_SUMTREE_H

#include "base/err.h"

#include <stdint.h>

struct dt_sumtree {
	int64_t n, leaves; /* leaves: n or more, a power of two */
	double *node;	   /* [2 leaves] from the root, 1, on */
};

/* All of them 0. */
int dt_sumtree_open(struct dt_sumtree *t, int64_t n, struct dt_err *err);
void dt_sumtree_release(struct dt_sumtree *t);
void dt_sumtree_set(struct dt_sumtree *t, int64_t i, double x);
double dt_sumtree_get(const struct dt_sumtree *t, int64_t i);
double dt_sumtree_sum(const struct dt_sumtree *t);
/* The i with x_0 + .. + x_{i-1} <= at < x_0 + .. + x_i; never one that is 0 where the sum is not. */
int64_t dt_sumtree_find(const struct dt_sumtree *t, double at);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
