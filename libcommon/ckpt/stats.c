/*
 * Statistics of a tensor's values. The values are taken in runs of fixed length, each by one thread; runs are
 * joined in order. The result does not depend on the number of threads.
 */
#include "ckpt/internal.h"
#include "ckpt/tensors.h"

#include "base/clones.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define RUN   4096 /* elements converted to double at a time */
#define LANES 8	   /* sums of a run that are added up side by side, as vectors are */

struct run {
	int64_t zeros, nans, finite;
	double min, max, mean, m2, sq; /* of the finite ones; m2, sq: squares of deviations, and of values */
};

static double sum_of(const double *v)
{
	return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/* The first pass: counts, range, mean and squares. n is a multiple of LANES. */
DT_CLONES static void look(const double *x, int64_t n, struct run *r)
{
	double sum[LANES] = {0}, sq[LANES] = {0}, min[LANES], max[LANES];
	int64_t zeros[LANES] = {0}, nans[LANES] = {0}, finite[LANES] = {0};

	for (int k = 0; k < LANES; k++) {
		min[k] = INFINITY;
		max[k] = -INFINITY;
	}
	for (int64_t i = 0; i < n; i += LANES)
		for (int k = 0; k < LANES; k++) {
			const double v = x[i + k], w = v - v == 0 ? v : 0;

			zeros[k] += v == 0;
			nans[k] += v != v;
			finite[k] += v - v == 0;
			sum[k] += w * (1. / RUN); /* no sum of finite values overflows */
			sq[k] += w * w;
			min[k] = v - v == 0 && v < min[k] ? v : min[k];
			max[k] = v - v == 0 && v > max[k] ? v : max[k];
		}
	*r = (struct run){.min = INFINITY, .max = -INFINITY, .sq = sum_of(sq)};
	for (int k = 0; k < LANES; k++) {
		r->zeros += zeros[k];
		r->nans += nans[k];
		r->finite += finite[k];
		r->min = min[k] < r->min ? min[k] : r->min;
		r->max = max[k] > r->max ? max[k] : r->max;
	}
	if (r->finite)
		r->mean = sum_of(sum) * ((double)RUN / (double)r->finite);
}

/* The second pass: squares of deviations, and the rounding error of the mean. */
DT_CLONES static void deviate(const double *x, int64_t n, struct run *r)
{
	double sum[LANES] = {0}, sq[LANES] = {0}, rest;
	const double mean = r->mean;

	for (int64_t i = 0; i < n; i += LANES)
		for (int k = 0; k < LANES; k++) {
			const double v = x[i + k], d = v - v == 0 ? v - mean : 0;

			sum[k] += d;
			sq[k] += d * d;
		}
	rest = sum_of(sum) / (double)r->finite;
	r->mean += rest;
	r->m2 = fmax(0, sum_of(sq) - rest * rest * (double)r->finite);
}

static void take_run(enum dt_dtype type, const char *data, int64_t n, struct run *r)
{
	const int64_t all = (n + LANES - 1) / LANES * LANES;
	double x[RUN];

	dt_ckpt_to_f64(type, data, n, x);
	for (int64_t i = n; i < all; i++)
		x[i] = NAN;
	look(x, all, r);
	r->nans -= all - n;
	if (r->finite)
		deviate(x, all, r);
}

/* Adds a run of n elements to s (Chan, Golub, LeVeque 1983). */
static void join_run(struct dt_tensor_stats *s, const struct run *r, int64_t n, double *m2, double *sq)
{
	const double have = (double)(s->n - s->nans - s->infs), k = (double)r->finite,
		     delta = r->mean - s->mean;

	if (r->finite) {
		s->min = have > 0 && s->min < r->min ? s->min : r->min;
		s->max = have > 0 && s->max > r->max ? s->max : r->max;
		*m2 += r->m2 + delta * delta * have * k / (have + k);
		s->mean += delta * k / (have + k);
		*sq += r->sq;
	}
	s->n += (uint64_t)n;
	s->zeros += (uint64_t)r->zeros;
	s->nans += (uint64_t)r->nans;
	s->infs += (uint64_t)(n - r->finite - r->nans);
}

/* Box k of the tensor. */
static int take_box(struct dt_tensors *t, int i, int k, struct dt_tensor_stats *s, double *m2, double *sq,
		    struct dt_err *err)
{
	const struct dt_tensor_desc *d = dt_tensors_desc(t, i);
	int64_t off[DT_CKPT_MAX_DIM], shape[DT_CKPT_MAX_DIM], n, runs, size = dt_dtype_size(d->dtype);
	struct run *r;
	char *data;
	int rc;

	dt_tensors_box(t, i, k, off, shape);
	n = ck_numel(d->ndim, shape);
	runs = (n + RUN - 1) / RUN;
	data = malloc((size_t)(n * size) + 1);
	r = malloc((size_t)(runs + 1) * sizeof(*r));
	rc = data && r ? dt_tensors_read(t, i, off, shape, data, err)
		       : dt_err_sys(err, -ENOMEM, "cannot read '%s'", d->name);
	if (rc == 0) {
#pragma omp parallel for if (runs > 1)
		for (int64_t j = 0; j < runs; j++)
			take_run(d->dtype, data + j * RUN * size, j + 1 < runs ? RUN : n - j * RUN, &r[j]);
		for (int64_t j = 0; j < runs; j++)
			join_run(s, &r[j], j + 1 < runs ? RUN : n - j * RUN, m2, sq);
	}
	free(r);
	free(data);
	return rc;
}

int dt_tensor_stats(struct dt_tensors *t, int i, struct dt_tensor_stats *ret, struct dt_err *err)
{
	struct dt_tensor_stats s = {0};
	double m2 = 0, sq = 0;
	uint64_t finite;

	for (int k = 0; k < dt_tensors_nboxes(t, i); k++) {
		int rc = take_box(t, i, k, &s, &m2, &sq, err);

		if (rc < 0)
			return rc;
	}
	finite = s.n - s.nans - s.infs;
	if (finite) {
		s.std = sqrt(m2 / (double)finite);
		s.rms = sqrt(sq / (double)finite);
	}
	*ret = s;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
