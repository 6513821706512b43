/* Sums over rows in a fixed order: groups of rows are summed separately, then added in order. */
#ifndef DT_KERNELS_CUDA_GROUPS_H
#define DT_KERNELS_CUDA_GROUPS_H

#include "kernels/cuda/kernel.h"

#define DT_GROUPS_MAX 256

struct dt_row_groups {
	int64_t n, rows; /* number of groups, and rows in each but the last */
};

static inline struct dt_row_groups dt_row_groups(int64_t rows, int64_t most = DT_GROUPS_MAX)
{
	const int64_t each = dt_ceil_div(rows, most) < 4 ? 4 : dt_ceil_div(rows, most);

	return {dt_ceil_div(rows, each), each};
}

/* out[j] += sum over i < groups of part[i * stride + j], j < n: each warp has every 32nd group for 32
 * columns. */
static __global__ void __launch_bounds__(1024)
	dt_groups_kernel(float *out, const float *part, int64_t stride, int64_t groups, int64_t n)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t j = (int64_t)blockIdx.x * 32 + lane;
	float *sums = (float *)dt_shared(), s = 0;

	if (j < n) {
		DT_UNROLL_BY(8)
		for (int64_t i = warp; i < groups; i += 32)
			s += dt_ld1(part, DT_F32, i * stride + j);
	}
	sums[warp * 32 + lane] = s;
	__syncthreads();
	if (warp || j >= n)
		return;
	s = dt_ld1(out, DT_F32, j);
	for (int w = 0; w < 32; w++)
		s += sums[w * 32 + lane];
	dt_st1(out, DT_F32, j, s);
}

static inline int dt_groups_add(const struct dt_cuda *c, float *out, const float *part, int64_t stride,
				int64_t groups, int64_t n)
{
	return DT_LAUNCH(c, dt_groups_kernel, (unsigned)dt_ceil_div(n, 32), 1024, 4096, out, part, stride,
			 groups, n);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
