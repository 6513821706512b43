/* One element of y per thread, with coalesced accesses. */
#include "kernels/cuda/kernel.h"

struct latent_copy {
	void *y;
	const void *x;
	int t;
	struct dt_latent_heads p;
};

__global__ void __launch_bounds__(256) latent_kernel(struct latent_copy a)
{
	const int64_t step = (int64_t)gridDim.x * blockDim.x, heads = a.p.sum ? 1 : a.p.heads;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.p.rows * heads * a.p.n;
	     i += step) {
		const int64_t j = i % a.p.n, h = i / a.p.n % heads, row = i / a.p.n / heads;
		const int64_t from = a.p.from.at + row * a.p.from.row + h * a.p.from.head + j;
		float v = dt_ld1(a.x, a.t, from);

		for (int64_t k = 1; a.p.sum && k < a.p.heads; k++)
			v += dt_ld1(a.x, a.t, from + k * a.p.from.head);
		dt_st1(a.y, a.t, a.p.to.at + row * a.p.to.row + h * a.p.to.head + j, v);
	}
}

int dt_cuda_latent_heads(struct dt_dev *dev, struct dt_tensor y, struct dt_tensor x,
			 const struct dt_latent_heads *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct latent_copy a = {y.data, x.data, y.dtype, *p};

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, latent_kernel, dt_blocks(c, p->rows * (p->sum ? 1 : p->heads) * p->n, 256), 256,
			 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
