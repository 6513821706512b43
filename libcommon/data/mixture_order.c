#include "data/mixture.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define UNITS 1000000

static int64_t divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t t = a % b;

		a = b;
		b = t;
	}
	return a;
}

static int whole_weights(struct dt_mixture_order *o, const double *weight, struct dt_err *err)
{
	double sum = 0;
	int64_t common = 0;

	for (int i = 0; i < o->parts; i++) {
		if (!(weight[i] > 0) || !isfinite(weight[i]))
			return dt_err_set(err, -EINVAL, "the weight %g of data set %d is not positive",
					  weight[i], i + 1);
		sum += weight[i];
	}
	for (int i = 0; i < o->parts; i++) {
		o->weight[i] = (int64_t)rint(weight[i] / sum * UNITS);
		if (o->weight[i] < 1)
			return dt_err_set(err, -EINVAL,
					  "the weight of data set %d is less than a millionth of the sum",
					  i + 1);
		common = divisor(o->weight[i], common);
	}
	for (int i = 0; i < o->parts; i++) {
		o->weight[i] /= common;
		o->period += o->weight[i];
	}
	return 0;
}

/*
 * Weights such as 1 : 1 : 1 are not whole millionths: weights that are close to ratios of small integers are
 * replaced by those.
 */
static bool small_ratios(struct dt_mixture_order *o, const double *weight)
{
	double least = INFINITY;

	for (int i = 0; i < o->parts; i++)
		least = weight[i] < least ? weight[i] : least;
	for (int k = 1; k <= 1000 && least > 0; k++) {
		bool fits = true;

		for (int i = 0; i < o->parts && fits; i++) {
			double v = weight[i] / least * k;

			fits = v < UNITS && fabs(v - rint(v)) < 1e-9 * v;
			if (fits)
				o->weight[i] = (int64_t)rint(v);
		}
		if (!fits)
			continue;
		o->period = 0;
		for (int i = 0; i < o->parts; i++)
			o->period += o->weight[i];
		return o->period <= UNITS;
	}
	return false;
}

/*
 * Tijdeman's algorithm: of the sets that lag by at least 1 / (2 k - 2) of a sample, picks the one that would
 * soonest lag by 1 - 1 / (2 k - 2) of a sample. Uses integers in units of 1 / (period (2 k - 2)) samples.
 */
static int next_part(const struct dt_mixture_order *o, const int64_t *given, int64_t n)
{
	int64_t k2 = 2 * o->parts - 2, late = 0;
	int found = -1;

	for (int i = 0; i < o->parts; i++) {
		int64_t behind = ((n + 1) * o->weight[i] - given[i] * o->period) * k2,
			left = o->period * k2 - o->period - behind;

		if (behind < o->period)
			continue;
		if (found < 0 || (__int128)left * o->weight[found] < (__int128)late * o->weight[i]) {
			found = i;
			late = left;
		}
	}
	return found;
}

int dt_mixture_order_init(struct dt_mixture_order *o, int parts, const double *weight, struct dt_err *err)
{
	int64_t given[DT_MIXTURE_PARTS] = {0};
	int rc;

	*o = (struct dt_mixture_order){.parts = parts};
	if (parts < 1 || parts > DT_MIXTURE_PARTS)
		return dt_err_set(err, -EINVAL, "%d data sets cannot be mixed; the most is %d", parts,
				  DT_MIXTURE_PARTS);
	if (!small_ratios(o, weight)) {
		o->period = 0;
		rc = whole_weights(o, weight, err);
		if (rc < 0)
			return rc;
	}
	o->part = malloc((size_t)o->period * sizeof(*o->part));
	o->before = malloc((size_t)o->period * sizeof(*o->before));
	if (!o->part || !o->before) {
		dt_mixture_order_release(o);
		return dt_err_sys(err, -ENOMEM, "cannot mix data sets");
	}
	for (int64_t n = 0; n < o->period; n++) {
		int i = parts > 1 ? next_part(o, given, n) : 0;

		o->part[n] = (uint8_t)i;
		o->before[n] = (int32_t)given[i]++;
	}
	return 0;
}

void dt_mixture_order_release(struct dt_mixture_order *o)
{
	free(o->part);
	free(o->before);
	o->part = NULL;
	o->before = NULL;
}

void dt_mixture_order_at(const struct dt_mixture_order *o, int64_t n, int *ret_part, int64_t *ret_n)
{
	int64_t r = n % o->period;

	*ret_part = o->part[r];
	*ret_n = n / o->period * o->weight[o->part[r]] + o->before[r];
}
/* SPDX-License-Identifier: Apache-2.0 */
