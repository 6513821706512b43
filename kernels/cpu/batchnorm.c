#include "kernels/cpu/cpu.h"
#include "kernels/cpu/groups.h"

/* Merges statistics (n, mean2, q2) into (m, mean, q): Chan et al. 1979. */
static DT_SIMD void bn_merge(float *mean, float *q, double m, const float *mean2, const float *q2, double n,
			     int64_t c)
{
	const float part = (float)(n / (m + n)), weight = (float)(m * n / (m + n));

#pragma omp simd
	for (int64_t j = 0; j < c; j++) {
		const float d = mean2[j] - mean[j];

		mean[j] += d * part;
		q[j] += q2[j] + d * d * weight;
	}
}

/* Mean and sum of squared deviations of a block of rows; rows: the block converted to f32. */
static DT_SIMD void bn_block(float *mean, float *q, float *rows, struct dt_tensor x, int64_t first, int64_t n)
{
	const int64_t c = dt_cols(x);
	const float *p = dt_load(rows, dt_at(x, first * c), x.dtype, n * c);
	const float share = 1.f / (float)n;

	memset(mean, 0, (size_t)c * sizeof *mean);
	memset(q, 0, (size_t)c * sizeof *q);
	for (int64_t r = 0; r < n; r++)
#pragma omp simd
		for (int64_t j = 0; j < c; j++)
			mean[j] += p[r * c + j];
#pragma omp simd
	for (int64_t j = 0; j < c; j++)
		mean[j] *= share;
	for (int64_t r = 0; r < n; r++)
#pragma omp simd
		for (int64_t j = 0; j < c; j++) {
			const float d = p[r * c + j] - mean[j];

			q[j] += d * d;
		}
}

/* Statistics of rows [first, last); buf has room for a block and two vectors. */
static void stats_rows(float *mean, float *q, float *buf, struct dt_tensor x, int64_t first, int64_t last)
{
	const int64_t c = dt_cols(x);
	float *m2 = buf + DT_BN_BLOCK * c, *q2 = m2 + c;

	memset(mean, 0, (size_t)c * sizeof *mean);
	memset(q, 0, (size_t)c * sizeof *q);
	for (int64_t r = first; r < last; r += DT_BN_BLOCK) {
		const int64_t n = dt_min64(DT_BN_BLOCK, last - r);

		bn_block(m2, q2, buf, x, r, n);
		bn_merge(mean, q, (double)(r - first), m2, q2, (double)n, c);
	}
}

int dt_cpu_bn_stats(struct dt_dev *dev, struct dt_tensor mean, struct dt_tensor sqdev, struct dt_tensor x)
{
	const int64_t c = dt_cols(x), groups = dt_numel(mean) / c, rows = dt_rows(x) / groups;
	const struct dt_groups p = dt_bn_parts(rows);
	const int64_t room = (DT_BN_BLOCK + 2) * c;
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *parts = dt_cpu_scratch(dev, dt_bn_stats_scratch(&on, groups, rows, c)), *bufs;

	if (!parts)
		return -ENOMEM;
	bufs = parts + groups * p.n * 2 * c;
#pragma omp parallel for num_threads(dev->nthreads) if (groups * rows * c > DT_SERIAL)
	for (int64_t i = 0; i < groups * p.n; i++) {
		const int64_t g = i / p.n, k = i % p.n;

		stats_rows(parts + i * 2 * c, parts + (i * 2 + 1) * c, bufs + omp_get_thread_num() * room, x,
			   g * rows + k * p.rows, g * rows + dt_min64(rows, (k + 1) * p.rows));
	}
	for (int64_t g = 0; g < groups; g++) {
		float *m = (float *)mean.data + g * c, *q = (float *)sqdev.data + g * c;

		memset(m, 0, (size_t)c * sizeof *m);
		memset(q, 0, (size_t)c * sizeof *q);
		for (int64_t k = 0; k < p.n && rows > 0; k++) {
			const float *from = parts + (g * p.n + k) * 2 * c;

			bn_merge(m, q, (double)(k * p.rows), from, from + c,
				 (double)(dt_min64(rows, (k + 1) * p.rows) - k * p.rows), c);
		}
	}
	return 0;
}

struct work {
	const struct dt_bn *p;
	struct dt_tensor dx, dresidual, dy, residual;
	const float *m, *k, *b, *d; /* [c] coefficients of a group: y = k (x - m) + b; dx = k dz + d (x -
				     * m) + b */
};

/* Forward of rows [first, last); buf: two vectors. */
static DT_SIMD void bn_forward_rows(const struct work *a, float *buf, int64_t first, int64_t last)
{
	const struct dt_bn *p = a->p;
	const int64_t c = dt_cols(p->x);

	for (int64_t r = first; r < last; r++) {
		const float *x = dt_load(buf, dt_at(p->x, r * c), p->x.dtype, c), *res = NULL;
		float *y = dt_stage(buf, dt_at(p->y, r * c), p->y.dtype);

		if (a->residual.data)
			res = dt_load(buf + c, dt_at(a->residual, r * c), p->x.dtype, c);
		if (res) {
#pragma omp simd
			for (int64_t j = 0; j < c; j++)
				y[j] = a->k[j] * (x[j] - a->m[j]) + a->b[j] + res[j];
		} else {
#pragma omp simd
			for (int64_t j = 0; j < c; j++)
				y[j] = a->k[j] * (x[j] - a->m[j]) + a->b[j];
		}
		if (p->relu) {
#pragma omp simd
			for (int64_t j = 0; j < c; j++)
				y[j] = y[j] < 0 ? 0 : y[j];
		}
		dt_store(dt_at(p->y, r * c), p->y.dtype, y, c);
	}
}

/* dz of a row: dy, or zero where ReLU clipped. */
DT_INLINE const float *masked(float *buf, const struct dt_bn *p, struct dt_tensor dy, int64_t at, int64_t c)
{
	const float *g = dt_load(buf, dt_at(dy, at), dy.dtype, c), *y;

	if (!p->relu)
		return g;
	y = dt_load(buf + c, dt_at(p->y, at), p->y.dtype, c);
#pragma omp simd
	for (int64_t j = 0; j < c; j++)
		buf[j] = y[j] > 0 ? g[j] : 0;
	return buf;
}

/* sum and dot of rows [first, last); buf: three vectors. */
static DT_SIMD void bn_sums_rows(float *sum, float *dot, float *buf, const struct work *a, int64_t first,
				 int64_t last)
{
	const struct dt_bn *p = a->p;
	const int64_t c = dt_cols(p->x);

	memset(sum, 0, (size_t)c * sizeof *sum);
	memset(dot, 0, (size_t)c * sizeof *dot);
	for (int64_t r = first; r < last; r++) {
		const float *dz = masked(buf, p, a->dy, r * c, c),
			    *x = dt_load(buf + 2 * c, dt_at(p->x, r * c), p->x.dtype, c);

#pragma omp simd
		for (int64_t j = 0; j < c; j++) {
			sum[j] += dz[j];
			dot[j] += dz[j] * ((x[j] - a->m[j]) * a->k[j]);
		}
	}
}

static DT_SIMD void bn_backward_rows(const struct work *a, float *buf, int64_t first, int64_t last)
{
	const struct dt_bn *p = a->p;
	const int64_t c = dt_cols(p->x);

	for (int64_t r = first; r < last; r++) {
		const float *dz = masked(buf, p, a->dy, r * c, c),
			    *x = dt_load(buf + 2 * c, dt_at(p->x, r * c), p->x.dtype, c);
		float *dx = dt_stage(buf + 2 * c, dt_at(a->dx, r * c), a->dx.dtype), *res;

		if (a->dresidual.data) {
			res = dt_at(a->dresidual, r * c);
			if (a->dresidual.dtype == DT_F32 && res != dz)
				memcpy(res, dz, (size_t)c * sizeof *res);
			dt_store(res, a->dresidual.dtype, dz, c);
		}
#pragma omp simd
		for (int64_t j = 0; j < c; j++)
			dx[j] = a->k[j] * dz[j] + a->d[j] * (x[j] - a->m[j]) + a->b[j];
		dt_store(dt_at(a->dx, r * c), a->dx.dtype, dx, c);
	}
}

static const float *of_group(struct dt_tensor stats, int64_t g, int64_t c)
{
	return (const float *)stats.data + g * c;
}

int dt_cpu_bn_forward(struct dt_dev *dev, const struct dt_bn *p, struct dt_tensor residual,
		      struct dt_tensor beta)
{
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c, rows = dt_rows(p->x) / groups;
	const struct dt_groups parts = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *v = dt_cpu_scratch(dev, dt_bn_forward_scratch(&on, c)), *bufs = v + 4 * c;

	if (!v)
		return -ENOMEM;
	for (int64_t g = 0; g < groups; g++) {
		const float *gamma = dt_load(v, p->gamma.data, p->gamma.dtype, c),
			    *rstd = of_group(p->rstd, g, c);
		const struct work a = {.p = p,
				       .residual = residual,
				       .m = of_group(p->mean, g, c),
				       .k = v + c,
				       .b = dt_load(v + 2 * c, beta.data, beta.dtype, c)};

		for (int64_t j = 0; j < c; j++)
			v[c + j] = gamma[j] * rstd[j];
#pragma omp parallel for num_threads(dev->nthreads) if (rows * c > DT_SERIAL)
		for (int64_t i = 0; i < parts.n; i++)
			bn_forward_rows(&a, bufs + omp_get_thread_num() * 2 * c, g * rows + i * parts.rows,
					g * rows + dt_min64(rows, (i + 1) * parts.rows));
	}
	return 0;
}

int dt_cpu_bn_sums(struct dt_dev *dev, struct dt_tensor sum, struct dt_tensor dot, struct dt_tensor dy,
		   const struct dt_bn *p)
{
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c, rows = dt_rows(p->x) / groups;
	const struct dt_groups parts = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *v = dt_cpu_scratch(dev, dt_bn_sums_scratch(&on, rows, c)), *bufs = v + 2 * parts.n * c;

	if (!v)
		return -ENOMEM;
	memset(sum.data, 0, (size_t)(groups * c) * sizeof(float));
	memset(dot.data, 0, (size_t)(groups * c) * sizeof(float));
	for (int64_t g = 0; g < groups && rows > 0; g++) {
		const struct work a = {
			.p = p, .dy = dy, .k = of_group(p->rstd, g, c), .m = of_group(p->mean, g, c)};

#pragma omp parallel for num_threads(dev->nthreads) if (rows * c > DT_SERIAL)
		for (int64_t i = 0; i < parts.n; i++)
			bn_sums_rows(v + 2 * i * c, v + (2 * i + 1) * c, bufs + omp_get_thread_num() * 3 * c,
				     &a, g * rows + i * parts.rows,
				     g * rows + dt_min64(rows, (i + 1) * parts.rows));
		dt_groups_add(dev, (float *)sum.data + g * c, v, 2 * c, parts.n, c);
		dt_groups_add(dev, (float *)dot.data + g * c, v + c, 2 * c, parts.n, c);
	}
	return 0;
}

/* dx = k dz + d (x - mean) + b, which is gamma rstd (dz - (sum + xh dot) / count). */
static void fold_backward(const struct dt_bn *p, const float *gamma, const float *sum, const float *dot,
			  double count, int64_t g, float *k, float *d, float *b)
{
	const int64_t c = dt_cols(p->x);
	const float *rstd = of_group(p->rstd, g, c);
	const float share = count > 0 ? (float)(1 / count) : 0;

	for (int64_t j = 0; j < c; j++) {
		k[j] = gamma[j] * rstd[j];
		d[j] = share > 0 ? -k[j] * rstd[j] * dot[g * c + j] * share : 0;
		b[j] = share > 0 ? -k[j] * sum[g * c + j] * share : 0;
	}
}

int dt_cpu_bn_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dresidual,
		       struct dt_tensor dy, struct dt_tensor sum, struct dt_tensor dot, double count,
		       const struct dt_bn *p)
{
	const int64_t c = dt_cols(p->x), groups = dt_numel(p->mean) / c, rows = dt_rows(p->x) / groups;
	const struct dt_groups parts = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *v = dt_cpu_scratch(dev, dt_bn_backward_scratch(&on, c)), *bufs = v + 4 * c;

	if (!v)
		return -ENOMEM;
	for (int64_t g = 0; g < groups; g++) {
		const struct work a = {.p = p,
				       .dx = dx,
				       .dresidual = dresidual,
				       .dy = dy,
				       .m = of_group(p->mean, g, c),
				       .k = v,
				       .d = v + c,
				       .b = v + 2 * c};

		fold_backward(p, dt_load(v + 3 * c, p->gamma.data, p->gamma.dtype, c), sum.data, dot.data,
			      count, g, v, v + c, v + 2 * c);
#pragma omp parallel for num_threads(dev->nthreads) if (rows * c > DT_SERIAL)
		for (int64_t i = 0; i < parts.n; i++)
			bn_backward_rows(&a, bufs + omp_get_thread_num() * 3 * c, g * rows + i * parts.rows,
					 g * rows + dt_min64(rows, (i + 1) * parts.rows));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
