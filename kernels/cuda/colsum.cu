/* Reads x once. */
#include "kernels/cuda/groups.h"

/* A block has 32 V columns of one group; each of its 8 warps every 8th row of them. ld: elements per row. */
template <int V>
__global__ void __launch_bounds__(256)
	colsum_kernel(float *part, const void *x, int t, int64_t rows, int64_t each, int64_t n, int64_t ld)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	const int64_t j = ((int64_t)blockIdx.x * 32 + lane) * V, first = blockIdx.y * each;
	const int64_t last = first + each < rows ? first + each : rows;
	float *s = (float *)dt_shared(), sum[V], r[V];

	for (int k = 0; k < V; k++)
		sum[k] = 0;
	for (int64_t i = first + warp; i < last && j < n; i += 8) {
		dt_ld<V>(r, x, t, i * ld + j);
		for (int k = 0; k < V; k++)
			sum[k] += r[k];
	}
	for (int k = 0; k < V; k++)
		s[(warp * V + k) * 32 + lane] = sum[k];
	__syncthreads();
	for (int k = warp; k < V; k += 8) {
		float a = 0;

		for (int w = 0; w < 8; w++)
			a += s[(w * V + k) * 32 + lane];
		if (j < n)
			dt_st1(part, DT_F32, blockIdx.y * n + j + k, a);
	}
}

int dt_cuda_colsum(struct dt_dev *dev, struct dt_tensor out, struct dt_tensor x)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(x), n = dt_cols(x);
	const struct dt_row_groups g = dt_row_groups(rows);
	float *part;
	int rc;

	if (!c)
		return -ENODEV;
	part = (float *)dt_cuda_scratch(dev, (size_t)(g.n * n) * sizeof *part);
	if (!part)
		return -ENOMEM;
	if (dt_by_8(n | dt_stride(x), x.data))
		rc = DT_LAUNCH(c, colsum_kernel<8>, dim3((unsigned)dt_ceil_div(n, 256), (unsigned)g.n), 256,
			       8192, part, x.data, (int)x.dtype, rows, g.rows, n, dt_stride(x));
	else
		rc = DT_LAUNCH(c, colsum_kernel<1>, dim3((unsigned)dt_ceil_div(n, 32), (unsigned)g.n), 256,
			       1024, part, x.data, (int)x.dtype, rows, g.rows, n, dt_stride(x));
	return rc < 0 ? rc : dt_groups_add(c, (float *)out.data, part, n, g.n, n);
}
/* SPDX-License-Identifier: Apache-2.0 */
