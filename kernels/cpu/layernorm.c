#include "kernels/cpu/cpu.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/team.h"

#include <math.h>

struct forward {
	struct dt_tensor y, mean, rstd, sum, x, delta, w, b;
	float eps;
};

/* buf: 4 rows of f32. */
static DT_SIMD void layernorm_forward_rows(const struct forward *a, float *buf, int64_t first, int64_t last)
{
	const int64_t n = dt_cols(a->x);
	const float *w = dt_load(buf + 2 * n, a->w.data, a->w.dtype, n);
	const float *b = a->b.data ? dt_load(buf + 3 * n, a->b.data, a->b.dtype, n) : NULL;

	for (int64_t r = first; r < last; r++) {
		const float *x = dt_norm_input(buf, buf + n, a->sum, a->x, a->delta, r * n, n);
		float *y = dt_stage(buf, dt_at(a->y, r * n), a->y.dtype);
		float mean = dt_sum(x, n) / (float)n, var = 0, rstd;

#pragma omp simd reduction(+ : var)
		for (int64_t j = 0; j < n; j++)
			var += (x[j] - mean) * (x[j] - mean);
		rstd = 1.f / sqrtf(var / (float)n + a->eps);
		if (b) {
#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				y[j] = (x[j] - mean) * rstd * w[j] + b[j];
		} else {
#pragma omp simd
			for (int64_t j = 0; j < n; j++)
				y[j] = (x[j] - mean) * rstd * w[j];
		}
		dt_store(dt_at(a->y, r * n), a->y.dtype, y, n);
		if (a->mean.data)
			((float *)a->mean.data)[r] = mean;
		if (a->rstd.data)
			((float *)a->rstd.data)[r] = rstd;
	}
}

/* Likewise for rows of bf16 of even length. */
static DT_SIMD void layernorm_forward_pairs(const struct forward *a, float *buf, int64_t first, int64_t last)
{
	const int64_t n = dt_cols(a->x), half = n / 2;
	const float *w = buf + n, *b = buf + 2 * n;

	dt_split(buf + n, dt_load(buf, a->w.data, a->w.dtype, n), n);
	memset(buf + 2 * n, 0, (size_t)n * sizeof *buf);
	if (a->b.data)
		dt_split(buf + 2 * n, dt_load(buf, a->b.data, a->b.dtype, n), n);
	for (int64_t r = first; r < last; r++) {
		const dt_pair *x = dt_norm_pairs(a->sum, a->x, a->delta, r * n, n);
		dt_pair *y = dt_at(a->y, r * n);
		float even = 0, odd = 0, mean, rstd;

#pragma omp simd reduction(+ : even, odd)
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]);

			even += v.lo;
			odd += v.hi;
		}
		mean = (even + odd) / (float)n;
		even = odd = 0;
#pragma omp simd reduction(+ : even, odd)
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]);

			even += (v.lo - mean) * (v.lo - mean);
			odd += (v.hi - mean) * (v.hi - mean);
		}
		rstd = 1.f / sqrtf((even + odd) / (float)n + a->eps);
#pragma omp simd
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]);

			y[j] = dt_pair_of((v.lo - mean) * rstd * w[j] + b[j],
					  (v.hi - mean) * rstd * w[half + j] + b[half + j]);
		}
		if (a->mean.data)
			((float *)a->mean.data)[r] = mean;
		if (a->rstd.data)
			((float *)a->rstd.data)[r] = rstd;
	}
}

struct forward_rows {
	const struct forward *a;
	float *buf; /* of the first thread */
};

static void forward_some(void *arg, int t, int64_t first, int64_t last)
{
	const struct forward_rows *f = arg;
	const int64_t cols = dt_cols(f->a->x);

	(dt_in_pairs(f->a->x, cols) ? layernorm_forward_pairs
				    : layernorm_forward_rows)(f->a, f->buf + t * 4 * cols, first, last);
}

int dt_cpu_layernorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
			     struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			     struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	const int64_t n = dt_cols(x);
	const struct forward a = {y, mean, rstd, sum, x, delta, w, b, eps};
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	struct forward_rows f = {&a, dt_cpu_scratch(dev, dt_layernorm_forward_scratch(&on, n))};

	if (!f.buf)
		return -ENOMEM;
	dt_cpu_rows(dev, dt_rows(x), n, forward_some, &f);
	return 0;
}

struct backward {
	struct dt_tensor dx, dw, db, dy, dresid, x, mean, rstd, w;
};

/* buf: 4 rows of f32; part: dw then db of this group. */
static DT_SIMD void layernorm_backward_rows(const struct backward *a, float *buf, float *part, int64_t first,
					    int64_t last)
{
	const int64_t n = dt_cols(a->x);
	const float *w = dt_load(buf + 3 * n, a->w.data, a->w.dtype, n), *mean = a->mean.data,
		    *rstd = a->rstd.data;

	memset(part, 0, (size_t)(2 * n) * sizeof *part);
	for (int64_t r = first; r < last; r++) {
		const float *x = dt_load(buf, dt_at(a->x, r * n), a->x.dtype, n);
		const float *dy = dt_load(buf + n, dt_at(a->dy, r * n), a->dy.dtype, n);
		const float *res = a->dresid.data
					   ? dt_load(buf + 2 * n, dt_at(a->dresid, r * n), a->dresid.dtype, n)
					   : NULL;
		float *dx = dt_stage(buf + 2 * n, dt_at(a->dx, r * n), a->dx.dtype);
		float m = mean[r], s = rstd[r], g = 0, gx = 0;

#pragma omp simd reduction(+ : g, gx)
		for (int64_t j = 0; j < n; j++) {
			float xh = (x[j] - m) * s;

			g += dy[j] * w[j];
			gx += dy[j] * w[j] * xh;
			part[j] += dy[j] * xh;
			part[n + j] += dy[j];
		}
		g /= (float)n;
		gx /= (float)n;
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			dx[j] = (res ? res[j] : 0.f) + s * (dy[j] * w[j] - g - (x[j] - m) * s * gx);
		dt_store(dt_at(a->dx, r * n), a->dx.dtype, dx, n);
	}
}

/* Likewise for rows of bf16 of even length. */
static DT_SIMD void layernorm_backward_pairs(const struct backward *a, float *buf, float *part, int64_t first,
					     int64_t last)
{
	const int64_t n = dt_cols(a->x), half = n / 2;
	const float *w = buf + n;

	dt_split(buf + n, dt_load(buf, a->w.data, a->w.dtype, n), n);
	memset(buf, 0, (size_t)n * sizeof *buf); /* the residual gradient if there is none */
	memset(part, 0, (size_t)(2 * n) * sizeof *part);
	for (int64_t r = first; r < last; r++) {
		const dt_pair *x = dt_at(a->x, r * n), *dy = dt_at(a->dy, r * n);
		const dt_pair *res = a->dresid.data ? dt_at(a->dresid, r * n) : (const void *)buf;
		const float m = ((float *)a->mean.data)[r], s = ((float *)a->rstd.data)[r];
		dt_pair *dx = dt_at(a->dx, r * n);
		float g0 = 0, g1 = 0, gx0 = 0, gx1 = 0, c, k;

#pragma omp simd reduction(+ : g0, g1, gx0, gx1)
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]), d = dt_pair_get(dy[j]);
			const float lo = d.lo * ((v.lo - m) * s), hi = d.hi * ((v.hi - m) * s);

			g0 += d.lo * w[j];
			g1 += d.hi * w[half + j];
			gx0 += lo * w[j];
			gx1 += hi * w[half + j];
			part[j] += lo;
			part[half + j] += hi;
			part[n + j] += d.lo;
			part[n + half + j] += d.hi;
		}
		k = s * ((gx0 + gx1) / (float)n);
		c = (g0 + g1) / (float)n;
#pragma omp simd
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]), d = dt_pair_get(dy[j]),
					    t = dt_pair_get(res[j]);

			dx[j] = dt_pair_of(t.lo + s * (d.lo * w[j] - c - (v.lo - m) * k),
					   t.hi + s * (d.hi * w[half + j] - c - (v.hi - m) * k));
		}
	}
	dt_join(part, buf, n);
	dt_join(part + n, buf, n);
}

int dt_cpu_layernorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			      struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
			      struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
			      struct dt_tensor w)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);
	const struct backward a = {dx, dw, db, dy, dresid, x, mean, rstd, w};
	const struct dt_groups g = dt_groups(rows);
	const bool pairs = dt_in_pairs(x, n);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *buf, *part;

	buf = dt_cpu_scratch(dev, dt_layernorm_backward_scratch(&on, rows, n));
	if (!buf)
		return -ENOMEM;
	part = buf + dev->nthreads * 4 * n;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		(pairs ? layernorm_backward_pairs
		       : layernorm_backward_rows)(&a, buf + omp_get_thread_num() * 4 * n, part + i * 2 * n,
						  i * g.rows, dt_min64(rows, (i + 1) * g.rows));
	if (dw.data)
		dt_groups_add(dev, dw.data, part, 2 * n, g.n, n);
	if (db.data)
		dt_groups_add(dev, db.data, part + n, 2 * n, g.n, n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
