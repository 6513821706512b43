/*
 * Unequal data-parallel ranks: how many of a step's microbatches each rank computes. Rank r takes a_r + b_r
 * n_r seconds for n_r of them; the step takes the maximum over ranks, and the shares minimise it.
 */
#ifndef DT_PLAN_SHARES_H
#define DT_PLAN_SHARES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define DT_SHARES "equal|auto|W,W,..."

/*
 * The speeds of a list (NULL: not wanted), one a rank, each more than 0. -EINVAL: not so many, or not such
 * numbers.
 */
int dt_shares_parse(const char *text, int ranks, double *ret_speed, struct dt_err *err);

/*
 * ret_n [ranks]: at least `least` each, total together (total >= ranks least). fixed [ranks] seconds (NULL:
 * none), each [ranks] seconds a microbatch, more than 0. Equal ends go to the lower rank.
 */
void dt_shares_best(int ranks, const double *fixed, const double *each, int64_t least, int64_t total,
		    int64_t *ret_n);
/* The longest rank's seconds. */
double dt_shares_time(int ranks, const double *fixed, const double *each, const int64_t *n);

/* Least squares of seconds over microbatches, of which earlier ones count less and less. */
struct dt_shares_fit {
	double w, n, nn, t, nt;
};
void dt_shares_add(struct dt_shares_fit *f, double n, double seconds);
/*
 * *ret_each > 0, *ret_fixed >= 0; of one number of microbatches alone nothing is fixed. false: nothing is
 * known.
 */
bool dt_shares_line(const struct dt_shares_fit *f, double *ret_fixed, double *ret_each);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
