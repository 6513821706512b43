/* One block of four random numbers per thread; a row need not begin with a whole block. */
#include "kernels/cuda/kernel.h"

struct noise {
	void *y;
	int t;
	int64_t rows, n;
	struct dt_philox_stream stream;
	const float *width;
	const int64_t *token;
};

__global__ void __launch_bounds__(256) noise_kernel(struct noise d)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x, blocks = (d.n + 3) / 4 + 1;

	for (int64_t t = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; t < d.rows * blocks; t += step) {
		const int64_t row = t / blocks, b = t % blocks;
		const uint64_t first = (uint64_t)(dt_at(d.token, row) * d.n);
		const int64_t skip = (int64_t)(first % 4);
		const struct dt_philox r = dt_philox_block(&d.stream, first / 4 + (uint64_t)b);

		DT_UNROLL
		for (int k = 0; k < 4; k++) {
			const int64_t col = 4 * b + k - skip, i = row * d.n + col;

			if (col < 0 || col >= d.n)
				continue;
			dt_st1(d.y, d.t, i,
			       dt_ld1(d.y, d.t, i) +
				       dt_rounded(dt_at(d.width, row) * dt_noise_of(r.v[k]), d.t));
		}
	}
}

int dt_cuda_noise(struct dt_dev *dev, struct dt_tensor y, const struct dt_noise *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const size_t rows = (size_t)dt_rows(y);
	struct dt_table table[] = {{p->width, rows * sizeof *p->width, NULL},
				   {p->token, rows * sizeof *p->token, NULL}};
	const int rc = c ? dt_cuda_tables(dev, table, 2) : -ENODEV;

	if (rc < 0)
		return rc;
	const struct noise d = {y.data,
				y.dtype,
				dt_rows(y),
				dt_cols(y),
				p->stream,
				(const float *)table[0].ret,
				(const int64_t *)table[1].ret};

	return DT_LAUNCH(c, noise_kernel, dt_blocks(c, d.rows * ((d.n + 3) / 4 + 1), 256), 256, 0, d);
}
/* SPDX-License-Identifier: Apache-2.0 */
