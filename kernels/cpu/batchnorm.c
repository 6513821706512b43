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

/* Element i of p, as f32. t is a constant, so that rows are converted in registers. */
DT_INLINE float element(const void *p, enum dt_dtype t, int64_t i)
{
	if (t == DT_F32)
		return ((const float *)p)[i];
	return t == DT_F16 ? dt_f16_to_f32(((const uint16_t *)p)[i])
			   : dt_bf16_to_f32(((const uint16_t *)p)[i]);
}

DT_INLINE void set_element(void *p, enum dt_dtype t, int64_t i, float v)
{
	if (t == DT_F32)
		((float *)p)[i] = v;
	else
		((uint16_t *)p)[i] = t == DT_F16 ? dt_f32_to_f16(v) : dt_f32_to_bf16(v);
}

/* Calls f(..., type) with a constant type. */
#define WITH_TYPE(t, f, ...)                                                                                 \
	do {                                                                                                 \
		if ((t) == DT_F32)                                                                           \
			f(__VA_ARGS__, DT_F32);                                                              \
		else if ((t) == DT_F16)                                                                      \
			f(__VA_ARGS__, DT_F16);                                                              \
		else                                                                                         \
			f(__VA_ARGS__, DT_BF16);                                                             \
	} while (0)

#define AT_ONCE 4 /* rows that are added to a sum while it is in a register */

/* sum[j] += of n rows, one after another, from row r of x on. */
DT_INLINE void add_rows(float *sum, struct dt_tensor x, int64_t r, int n, enum dt_dtype t)
{
	const int64_t c = dt_cols(x);
	const void *p = dt_at(x, r * c);

#pragma omp simd
	for (int64_t j = 0; j < c; j++) {
		float v = sum[j];

		DT_FOR (AT_ONCE, int i = 0; i < n; i++)
			v += element(p, t, i * c + j);
		sum[j] = v;
	}
}

/* q[j] += squared deviations of n rows. */
DT_INLINE void add_deviations(float *q, const float *mean, struct dt_tensor x, int64_t r, int n,
			      enum dt_dtype t)
{
	const int64_t c = dt_cols(x);
	const void *p = dt_at(x, r * c);

#pragma omp simd
	for (int64_t j = 0; j < c; j++) {
		float v = q[j];

		DT_FOR (AT_ONCE, int i = 0; i < n; i++) {
			const float d = element(p, t, i * c + j) - mean[j];

			v += d * d;
		}
		q[j] = v;
	}
}

DT_INLINE void block_of(float *mean, float *q, struct dt_tensor x, int64_t first, int64_t n, enum dt_dtype t)
{
	const int64_t c = dt_cols(x), whole = n / AT_ONCE * AT_ONCE;
	const float share = 1.f / (float)n;

	for (int64_t r = 0; r < whole; r += AT_ONCE)
		add_rows(mean, x, first + r, AT_ONCE, t);
	for (int64_t r = whole; r < n; r++)
		add_rows(mean, x, first + r, 1, t);
#pragma omp simd
	for (int64_t j = 0; j < c; j++)
		mean[j] *= share;
	for (int64_t r = 0; r < whole; r += AT_ONCE)
		add_deviations(q, mean, x, first + r, AT_ONCE, t);
	for (int64_t r = whole; r < n; r++)
		add_deviations(q, mean, x, first + r, 1, t);
}

/* Mean and sum of squared deviations of a block of rows. */
static DT_SIMD void bn_block(float *mean, float *q, struct dt_tensor x, int64_t first, int64_t n)
{
	const int64_t c = dt_cols(x);

	memset(mean, 0, (size_t)c * sizeof *mean);
	memset(q, 0, (size_t)c * sizeof *q);
	WITH_TYPE(x.dtype, block_of, mean, q, x, first, n);
}

/* Statistics of rows [first, last); buf has room for two vectors. */
static void stats_rows(float *mean, float *q, float *buf, struct dt_tensor x, int64_t first, int64_t last)
{
	const int64_t c = dt_cols(x);
	float *m2 = buf, *q2 = m2 + c;

	memset(mean, 0, (size_t)c * sizeof *mean);
	memset(q, 0, (size_t)c * sizeof *q);
	for (int64_t r = first; r < last; r += DT_BN_BLOCK) {
		const int64_t n = dt_min64(DT_BN_BLOCK, last - r);

		bn_block(m2, q2, x, r, n);
		bn_merge(mean, q, (double)(r - first), m2, q2, (double)n, c);
	}
}

int dt_cpu_bn_stats(struct dt_dev *dev, struct dt_tensor mean, struct dt_tensor sqdev, struct dt_tensor x)
{
	const int64_t c = dt_cols(x), groups = dt_numel(mean) / c, rows = dt_rows(x) / groups;
	const struct dt_groups p = dt_bn_parts(rows);
	const struct dt_scratch_on on = dt_cpu_scratch_on(dev);
	float *parts = dt_cpu_scratch(dev, dt_bn_stats_scratch(&on, groups, rows, c)), *bufs;

	if (!parts)
		return -ENOMEM;
	bufs = parts + groups * p.n * 2 * c;
#pragma omp parallel for num_threads(dev->nthreads) if (groups * rows * c > DT_SERIAL)
	for (int64_t i = 0; i < groups * p.n; i++) {
		const int64_t g = i / p.n, k = i % p.n;

		stats_rows(parts + i * 2 * c, parts + (i * 2 + 1) * c, bufs + omp_get_thread_num() * 2 * c, x,
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

DT_INLINE void forward_of(const struct work *a, int64_t first, int64_t last, bool add, bool relu,
			  enum dt_dtype t)
{
	const int64_t c = dt_cols(a->p->x);
	const float *k = a->k, *m = a->m, *b = a->b;

	for (int64_t r = first; r < last; r++) {
		const void *x = dt_at(a->p->x, r * c), *res = add ? dt_at(a->residual, r * c) : NULL;
		void *y = dt_at(a->p->y, r * c);

#pragma omp simd
		for (int64_t j = 0; j < c; j++) {
			float z = k[j] * (element(x, t, j) - m[j]) + b[j];

			if (add)
				z += element(res, t, j);
			set_element(y, t, j, relu && z < 0 ? 0 : z);
		}
	}
}

/* Forward of rows [first, last). */
static DT_SIMD void bn_forward_rows(const struct work *a, int64_t first, int64_t last)
{
	const enum dt_dtype t = a->p->x.dtype;
	const bool add = a->residual.data;

	if (add && a->p->relu)
		WITH_TYPE(t, forward_of, a, first, last, true, true);
	else if (add)
		WITH_TYPE(t, forward_of, a, first, last, true, false);
	else if (a->p->relu)
		WITH_TYPE(t, forward_of, a, first, last, false, true);
	else
		WITH_TYPE(t, forward_of, a, first, last, false, false);
}

/* dz: dy, or zero where ReLU clipped. */
DT_INLINE float masked(const void *dy, const void *y, bool relu, enum dt_dtype t, int64_t i)
{
	const float g = element(dy, t, i);

	return !relu || element(y, t, i) > 0 ? g : 0;
}

/* Adds n rows from row r on to sum and dot. */
DT_INLINE void sums_of(float *sum, float *dot, const struct work *a, int64_t r, int n, bool relu,
		       enum dt_dtype t)
{
	const int64_t c = dt_cols(a->p->x);
	const float *k = a->k, *m = a->m;
	const void *x = dt_at(a->p->x, r * c), *dy = dt_at(a->dy, r * c),
		   *y = relu ? dt_at(a->p->y, r * c) : NULL;

#pragma omp simd
	for (int64_t j = 0; j < c; j++) {
		float s = sum[j], v = dot[j];

		DT_FOR (AT_ONCE, int i = 0; i < n; i++) {
			const float dz = masked(dy, y, relu, t, i * c + j);

			s += dz;
			v += dz * ((element(x, t, i * c + j) - m[j]) * k[j]);
		}
		sum[j] = s;
		dot[j] = v;
	}
}

DT_INLINE void all_sums_of(float *sum, float *dot, const struct work *a, int64_t first, int64_t last,
			   bool relu, enum dt_dtype t)
{
	int64_t r = first;

	for (; r + AT_ONCE <= last; r += AT_ONCE)
		sums_of(sum, dot, a, r, AT_ONCE, relu, t);
	for (; r < last; r++)
		sums_of(sum, dot, a, r, 1, relu, t);
}

/* sum and dot of rows [first, last). */
static DT_SIMD void bn_sums_rows(float *sum, float *dot, const struct work *a, int64_t first, int64_t last)
{
	const int64_t c = dt_cols(a->p->x);

	memset(sum, 0, (size_t)c * sizeof *sum);
	memset(dot, 0, (size_t)c * sizeof *dot);
	if (a->p->relu)
		WITH_TYPE(a->p->x.dtype, all_sums_of, sum, dot, a, first, last, true);
	else
		WITH_TYPE(a->p->x.dtype, all_sums_of, sum, dot, a, first, last, false);
}

DT_INLINE void backward_of(const struct work *a, int64_t first, int64_t last, bool add, bool relu,
			   enum dt_dtype t)
{
	const int64_t c = dt_cols(a->p->x);
	const float *k = a->k, *m = a->m, *b = a->b, *d = a->d;

	for (int64_t r = first; r < last; r++) {
		const void *x = dt_at(a->p->x, r * c), *dy = dt_at(a->dy, r * c),
			   *y = relu ? dt_at(a->p->y, r * c) : NULL;
		void *dx = dt_at(a->dx, r * c), *res = add ? dt_at(a->dresidual, r * c) : NULL;

#pragma omp simd
		for (int64_t j = 0; j < c; j++) {
			const float dz = masked(dy, y, relu, t, j),
				    v = k[j] * dz + d[j] * (element(x, t, j) - m[j]) + b[j];

			if (add)
				set_element(res, t, j, dz);
			set_element(dx, t, j, v);
		}
	}
}

static DT_SIMD void bn_backward_rows(const struct work *a, int64_t first, int64_t last)
{
	const enum dt_dtype t = a->p->x.dtype;
	const bool add = a->dresidual.data;

	if (add && a->p->relu)
		WITH_TYPE(t, backward_of, a, first, last, true, true);
	else if (add)
		WITH_TYPE(t, backward_of, a, first, last, true, false);
	else if (a->p->relu)
		WITH_TYPE(t, backward_of, a, first, last, false, true);
	else
		WITH_TYPE(t, backward_of, a, first, last, false, false);
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
	float *v = dt_cpu_scratch(dev, dt_bn_forward_scratch(&on, c));

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
			bn_forward_rows(&a, g * rows + i * parts.rows,
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
	float *v = dt_cpu_scratch(dev, dt_bn_sums_scratch(&on, rows, c));

	if (!v)
		return -ENOMEM;
	memset(sum.data, 0, (size_t)(groups * c) * sizeof(float));
	memset(dot.data, 0, (size_t)(groups * c) * sizeof(float));
	for (int64_t g = 0; g < groups && rows > 0; g++) {
		const struct work a = {
			.p = p, .dy = dy, .k = of_group(p->rstd, g, c), .m = of_group(p->mean, g, c)};

#pragma omp parallel for num_threads(dev->nthreads) if (rows * c > DT_SERIAL)
		for (int64_t i = 0; i < parts.n; i++)
			bn_sums_rows(v + 2 * i * c, v + (2 * i + 1) * c, &a, g * rows + i * parts.rows,
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
	float *v = dt_cpu_scratch(dev, dt_bn_backward_scratch(&on, c));

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
			bn_backward_rows(&a, g * rows + i * parts.rows,
					 g * rows + dt_min64(rows, (i + 1) * parts.rows));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
