#include "kernels/cpu/batchnorm_rows.h"
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

/* Calls f(a, first, last, add, relu, type) with constants; add: with a residual. */
#define WITH_KIND(f, a, first, last, add)                                                                    \
	do {                                                                                                 \
		if ((add) && (a)->p->relu)                                                                   \
			WITH_TYPE((a)->p->x.dtype, f, a, first, last, true, true);                           \
		else if (add)                                                                                \
			WITH_TYPE((a)->p->x.dtype, f, a, first, last, true, false);                          \
		else if ((a)->p->relu)                                                                       \
			WITH_TYPE((a)->p->x.dtype, f, a, first, last, false, true);                          \
		else                                                                                         \
			WITH_TYPE((a)->p->x.dtype, f, a, first, last, false, false);                         \
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
void dt_bn_stats_rows(float *mean, float *q, float *buf, struct dt_tensor x, int64_t first, int64_t last)
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

DT_INLINE void forward_of(const struct dt_bn_work *a, int64_t first, int64_t last, bool add, bool relu,
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
static DT_SIMD void bn_forward_rows(const struct dt_bn_work *a, int64_t first, int64_t last)
{
	WITH_KIND(forward_of, a, first, last, a->residual.data);
}

/* dz: dy, or zero where ReLU clipped. */
DT_INLINE float masked(const void *dy, const void *y, bool relu, enum dt_dtype t, int64_t i)
{
	const float g = element(dy, t, i);

	return !relu || element(y, t, i) > 0 ? g : 0;
}

/* Adds n rows from row r on to sum and dot. */
DT_INLINE void sums_of(float *sum, float *dot, const struct dt_bn_work *a, int64_t r, int n, bool relu,
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

DT_INLINE void all_sums_of(float *sum, float *dot, const struct dt_bn_work *a, int64_t first, int64_t last,
			   bool relu, enum dt_dtype t)
{
	int64_t r = first;

	for (; r + AT_ONCE <= last; r += AT_ONCE)
		sums_of(sum, dot, a, r, AT_ONCE, relu, t);
	for (; r < last; r++)
		sums_of(sum, dot, a, r, 1, relu, t);
}

/* sum and dot of rows [first, last). */
static DT_SIMD void bn_sums_rows(float *sum, float *dot, const struct dt_bn_work *a, int64_t first,
				 int64_t last)
{
	const int64_t c = dt_cols(a->p->x);

	memset(sum, 0, (size_t)c * sizeof *sum);
	memset(dot, 0, (size_t)c * sizeof *dot);
	if (a->p->relu)
		WITH_TYPE(a->p->x.dtype, all_sums_of, sum, dot, a, first, last, true);
	else
		WITH_TYPE(a->p->x.dtype, all_sums_of, sum, dot, a, first, last, false);
}

DT_INLINE void backward_of(const struct dt_bn_work *a, int64_t first, int64_t last, bool add, bool relu,
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

static DT_SIMD void bn_backward_rows(const struct dt_bn_work *a, int64_t first, int64_t last)
{
	WITH_KIND(backward_of, a, first, last, a->dresidual.data);
}
/* Clones are static. */
void dt_bn_rows_merge(float *mean, float *q, double m, const float *mean2, const float *q2, double n,
		      int64_t c)
{
	bn_merge(mean, q, m, mean2, q2, n, c);
}
void dt_bn_forward_rows(const struct dt_bn_work *a, int64_t first, int64_t last)
{
	bn_forward_rows(a, first, last);
}
void dt_bn_sums_rows(float *sum, float *dot, const struct dt_bn_work *a, int64_t first, int64_t last)
{
	bn_sums_rows(sum, dot, a, first, last);
}
void dt_bn_backward_rows(const struct dt_bn_work *a, int64_t first, int64_t last)
{
	bn_backward_rows(a, first, last);
}
/* SPDX-License-Identifier: Apache-2.0 */
