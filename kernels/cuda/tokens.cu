/* Memory bound, one element per thread: forward moves 2 times the bytes of y, backward the same. */
#include "kernels/cuda/kernel.h"

struct image_tokens {
	void *y;
	const void *x, *class_token, *pos;
	int t;
	int64_t images, tokens, n;
};

__global__ void __launch_bounds__(256) image_tokens_kernel(struct image_tokens a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.images * a.tokens * a.n;
	     i += step) {
		const int64_t c = i % a.n, row = i / a.n, at = row % a.tokens, image = row / a.tokens;
		const float x = at ? dt_ld1(a.x, a.t, (image * (a.tokens - 1) + at - 1) * a.n + c)
				   : dt_ld1(a.class_token, a.t, c);

		dt_st1(a.y, a.t, i, x + dt_ld1(a.pos, a.t, at * a.n + c));
	}
}

int dt_cuda_image_tokens(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 struct dt_tensor class_token, struct dt_tensor pos)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(class_token), tokens = dt_rows(pos);
	const struct image_tokens a = {
		y.data, x.data, class_token.data, pos.data, y.dtype, dt_numel(y) / (tokens * n), tokens, n};

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, image_tokens_kernel, dt_blocks(c, dt_numel(y), 256), 256, 0, a);
}

struct tokens_back {
	void *dx;
	float *dclass, *dpos;
	const void *dy;
	int t;
	int64_t images, tokens, n;
};

/* A thread has an element of dpos: it reads that token of all images, in order. */
__global__ void __launch_bounds__(256) tokens_back_kernel(struct tokens_back a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.tokens * a.n; i += step) {
		const int64_t c = i % a.n, at = i / a.n;
		float sum = 0;

		for (int64_t b = 0; b < a.images; b++) {
			const float g = dt_ld1(a.dy, a.t, (b * a.tokens + at) * a.n + c);

			sum += g;
			if (at)
				dt_st1(a.dx, a.t, (b * (a.tokens - 1) + at - 1) * a.n + c, g);
		}
		if (a.dpos)
			a.dpos[i] += sum;
		if (a.dclass && !at)
			a.dclass[c] += sum;
	}
}

int dt_cuda_image_tokens_backward(struct dt_dev *dev, struct dt_tensor dx, struct dt_tensor dclass,
				  struct dt_tensor dpos, struct dt_tensor dy, int64_t tokens)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_cols(dy);
	const struct tokens_back a = {dx.data,
				      (float *)dclass.data,
				      (float *)dpos.data,
				      dy.data,
				      dy.dtype,
				      dt_numel(dy) / (tokens * n),
				      tokens,
				      n};

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, tokens_back_kernel, dt_blocks(c, tokens * n, 256), 256, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
