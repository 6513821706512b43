/*
 * AdamW with moments in blocks of 8 bits (blocks8.h): a block of threads has a block of values, one each. The
 * map of codes comes with the launch; a code is looked for by halving, among the middles of neighbours.
 */
#include "kernels/cuda/optim_blocks.h"

extern "C" {
#include "kernels/blocks8.h"
}

#define B DT_STATE_BLOCK

struct blocks8 {
	void *copy;
	float *p;
	const void *g;
	float *scale[2]; /* of m, and of v */
	uint8_t *code[2];
	int tcopy, tg;
	int64_t n;
	float lr, beta1, beta2, eps, grad_scale, decay, m_unbias, v_unbias;
	float map[2][256];
};

DT_DEVICE float decoded(const struct blocks8 &o, const float *map, int k, int64_t i)
{
	dt_touch(o.code[k] + i, 1);
	return map[k * 256 + o.code[k][i]] * dt_ld1(o.scale[k], DT_F32, i / B);
}

/* Of the block: the first value of the largest magnitude; NaN is none. s: 24 floats. */
DT_DEVICE float largest(float x, float *s)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float high = dt_warp_max(x > 0 ? x : 0), low = -dt_warp_max(x < 0 ? -x : 0), first = B * 2;

	__syncthreads(); /* what was there before has been read */
	if (lane == 0) {
		s[warp] = high;
		s[8 + warp] = low;
	}
	__syncthreads();
	for (int w = 0; w < B / 32; w++) {
		high = s[w] > high ? s[w] : high;
		low = s[8 + w] < low ? s[8 + w] : low;
	}
	if (high != -low || high == 0)
		return high > -low ? high : low;
	if (x == high || x == low) /* both are there: whose number is the smallest */
		first = (float)(2 * (int)threadIdx.x + (x < 0));
	first = -dt_warp_max(-first);
	if (lane == 0)
		s[16 + warp] = first;
	__syncthreads();
	for (int w = 0; w < B / 32; w++)
		first = s[16 + w] < first ? s[16 + w] : first;
	return (int)first % 2 ? low : high;
}

DT_DEVICE void encode(const struct blocks8 &o, const float *map, int k, int64_t i, float x, float most)
{
	const float inverse = fabsf(most) > 1e-37f ? 1 / most : 0, share = x * inverse;
	int low = 0, high = 255;

	while (low < high) {
		const int mid = (low + high) / 2;

		if (share > 0.5f * (map[k * 256 + mid] + map[k * 256 + mid + 1]))
			low = mid + 1;
		else
			high = mid;
	}
	if (i < o.n) {
		dt_touch(o.code[k] + i, 1);
		o.code[k][i] = (uint8_t)low;
	}
	if (i % B == 0)
		dt_st1(o.scale[k], DT_F32, i / B, inverse != 0 ? most : 0);
}

__global__ void __launch_bounds__(B) optim_blocks_kernel(struct blocks8 o)
{
	float *map = (float *)dt_shared(), *s = map + 512;

	for (int i = (int)threadIdx.x; i < 512; i += B)
		map[i] = o.map[i / 256][i % 256];
	__syncthreads();
	for (int64_t first = (int64_t)blockIdx.x * B; first < o.n; first += (int64_t)gridDim.x * B) {
		const int64_t i = first + threadIdx.x;
		float x[2] = {0, 0};

		if (i < o.n) {
			const float d = dt_ld1(o.g, o.tg, i) * o.grad_scale;
			float p = dt_ld1(o.p, DT_F32, i);

			x[0] = o.beta1 * decoded(o, map, 0, i) + (1.f - o.beta1) * d;
			x[1] = o.beta2 * decoded(o, map, 1, i) + (1.f - o.beta2) * d * d;
			p -= o.lr * (x[0] * o.m_unbias / (sqrtf(x[1] * o.v_unbias) + o.eps) + o.decay * p);
			dt_st1(o.p, DT_F32, i, p);
			if (o.copy)
				dt_st1(o.copy, o.tcopy, i, p);
		}
		for (int k = 0; k < 2; k++)
			encode(o, map, k, i, x[k], largest(x[k], s));
	}
}

int dt_cuda_optim_blocks(const struct dt_cuda *c, const struct dt_optim *o, struct dt_tensor copy,
			 struct dt_tensor p, struct dt_tensor g, struct dt_tensor s1, struct dt_tensor s2)
{
	const struct dt_optim_factors f = dt_optim_factors(o);
	const int64_t n = dt_numel(p), blocks = dt_ceil_div(n, B);
	struct blocks8 b = {};

	b.copy = copy.data;
	b.p = (float *)p.data;
	b.g = g.data;
	b.scale[0] = (float *)s1.data;
	b.scale[1] = (float *)s2.data;
	for (int k = 0; k < 2; k++) {
		b.code[k] = (uint8_t *)(b.scale[k] + blocks);
		memcpy(b.map[k], dt_blocks8_map(k == 0), sizeof b.map[k]);
	}
	b.tcopy = copy.dtype;
	b.tg = g.dtype;
	b.n = n;
	b.lr = o->lr;
	b.beta1 = o->beta1;
	b.beta2 = o->beta2;
	b.eps = o->eps;
	b.grad_scale = o->grad_scale;
	b.decay = o->weight_decay;
	b.m_unbias = f.m_unbias;
	b.v_unbias = f.v_unbias;
	return DT_LAUNCH(c, optim_blocks_kernel, dt_blocks(c, n, B), B, (512 + 24) * 4, b);
}
/* SPDX-License-Identifier: Apache-2.0 */
