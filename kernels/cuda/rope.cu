/* Reads and writes the rotated part of qkv once. */
#include "kernels/cuda/kernel.h"

struct args {
	void *x;
	int t;
	int64_t rows, width, heads, dim, half, positions;
	bool apart; /* the halves of a pair are `half` apart, else adjacent */
	const float *cos, *sin;
	const int32_t *pos;
	float sign;
	int32_t *bad;
};

/* V pairs per thread. */
template <int V> __global__ void __launch_bounds__(256) rope_kernel(struct args a)
{
	const int64_t each = a.half / V, step = (int64_t)gridDim.x * blockDim.x;

	for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.rows * a.heads * each;
	     i += step) {
		const int64_t pair = i % each * V, head = i / each % a.heads, row = i / each / a.heads;
		const int64_t at = row * a.width + head * a.dim, pos = a.pos[row];
		float lo[V], hi[V], c[V], s[V];

		if (pos < 0 || pos >= a.positions) {
			*a.bad = 1;
			continue;
		}
		dt_ld<V>(c, a.cos, DT_F32, pos * a.half + pair);
		dt_ld<V>(s, a.sin, DT_F32, pos * a.half + pair);
		if (a.apart) {
			dt_ld<V>(lo, a.x, a.t, at + pair);
			dt_ld<V>(hi, a.x, a.t, at + pair + a.half);
		} else {
			for (int k = 0; k < V; k++) {
				lo[k] = dt_ld1(a.x, a.t, at + 2 * (pair + k));
				hi[k] = dt_ld1(a.x, a.t, at + 2 * (pair + k) + 1);
			}
		}
		for (int k = 0; k < V; k++) {
			const float u = lo[k], v = hi[k], sn = a.sign * s[k];

			lo[k] = u * c[k] - v * sn;
			hi[k] = u * sn + v * c[k];
		}
		if (a.apart) {
			dt_st<V>(a.x, a.t, at + pair, lo);
			dt_st<V>(a.x, a.t, at + pair + a.half, hi);
		} else {
			for (int k = 0; k < V; k++) {
				dt_st1(a.x, a.t, at + 2 * (pair + k), lo[k]);
				dt_st1(a.x, a.t, at + 2 * (pair + k) + 1, hi[k]);
			}
		}
	}
}

int dt_cuda_rope(struct dt_dev *dev, struct dt_tensor qkv, const struct dt_rope *p, const int32_t *pos,
		 bool inverse)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const struct args a = {qkv.data,
			       qkv.dtype,
			       dt_rows(qkv),
			       dt_cols(qkv),
			       p->rot_heads,
			       p->head_dim,
			       p->rot_dim / 2,
			       p->positions,
			       p->pairing == DT_ROPE_HALF,
			       p->cos,
			       p->sin,
			       pos,
			       inverse ? -1.f : 1.f,
			       c ? c->bad : NULL};
	const int64_t n = a.rows * a.heads * a.half;

	if (!c)
		return -ENODEV;
	if (a.apart && a.half % 8 == 0 && a.dim % 8 == 0 && dt_by_8(a.width, a.x, a.cos, a.sin))
		return DT_LAUNCH(c, rope_kernel<8>, dt_blocks(c, n / 8, 256), 256, 0, a);
	return DT_LAUNCH(c, rope_kernel<1>, dt_blocks(c, n, 256), 256, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
