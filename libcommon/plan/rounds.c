#include "plan/rounds.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dt_rounds_each(const struct dt_run *r, double *ret_each, struct dt_err *err)
{
	const int dp = r->layout.dp;
	int rc;

	for (int k = 0; k < dp; k++)
		ret_each[k] = 1;
	rc = dt_run_unequal(r) && !dt_rounds_measured(r) ? dt_shares_parse(r->shares, dp, ret_each, err) : 0;
	for (int k = 0; k < dp && rc == 0; k++)
		ret_each[k] = 1 / ret_each[k];
	return rc;
}

/* The rank below the microbatch limit that would finish first with one more image. */
static int next(const struct dt_run *r, const double *fixed, const double *each, const int64_t *n)
{
	double least = INFINITY;
	int found = 0;

	for (int k = 0; k < r->layout.dp; k++) {
		const double end = (fixed ? fixed[k] : 0) + each[k] * (double)(n[k] + 1);

		if (n[k] < r->microbatch && end < least) {
			least = end;
			found = k;
		}
	}
	return found;
}

void dt_rounds_parts(const struct dt_run *r, const double *fixed, const double *each, int64_t images,
		     int64_t *ret)
{
	const int dp = r->layout.dp;
	int64_t over = 0;

	dt_shares_best(dp, fixed, each, dt_rounds_measured(r) && images >= dp, images, ret);
	for (int k = 0; k < dp && dt_rounds_measured(r); k++)
		if (ret[k] > r->microbatch) {
			over += ret[k] - r->microbatch;
			ret[k] = r->microbatch;
		}
	while (over-- > 0)
		ret[next(r, fixed, each, ret)]++;
}

/* The largest share of a rank when `images` are divided. */
static int64_t largest(int dp, const double *each, int64_t images, int64_t *n)
{
	int64_t most = 0;

	dt_shares_best(dp, NULL, each, 0, images, n);
	for (int k = 0; k < dp; k++)
		most = n[k] > most ? n[k] : most;
	return most;
}

int64_t dt_rounds_most(const struct dt_run *r, struct dt_err *err)
{
	const int dp = r->layout.dp;
	int64_t lo = r->microbatch, hi = r->microbatch * dp, *n;
	double *each;
	int rc;

	if (!dt_run_unequal(r))
		return hi;
	if (dt_rounds_measured(r))
		return hi / 2 > lo ? hi / 2 : lo;
	each = calloc((size_t)dp, sizeof(*each));
	n = calloc((size_t)dp, sizeof(*n));
	rc = each && n ? dt_rounds_each(r, each, err) : dt_err_sys(err, -ENOMEM, "shares of ranks");
	while (lo < hi && rc == 0) { /* binary search: with one more image no share gets smaller */
		const int64_t mid = lo + (hi - lo + 1) / 2;

		if (largest(dp, each, mid, n) > r->microbatch)
			hi = mid - 1;
		else
			lo = mid;
	}
	free(each);
	free(n);
	return rc < 0 ? rc : lo;
}
/* SPDX-License-Identifier: Apache-2.0 */
