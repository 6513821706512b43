#include "plan/shares.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

int dt_shares_parse(const char *text, int ranks, double *ret_speed, struct dt_err *err)
{
	const char *p = text;
	int n = 0;

	for (;; p++) {
		char *end;
		double v = strtod(p, &end);

		if (end == p || !isfinite(v) || v <= 0 || v > 1e9 || (*end && *end != ','))
			return dt_err_set(err, -EINVAL,
					  "--shares '%.60s' is not one of equal, auto, SPEED,SPEED,...",
					  text);
		if (ret_speed && n < ranks)
			ret_speed[n] = v;
		n++;
		p = end;
		if (!*p)
			break;
	}
	return n == ranks ? 0
			  : dt_err_set(err, -EINVAL,
				       "--shares '%.60s' has %d speed%s for %d data-parallel rank%s", text, n,
				       n == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
}

static double seconds(const double *fixed, const double *each, int r, int64_t n)
{
	return (fixed ? fixed[r] : 0) + each[r] * (double)n;
}

/* Microbatches beyond `least` that rank r completes by time `by`. */
static double done(const double *fixed, const double *each, int r, double by, int64_t least)
{
	return fmax(0, floor((by - (fixed ? fixed[r] : 0)) / each[r]) - (double)least);
}

void dt_shares_best(int ranks, const double *fixed, const double *each, int64_t least, int64_t total,
		    int64_t *ret_n)
{
	int64_t left = total - ranks * least;
	double lo = 0, hi = 0;

	for (int r = 0; r < ranks; r++) {
		ret_n[r] = least;
		hi = fmax(hi, seconds(fixed, each, r, total));
	}
	for (int i = 0; i < 100; i++) { /* bisect the latest time by which at most `left` are done */
		const double mid = 0.5 * (lo + hi);
		double sum = 0;

		for (int r = 0; r < ranks; r++)
			sum += done(fixed, each, r, mid, least);
		if (sum > (double)left)
			hi = mid;
		else
			lo = mid;
	}
	for (int r = 0; r < ranks; r++) {
		int64_t n = (int64_t)done(fixed, each, r, lo, least);

		ret_n[r] += n;
		left -= n;
	}
	for (; left > 0; left--) { /* each of the rest to the rank that would finish first */
		int best = 0;

		for (int r = 1; r < ranks; r++)
			if (seconds(fixed, each, r, ret_n[r] + 1) <
			    seconds(fixed, each, best, ret_n[best] + 1))
				best = r;
		ret_n[best]++;
	}
}

double dt_shares_time(int ranks, const double *fixed, const double *each, const int64_t *n)
{
	double most = 0;

	for (int r = 0; r < ranks; r++)
		most = fmax(most, seconds(fixed, each, r, n[r]));
	return most;
}

void dt_shares_add(struct dt_shares_fit *f, double n, double t)
{
	const double keep = 0.9; /* a measurement's weight halves after seven more */

	f->w = keep * f->w + 1;
	f->n = keep * f->n + n;
	f->nn = keep * f->nn + n * n;
	f->t = keep * f->t + t;
	f->nt = keep * f->nt + n * t;
}

bool dt_shares_line(const struct dt_shares_fit *f, double *ret_fixed, double *ret_each)
{
	const double spread = f->w * f->nn - f->n * f->n;
	double each;

	if (f->w <= 0 || f->t <= 0 || f->n <= 0)
		return false;
	*ret_fixed = 0;
	*ret_each = f->t / f->n;
	if (spread <= 1e-9 * f->w * f->nn)
		return true;
	each = (f->w * f->nt - f->n * f->t) / spread;
	if (each <= 0) /* noise: more microbatches cannot take less time */
		each = 1e-3 * *ret_each;
	if (f->t - each * f->n > 0) {
		*ret_each = each;
		*ret_fixed = (f->t - each * f->n) / f->w;
	}
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
