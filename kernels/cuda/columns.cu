/* One element per thread, with coalesced accesses. */
#include "kernels/cuda/kernel.h"

struct columns {
	void *y;
	const void *x;
	int ty, tx;
	int64_t rows, n, wy, wx, at, from;
	bool add;
};

__global__ void __launch_bounds__(256) columns_kernel(struct columns p)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < p.rows * p.n; i += step) {
		const int64_t row = i / p.n, col = i % p.n, to = row * p.wy + p.at + col;
		const float v = dt_ld1(p.x, p.tx, row * p.wx + p.from + col);

		dt_st1(p.y, p.ty, to, p.add ? dt_ld1(p.y, p.ty, to) + v : v);
	}
}

int dt_cuda_columns(struct dt_dev *dev, struct dt_tensor y, int64_t at, struct dt_tensor x, int64_t from,
		    int64_t n, bool add)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct columns p = {y.data,     x.data,	  y.dtype, x.dtype, dt_rows(y), n,
				  dt_cols(y), dt_cols(x), at,	   from,    add};

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, columns_kernel, dt_blocks(c, p.rows * n, 256), 256, 0, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
