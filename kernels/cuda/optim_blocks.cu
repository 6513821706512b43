/*
 * AdamW with moments in 8-bit blocks (blocks8.h): one thread block per block of values, one value per thread.
 * The map of codes is a launch argument; a code is found by binary search among the midpoints.
 */
#include "kernels/cuda/optim.h"

extern "C" {
#include "kernels/blocks8.h"
}

#define B     DT_STATE_BLOCK
#define PARTS 24

struct blocks8 {
	float beta1, beta2, eps, grad_scale, m_unbias, v_unbias;
	int n;		/* parts */
	int64_t blocks; /* blocks of values of all parts */
	float map[2][256];
	struct dt_step_part part[PARTS]; /* s1: scales of m followed by its codes, s2 likewise of v */
};
static_assert(sizeof(struct blocks8) <= DT_LAUNCH_BYTES, "");

/* Scales of m (k 0) or v (k 1), and their codes. */
DT_DEVICE float *scales(const struct dt_step_part &q, int k)
{
	return (float *)(k == 0 ? q.s1 : q.s2);
}

DT_DEVICE uint8_t *codes(const struct dt_step_part &q, int k)
{
	return (uint8_t *)(scales(q, k) + (q.n + B - 1) / B);
}

DT_DEVICE float decoded(const struct dt_step_part &q, const float *map, int k, int64_t i)
{
	dt_touch(codes(q, k) + i, 1);
	return map[k * 256 + codes(q, k)[i]] * dt_ld1(scales(q, k), DT_F32, i / B);
}

/* The block's first value of largest magnitude; ignores NaN. s: 24 floats. */
DT_DEVICE float largest(float x, float *s)
{
	const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
	float high = dt_warp_max(x > 0 ? x : 0), low = -dt_warp_max(x < 0 ? -x : 0), first = B * 2;

	__syncthreads(); /* the previous contents have been read */
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
	if (x == high || x == low) /* both signs occur: the one with the smallest index wins */
		first = (float)(2 * (int)threadIdx.x + (x < 0));
	first = -dt_warp_max(-first);
	if (lane == 0)
		s[16 + warp] = first;
	__syncthreads();
	for (int w = 0; w < B / 32; w++)
		first = s[16 + w] < first ? s[16 + w] : first;
	return (int)first % 2 ? low : high;
}

DT_DEVICE void encode(const struct dt_step_part &q, const float *map, int k, int64_t i, float x, float most)
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
	if (i < q.n) {
		dt_touch(codes(q, k) + i, 1);
		codes(q, k)[i] = (uint8_t)low;
	}
	if (i % B == 0)
		dt_st1(scales(q, k), DT_F32, i / B, inverse != 0 ? most : 0);
}

__global__ void __launch_bounds__(B) optim_blocks_kernel(struct blocks8 o)
{
	float *map = (float *)dt_shared(), *s = map + 512;

	for (int i = (int)threadIdx.x; i < 512; i += B)
		map[i] = o.map[i / 256][i % 256];
	__syncthreads();
	for (int64_t c = blockIdx.x; c < o.blocks; c += gridDim.x) {
		const struct dt_step_part q = o.part[dt_part_of(o.part, o.n, c)];
		const int64_t i = (c - q.first) * B + threadIdx.x;
		float x[2] = {0, 0};

		if (i < q.n) {
			const float d = dt_ld1(q.g, q.tg, i) * o.grad_scale;
			float p = dt_ld1(q.p, DT_F32, i);

			x[0] = o.beta1 * decoded(q, map, 0, i) + (1.f - o.beta1) * d;
			x[1] = o.beta2 * decoded(q, map, 1, i) + (1.f - o.beta2) * d * d;
			p -= q.lr * (x[0] * o.m_unbias / (sqrtf(x[1] * o.v_unbias) + o.eps) + q.decay * p);
			dt_st1(q.p, DT_F32, i, p);
			if (q.copy)
				dt_st1(q.copy, q.tcopy, i, p);
		}
		for (int k = 0; k < 2; k++)
			encode(q, map, k, i, x[k], largest(x[k], s));
	}
}

int dt_cuda_optim_blocks(const struct dt_cuda *c, const struct dt_optim *o, const struct dt_optim_parts *l)
{
	const struct dt_optim_factors f = dt_optim_factors(o);
	struct blocks8 b = {};
	int rc = 0;

	for (int k = 0; k < 2; k++)
		memcpy(b.map[k], dt_blocks8_map(k == 0), sizeof b.map[k]);
	b.beta1 = o->beta1;
	b.beta2 = o->beta2;
	b.eps = o->eps;
	b.grad_scale = o->grad_scale;
	b.m_unbias = f.m_unbias;
	b.v_unbias = f.v_unbias;
	for (int at = 0; at < l->n && rc == 0;) {
		b.n = dt_take_parts(l, &at, PARTS, B, 2, b.part, &b.blocks);
		if (b.n)
			rc = DT_LAUNCH(c, optim_blocks_kernel, dt_blocks(c, b.blocks, 1), B, (512 + 24) * 4,
				       b);
	}
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
