/* What layernorm.c and rmsnorm.c share: a row in f32, with the residual added. */
#ifndef DT_KERNELS_CPU_NORM_H
#define DT_KERNELS_CPU_NORM_H

#include "kernels/cpu/cpu.h"

/* n elements of x, from element at on, as f32, in buf or in place. With delta: their sum, as sum keeps it. */
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
