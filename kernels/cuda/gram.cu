/* The whole product by matmul; sums and transposes by one element per thread. */
#include "kernels/cuda/kernel.h"

struct gram {
	void *c;
	const void *b;
	int type;
	int64_t m;
	float alpha, beta, diagonal;
};

/* The thread of an element below the diagonal also writes its mirror image: c is exactly symmetric. */
__global__ void __launch_bounds__(256) gram_kernel(struct gram p)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < p.m * p.m; at += step) {
		const int64_t i = at / p.m, j = at % p.m;
		float v;

		if (j > i)
			continue;
		v = p.alpha * dt_ld1(p.c, p.type, at);
		if (p.b)
			v += p.beta * dt_ld1(p.b, p.type, at);
		v += i == j ? p.diagonal : 0;
		dt_st1(p.c, p.type, at, v);
		dt_st1(p.c, p.type, j * p.m + i, v);
	}
}

int dt_cuda_gram(struct dt_dev *dev, struct dt_tensor c, struct dt_tensor a, float alpha, struct dt_tensor b,
		 float beta, float diagonal)
{
	const struct dt_cuda *card = dt_cuda_enter(dev);
	const struct gram p = {c.data, b.data, c.dtype, dt_rows(a), alpha, beta, diagonal};
	struct dt_tensor none = {};
	int rc = card ? dt_cuda_matmul(dev, c, a, false, a, true, none, false) : -ENODEV;

	return rc < 0 ? rc : DT_LAUNCH(card, gram_kernel, dt_blocks(card, p.m * p.m, 256), 256, 0, p);
}

struct transpose {
	void *y;
	const void *x;
	int ty, tx;
	int64_t rows, cols; /* of x */
};

__global__ void __launch_bounds__(256) transpose_kernel(struct transpose p)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < p.rows * p.cols; at += step)
		dt_st1(p.y, p.ty, at, dt_ld1(p.x, p.tx, at % p.rows * p.cols + at / p.rows));
}

int dt_cuda_transpose(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct transpose p = {y.data, x.data, y.dtype, x.dtype, dt_rows(x), dt_cols(x)};

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, transpose_kernel, dt_blocks(c, p.rows * p.cols, 256), 256, 0, p);
}
/* SPDX-License-Identifier: Apache-2.0 */
