#include "plan/rounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int dt_rounds_each(const struct dt_run *r, double *ret_each, struct dt_err *err)
{
	const int dp = r->layout.dp;
	int rc;

	for (int k = 0; k < dp; k++)
		ret_each[k] = 1;
	rc = dt_run_unequal(r) && strcmp(r->shares, "auto") != 0
		     ? dt_shares_parse(r->shares, dp, ret_each, err)
		     : 0; /* auto is refused later (dt_run_check) */
	for (int k = 0; k < dp && rc == 0; k++)
		ret_each[k] = 1 / ret_each[k];
	return rc;
}

/* The largest part of so many images. */
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
	each = calloc((size_t)dp, sizeof(*each));
	n = calloc((size_t)dp, sizeof(*n));
	rc = each && n ? dt_rounds_each(r, each, err) : dt_err_sys(err, -ENOMEM, "shares of ranks");
	while (lo < hi && rc == 0) { /* one image more makes no part smaller */
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
