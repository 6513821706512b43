#include "kernels/cpu/cpu.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/norm.h"

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

int dt_cpu_layernorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor mean,
			     struct dt_tensor rstd, struct dt_tensor sum, struct dt_tensor x,
			     struct dt_tensor delta, struct dt_tensor w, struct dt_tensor b, float eps)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);
	const struct forward a = {y, mean, rstd, sum, x, delta, w, b, eps};
	const struct dt_groups g = dt_groups(rows);
	float *buf;

	buf = dt_cpu_scratch(dev, (size_t)(dev->nthreads * 4 * n) * sizeof *buf);
	if (!buf)
		return -ENOMEM;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		layernorm_forward_rows(&a, buf + omp_get_thread_num() * 4 * n, i * g.rows,
				       dt_min64(rows, (i + 1) * g.rows));
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

int dt_cpu_layernorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			      struct dt_tensor db, struct dt_tensor dy, struct dt_tensor dresid,
			      struct dt_tensor x, struct dt_tensor mean, struct dt_tensor rstd,
			      struct dt_tensor w)
{
	const int64_t rows = dt_rows(x), n = dt_cols(x);
	const struct backward a = {dx, dw, db, dy, dresid, x, mean, rstd, w};
	const struct dt_groups g = dt_groups(rows);
	float *buf, *part;

	buf = dt_cpu_scratch(dev, (size_t)((dev->nthreads * 4 + g.n * 2) * n) * sizeof *buf);
	if (!buf)
		return -ENOMEM;
	part = buf + dev->nthreads * 4 * n;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		layernorm_backward_rows(&a, buf + omp_get_thread_num() * 4 * n, part + i * 2 * n, i * g.rows,
					dt_min64(rows, (i + 1) * g.rows));
	if (dw.data)
		dt_groups_add(dev, dw.data, part, 2 * n, g.n, n);
	if (db.data)
		dt_groups_add(dev, db.data, part + n, 2 * n, g.n, n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
