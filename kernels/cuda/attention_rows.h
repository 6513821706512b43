/* Attention with one row per warp: code shared by its kernels for all types. */
#ifndef DT_KERNELS_CUDA_ATTENTION_ROWS_H
#define DT_KERNELS_CUDA_ATTENTION_ROWS_H

#include "kernels/cuda/kernel.h"

/* Dot product of x [d] and d elements of m from `at` on. */
DT_DEVICE float dt_dot_row(const float *x, const void *m, int t, int64_t at, int64_t d)
{
	float s = 0;

	for (int64_t c = 0; c < d; c++)
		s += x[c] * dt_ld1(m, t, at + c);
	return s;
}

/* sum[c] += the weights of lanes below n times their rows of m, at + lane * width. */
DT_DEVICE void dt_add_rows(float *sum, float weight, const void *m, int t, int64_t at, int64_t width,
			   int64_t n, int64_t d)
{
	for (int64_t c = threadIdx.x % 32; c < dt_ceil_div(d, 32) * 32; c += 32) {
		float add = 0;

		for (int k = 0; k < 32; k++) {
			const float w = __shfl_sync(DT_ALL, weight, k);

			if (k < n && c < d)
				add += w * dt_ld1(m, t, at + k * width + c);
		}
		if (c < d)
			sum[c] += add;
	}
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
