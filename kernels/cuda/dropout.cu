/* One block of four random numbers per thread; a row need not begin with a whole block. */
#include "kernels/cuda/kernel.h"

struct dropout {
	void *y;
	const void *x;
	int ty, tx;
	int64_t rows, n;
	bool add;
	struct dt_dropout p;
};

__global__ void __launch_bounds__(256) dropout_kernel(struct dropout d)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x, blocks = (d.n + 3) / 4 + 1;

	for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < d.rows * blocks; t += step) {
		const int64_t row = t / blocks, b = t % blocks;
		dt_touch(d.p.pos + d.p.row + row, sizeof *d.p.pos);
		const uint64_t first = dt_dropout_at(&d.p, row);
		const int64_t skip = (int64_t)(first % 4);
		const struct dt_philox r = dt_philox_block(&d.p.stream, first / 4 + (uint64_t)b);

		DT_UNROLL
		for (int k = 0; k < 4; k++) {
			const int64_t col = 4 * b + k - skip, i = row * d.n + col;
			float v;

			if (col < 0 || col >= d.n)
				continue;
			v = r.v[k] < d.p.below ? 0.f : dt_ld1(d.x, d.tx, i) * d.p.scale;
			dt_st1(d.y, d.ty, i, d.add ? dt_ld1(d.y, d.ty, i) + v : v);
		}
	}
}

int dt_cuda_dropout(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x, const struct dt_dropout *p,
		    bool add)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct dropout d = {y.data, x.data, y.dtype, x.dtype, dt_rows(x), dt_cols(x), add, *p};

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, dropout_kernel, dt_blocks(c, d.rows * ((d.n + 3) / 4 + 1), 256), 256, 0, d);
}
/* SPDX-License-Identifier: Apache-2.0 */
