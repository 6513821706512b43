/*
 * Shared by layernorm.c and rmsnorm.c: reads a row with the residual added, in f32 or, for bf16 rows of even
 * length, as pairs (pair.h). f32 vectors used with pairs are split: even elements first, then odd ones.
 */
#ifndef DT_KERNELS_CPU_NORM_H
#define DT_KERNELS_CPU_NORM_H

#include "kernels/cpu/pair.h"

/* n elements of x from element `at` on, as f32, in buf or in place. With delta: x + delta, as rounded in
 * sum. */
DT_INLINE const float *dt_norm_input(float *buf, float *buf2, struct dt_tensor sum, struct dt_tensor x,
				     struct dt_tensor delta, int64_t at, int64_t n)
{
	const float *px = dt_load(buf, dt_at(x, at), x.dtype, n), *pd;
	float *out;

	if (!delta.data)
		return px;
	pd = dt_load(buf2, dt_at(delta, at), delta.dtype, n);
	out = dt_stage(buf, dt_at(sum, at), sum.dtype);
#pragma omp simd
	for (int64_t j = 0; j < n; j++)
		out[j] = px[j] + pd[j];
	if (sum.dtype == DT_F32)
		return out;
	dt_store(dt_at(sum, at), sum.dtype, out, n);
	return dt_load(buf, dt_at(sum, at), sum.dtype, n);
}

DT_INLINE bool dt_in_pairs(struct dt_tensor x, int64_t n)
{
	return x.dtype == DT_BF16 && n % 2 == 0;
}

/* The same as n / 2 pairs, in place or in sum. */
DT_INLINE const dt_pair *dt_norm_pairs(struct dt_tensor sum, struct dt_tensor x, struct dt_tensor delta,
				       int64_t at, int64_t n)
{
	const dt_pair *px = dt_at(x, at), *pd;
	dt_pair *out;

	if (!delta.data)
		return px;
	pd = dt_at(delta, at);
	out = dt_at(sum, at);
#pragma omp simd
	for (int64_t j = 0; j < n / 2; j++) {
		const struct dt_two a = dt_pair_get(px[j]), b = dt_pair_get(pd[j]);

		out[j] = dt_pair_of(a.lo + b.lo, a.hi + b.hi);
	}
	return out;
}

DT_INLINE void dt_split(float *out, const float *x, int64_t n)
{
#pragma omp simd
	for (int64_t j = 0; j < n / 2; j++) {
		/* Replaces NaNs whose bits dt_pair_of would lose. */
		out[j] = x[2 * j] == x[2 * j] ? x[2 * j] : __builtin_nanf("");
		out[n / 2 + j] = x[2 * j + 1] == x[2 * j + 1] ? x[2 * j + 1] : __builtin_nanf("");
	}
}

/* The inverse, in place, using buf [n]. */
DT_INLINE void dt_join(float *x, float *buf, int64_t n)
{
	memcpy(buf, x, (size_t)n * sizeof *x);
#pragma omp simd
	for (int64_t j = 0; j < n / 2; j++) {
		x[2 * j] = buf[j];
		x[2 * j + 1] = buf[n / 2 + j];
	}
}

DT_INLINE float dt_sum(const float *x, int64_t n)
{
	float s = 0;

#pragma omp simd reduction(+ : s)
	for (int64_t j = 0; j < n; j++)
		s += x[j];
	return s;
}

DT_INLINE float dt_dot(const float *x, const float *y, int64_t n)
{
	float s = 0;

#pragma omp simd reduction(+ : s)
	for (int64_t j = 0; j < n; j++)
		s += x[j] * y[j];
	return s;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
