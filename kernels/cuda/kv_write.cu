/*
 * Writes keys and values of a step, or latents that are both, to the cache: one read and one write per
 * element.
 */
#include "kernels/cuda/kernel.h"
#include "kernels/int8.h"

struct write {
	void *k, *v;
	const void *x;
	int tc, tx;
	int64_t rows, n, q, parts; /* n: columns of k; q: of q, before them; parts: k and v, or k alone */
	const int64_t *slot;
};

template <int V> __global__ void __launch_bounds__(256) write_kernel(struct write a)
{
	const int64_t each = a.n / V, step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.rows * a.parts * each;
	     i += step) {
		const int64_t row = i / each / a.parts, part = i / each % a.parts, j = i % each * V,
			      to = a.slot[row];
		float r[V];

		if (to < 0)
			continue;
		dt_ld<V>(r, a.x, a.tx, row * (a.q + a.parts * a.n) + a.q + part * a.n + j);
		dt_st<V>(part ? a.v : a.k, a.tc, to * a.n + j, r);
	}
}

/* One warp per head of a row's k and v: quantises to nearest even, and stores the scale, max / 127, after
 * it. */
__global__ void __launch_bounds__(256) write_int8_kernel(struct write a, int64_t d)
{
	const int64_t heads = a.n / d, lane = threadIdx.x % 32, step = (int64_t)gridDim.x * blockDim.x / 32;
	const int64_t width = heads * (d + 4);

	for (int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32; i < a.rows * a.parts * heads;
	     i += step) {
		const int64_t row = i / heads / a.parts, part = i / heads % a.parts, h = i % heads,
			      to = a.slot[row];
		const int64_t from = row * (a.q + a.parts * a.n) + a.q + part * a.n + h * d;
		int8_t *out = (int8_t *)(part ? a.v : a.k) + to * width + h * (d + 4);
		uint32_t max = 0;
		float scale, inverse;

		if (to < 0)
			continue;
		for (int64_t c = lane; c < d; c += 32) {
			const uint32_t u = dt_magnitude(dt_ld1(a.x, a.tx, from + c));

			max = u > max ? u : max;
		}
		dt_int8_scale(dt_warp_largest(max, 32), &scale, &inverse);
		for (int64_t c = lane; c < d; c += 32) {
			dt_touch(out + c, 1);
			out[c] = inverse != 0 ? (int8_t)rintf(dt_ld1(a.x, a.tx, from + c) * inverse) : 0;
		}
		if (lane == 0) {
			for (int k = 0; k < 4; k++)
				dt_touch(out + d + k, 1);
			memcpy(out + d, &scale, 4);
		}
	}
}

int dt_cuda_kv_write(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		     struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(qkv), n = p->kv_heads * p->head_dim, q = p->heads * p->head_dim,
		      parts = dt_kv_parts(p);
	struct dt_table t = {slot, (size_t)rows * sizeof *slot, NULL};
	int rc;

	if (!c)
		return -ENODEV;
	rc = dt_cuda_tables(dev, &t, 1);
	if (rc < 0)
		return rc;
	const struct write a = {kcache.data, vcache.data, qkv.data, kcache.dtype, qkv.dtype,
				rows,	     n,		  q,	    parts,	  (const int64_t *)t.ret};

	if (kcache.dtype == DT_I8)
		return DT_LAUNCH(c, write_int8_kernel, dt_blocks(c, rows * parts * p->kv_heads, 8), 256, 0, a,
				 p->head_dim);
	if (n % 8 == 0 && dt_by_8(q, kcache.data, vcache.data, qkv.data))
		return DT_LAUNCH(c, write_kernel<8>, dt_blocks(c, rows * parts * n / 8, 256), 256, 0, a);
	return DT_LAUNCH(c, write_kernel<1>, dt_blocks(c, rows * parts * n, 256), 256, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
