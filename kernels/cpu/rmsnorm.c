#include "kernels/cpu/cpu.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/norm.h"
#include "kernels/cpu/team.h"

#include <math.h>

/* Location of the vectors to normalise: vector r is head r % heads of row r / heads. */
struct place {
	int64_t heads, width, first; /* width: columns of the matrix; first: the first head's column */
};

DT_INLINE int64_t element(const struct place *p, int64_t r, int64_t n)
{
	return r / p->heads * p->width + p->first + r % p->heads * n;
}

/* w as f32, or 1 + w, in buf or in place. */
DT_INLINE const float *weight(float *buf, struct dt_tensor w, bool plus_one, int64_t n)
{
	const float *p = dt_load(buf, w.data, w.dtype, n);

	if (!plus_one)
		return p;
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		buf[j] = p[j] + 1.f;
	return buf;
}

struct forward {
	struct dt_tensor y, rstd, sum, raw, x, delta, w;
	struct place at; /* of x and y */
	bool plus_one;
	int64_t n;
	float eps;
	const float *sums; /* sums of squares over the whole vectors, if these are shards; NULL: they are
			    * not */
	float over;	   /* elements of a whole vector */
};

/* buf: 3 vectors of f32. */
static DT_SIMD void rmsnorm_forward_rows(const struct forward *a, float *buf, int64_t first, int64_t last)
{
	const int64_t n = a->n;
	const float *w = weight(buf + 2 * n, a->w, a->plus_one, n);

	for (int64_t r = first; r < last; r++) {
		const int64_t at = element(&a->at, r, n);
		const float *x = dt_norm_input(buf, buf + n, a->sum, a->x, a->delta, at, n);
		float *y = dt_stage(buf, dt_at(a->y, at), a->y.dtype);
		float rstd = 1.f / sqrtf((a->sums ? a->sums[r] : dt_dot(x, x, n)) / a->over + a->eps);

		if (a->raw.data)
			memcpy(dt_at(a->raw, r * n), dt_at(a->x, at),
			       (size_t)(n * dt_dtype_size(a->x.dtype)));
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			y[j] = x[j] * rstd * w[j];
		dt_store(dt_at(a->y, at), a->y.dtype, y, n);
		if (a->rstd.data)
			((float *)a->rstd.data)[r] = rstd;
	}
}

/* Likewise for vectors of bf16 of even length. */
static DT_SIMD void rmsnorm_forward_pairs(const struct forward *a, float *buf, int64_t first, int64_t last)
{
	const int64_t n = a->n, half = n / 2;
	const float *w = buf + n;

	dt_split(buf + n, weight(buf, a->w, a->plus_one, n), n);
	for (int64_t r = first; r < last; r++) {
		const int64_t at = element(&a->at, r, n);
		const dt_pair *x = dt_norm_pairs(a->sum, a->x, a->delta, at, n);
		dt_pair *y = dt_at(a->y, at);
		float even = 0, odd = 0, rstd;

#pragma omp simd reduction(+ : even, odd)
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]);

			even += v.lo * v.lo;
			odd += v.hi * v.hi;
		}
		rstd = 1.f / sqrtf((a->sums ? a->sums[r] : even + odd) / a->over + a->eps);
		if (a->raw.data)
			memcpy(dt_at(a->raw, r * n), dt_at(a->x, at), (size_t)n * sizeof(uint16_t));
#pragma omp simd
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]);

			y[j] = dt_pair_of(v.lo * rstd * w[j], v.hi * rstd * w[half + j]);
		}
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
	const struct forward *a = f->a;

	(dt_in_pairs(a->x, a->n) ? rmsnorm_forward_pairs : rmsnorm_forward_rows)(a, f->buf + t * 3 * a->n,
										 first, last);
}

static int forward(struct dt_dev *dev, const struct forward *a, int64_t rows)
{
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	struct forward_rows f = {a, dt_cpu_scratch(dev, dt_rmsnorm_forward_scratch(&on, a->n))};

	if (!f.buf)
		return -ENOMEM;
	dt_cpu_rows(dev, rows, a->n, forward_some, &f);
	return 0;
}

static float over(const struct dt_heads *p)
{
	return (float)(p->sums.data ? p->over : p->head_dim);
}

int dt_cpu_rmsnorm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			   struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
			   struct dt_tensor w, bool plus_one, float eps)
{
	const int64_t n = dt_cols(x);
	const struct forward a = {y,	     rstd,     sum, DT_NONE, x,	   delta,   w,
				  {1, n, 0}, plus_one, n,   eps,     NULL, (float)n};

	return forward(dev, &a, dt_rows(x));
}

int dt_cpu_heads_norm_forward(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor rstd,
			      struct dt_tensor raw, struct dt_tensor x, struct dt_tensor w, bool plus_one,
			      float eps, const struct dt_heads *p)
{
	const int64_t n = p->head_dim;
	const struct forward a = {
		y, rstd, DT_NONE,      raw,    x, DT_NONE, w, {p->heads, dt_cols(x), p->first * n}, plus_one,
		n, eps,	 p->sums.data, over(p)};

	return forward(dev, &a, dt_rows(x) * p->heads);
}

struct backward {
	struct dt_tensor dx, dw, dy, dresid, x, rstd, w;
	struct place at, x_at; /* of dx, dy and dresid; of x */
	bool plus_one;
	int64_t n;
	const float *sums; /* of g xh, as in forward */
	float over;
};

/* buf: 4 vectors of f32; part: dw of this group. */
static DT_SIMD void rmsnorm_backward_rows(const struct backward *a, float *buf, float *part, int64_t first,
					  int64_t last)
{
	const int64_t n = a->n;
	const float *w = weight(buf + 3 * n, a->w, a->plus_one, n), *rstd = a->rstd.data;

	memset(part, 0, (size_t)n * sizeof *part);
	for (int64_t r = first; r < last; r++) {
		const int64_t at = element(&a->at, r, n);
		const float *x = dt_load(buf, dt_at(a->x, element(&a->x_at, r, n)), a->x.dtype, n);
		const float *dy = dt_load(buf + n, dt_at(a->dy, at), a->dy.dtype, n);
		const float *res = a->dresid.data
					   ? dt_load(buf + 2 * n, dt_at(a->dresid, at), a->dresid.dtype, n)
					   : NULL;
		float *dx = dt_stage(buf + 2 * n, dt_at(a->dx, at), a->dx.dtype);
		float s = rstd[r], gx = 0;

#pragma omp simd reduction(+ : gx)
		for (int64_t j = 0; j < n; j++) {
			float xh = x[j] * s;

			gx += dy[j] * w[j] * xh;
			part[j] += dy[j] * xh;
		}
		gx = (a->sums ? a->sums[r] : gx) / a->over;
#pragma omp simd
		for (int64_t j = 0; j < n; j++)
			dx[j] = (res ? res[j] : 0.f) + s * (dy[j] * w[j] - x[j] * s * gx);
		dt_store(dt_at(a->dx, at), a->dx.dtype, dx, n);
	}
}

/* Likewise for vectors of bf16 of even length. */
static DT_SIMD void rmsnorm_backward_pairs(const struct backward *a, float *buf, float *part, int64_t first,
					   int64_t last)
{
	const int64_t n = a->n, half = n / 2;
	const float *w = buf + n, *rstd = a->rstd.data;

	dt_split(buf + n, weight(buf, a->w, a->plus_one, n), n);
	memset(part, 0, (size_t)n * sizeof *part);
	for (int64_t r = first; r < last; r++) {
		const int64_t at = element(&a->at, r, n);
		const dt_pair *x = dt_at(a->x, element(&a->x_at, r, n)), *dy = dt_at(a->dy, at);
		const dt_pair *res = a->dresid.data ? dt_at(a->dresid, at) : NULL;
		const float s = rstd[r];
		dt_pair *dx = dt_at(a->dx, at);
		float even = 0, odd = 0, k;

#pragma omp simd reduction(+ : even, odd)
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]), d = dt_pair_get(dy[j]);
			const float lo = d.lo * (v.lo * s), hi = d.hi * (v.hi * s);

			even += lo * w[j];
			odd += hi * w[half + j];
			part[j] += lo;
			part[half + j] += hi;
		}
		k = s * ((a->sums ? a->sums[r] : even + odd) / a->over);
#pragma omp simd
		for (int64_t j = 0; j < half; j++) {
			const struct dt_two v = dt_pair_get(x[j]), d = dt_pair_get(dy[j]),
					    t = dt_pair_get(res ? res[j] : 0);

			dx[j] = dt_pair_of(t.lo + s * (d.lo * w[j] - v.lo * k),
					   t.hi + s * (d.hi * w[half + j] - v.hi * k));
		}
	}
	dt_join(part, buf, n);
}

static int backward(struct dt_dev *dev, const struct backward *a, int64_t rows)
{
	const struct dt_groups g = dt_groups(rows);
	const int64_t n = a->n;
	const bool pairs = dt_in_pairs(a->x, n);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *buf = dt_cpu_scratch(dev, dt_rmsnorm_backward_scratch(&on, rows, n)), *part;

	if (!buf)
		return -ENOMEM;
	part = buf + dev->nthreads * 4 * n;
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t i = 0; i < g.n; i++)
		(pairs ? rmsnorm_backward_pairs
		       : rmsnorm_backward_rows)(a, buf + omp_get_thread_num() * 4 * n, part + i * n,
						i * g.rows, dt_min64(rows, (i + 1) * g.rows));
	if (a->dw.data)
		dt_groups_add(dev, a->dw.data, part, n, g.n, n);
	return 0;
}

int dt_cpu_rmsnorm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw, struct dt_tensor dy,
			    struct dt_tensor dresid, struct dt_tensor x, struct dt_tensor rstd,
			    struct dt_tensor w, bool plus_one)
{
	const int64_t n = dt_cols(x);
	const struct backward a = {dx,	      dw,	 dy,	   dresid, x,	 rstd,	  w,
				   {1, n, 0}, {1, n, 0}, plus_one, n,	   NULL, (float)n};

	return backward(dev, &a, dt_rows(x));
}

int dt_cpu_heads_norm_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dw,
			       struct dt_tensor dy, struct dt_tensor x, struct dt_tensor rstd,
			       struct dt_tensor w, bool plus_one, const struct dt_heads *p)
{
	const int64_t n = p->head_dim, rows = dt_rows(dx) * p->heads;
	const struct place at = {p->heads, dt_cols(dx), p->first * n}, raw = {1, n, 0};
	const struct backward a = {
		dx,	  dw, dy,	    DT_NONE, x, rstd, w, at, dt_numel(x) == rows * n ? raw : at,
		plus_one, n,  p->sums.data, over(p)};

	return backward(dev, &a, rows);
}
/* The sum of one vector: of x^2, or if dy is given of dy w x rstd. buf: 2 vectors of f32. */
static DT_SIMD float sum_of(struct dt_tensor x, int64_t x_at, struct dt_tensor dy, int64_t at, const float *w,
			    float rstd, int64_t n, float *buf)
{
	const float *v = dt_load(buf, dt_at(x, x_at), x.dtype, n), *d;
	float s = 0;

	if (!dy.data)
		return dt_dot(v, v, n);
	d = dt_load(buf + n, dt_at(dy, at), dy.dtype, n);
#pragma omp simd reduction(+ : s)
	for (int64_t j = 0; j < n; j++)
		s += d[j] * w[j] * (v[j] * rstd);
	return s;
}

int dt_cpu_heads_sums(struct dt_dev *dev, struct dt_tensor sums, struct dt_tensor x, struct dt_tensor dy,
		      struct dt_tensor rstd, struct dt_tensor w, bool plus_one, const struct dt_heads *p)
{
	const struct dt_tensor in = dy.data ? dy : x;
	const int64_t n = p->head_dim, rows = dt_rows(in) * p->heads;
	const struct place at = {p->heads, dt_cols(in), p->first * n}, raw = {1, n, 0},
			   x_at = dy.data && dt_numel(x) == rows * n ? raw : at;
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *buf = dt_cpu_scratch(dev, dt_heads_sums_scratch(&on, n)), *sum = sums.data;
	const float *v = NULL;

	if (!buf)
		return -ENOMEM;
	if (dy.data)
		v = weight(buf, w, plus_one, n);
#pragma omp parallel for num_threads(dev->nthreads) if (rows * n > DT_SERIAL)
	for (int64_t r = 0; r < rows; r++)
		sum[r] = sum_of(x, element(&x_at, r, n), dy, element(&at, r, n), v,
				dy.data ? ((const float *)rstd.data)[r] : 1.f, n,
				buf + (1 + 2 * omp_get_thread_num()) * n);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
