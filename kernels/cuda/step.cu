/*
 * The heads of step.h: one head of a row per warp, eight columns per lane. Norm, rotation and cache write
 * read and write each column once.
 */
#include "kernels/cuda/kernel.h"
#include "kernels/int8.h"
#include "kernels/step.h"

#define MOST 256 /* maximum columns of a head */

struct heads {
	void *x, *k, *v;
	int t, tc;
	int64_t rows, width, heads, kv_heads, d;
	const int64_t *slot;
	const void *wq, *wk; /* NULL: no norm */
	int tw;
	bool plus_one;
	float eps;
	int64_t half, positions; /* half 0: no rotation */
	bool apart;		 /* the elements of a pair are `half` apart, else adjacent */
	const float *cos, *sin;
	const int32_t *pos;
	int32_t *bad;
};

/* Like norm.h's kernel, which sums a row of up to 256 columns in one warp. */
DT_DEVICE void norm(float (&r)[8], const struct heads &a, const void *w, int64_t at)
{
	float s = 0, u[8] = {}, rstd;

	for (int k = 0; k < 8; k++)
		s += r[k] * r[k];
	s = dt_warp_sum(s);
	rstd = 1.f / sqrtf(s / (float)a.d + a.eps);
	if (at < a.d)
		dt_ld<8>(u, w, a.tw, at);
	for (int k = 0; k < 8; k++)
		r[k] = dt_rounded(r[k] * rstd * (a.plus_one ? u[k] + 1.f : u[k]), a.t);
}

/* Like rope.cu. */
DT_DEVICE void rotate(float (&r)[8], const struct heads &a, int64_t pos, int64_t at)
{
	const int lane = (int)threadIdx.x % 32, away = a.apart ? (int)(a.half / 8) : 0;
	const bool low = at < a.half;
	float c[8] = {}, s[8] = {};

	if (!a.apart) {
		for (int k = 0; k < 4 && at / 2 + k < a.half; k++) {
			const float u = r[2 * k], v = r[2 * k + 1],
				    cs = dt_ld1(a.cos, DT_F32, pos * a.half + at / 2 + k),
				    sn = dt_ld1(a.sin, DT_F32, pos * a.half + at / 2 + k);

			r[2 * k] = dt_rounded(u * cs - v * sn, a.t);
			r[2 * k + 1] = dt_rounded(u * sn + v * cs, a.t);
		}
		return;
	}
	if (at < 2 * a.half) {
		dt_ld<8>(c, a.cos, DT_F32, pos * a.half + at % a.half);
		dt_ld<8>(s, a.sin, DT_F32, pos * a.half + at % a.half);
	}
	for (int k = 0; k < 8; k++) {
		const float other = __shfl_sync(DT_ALL, r[k], (low ? lane + away : lane - away) & 31);
		const float u = low ? r[k] : other, v = low ? other : r[k];
		const float lo = u * c[k] - v * s[k], hi = u * s[k] + v * c[k];

		if (at < 2 * a.half)
			r[k] = dt_rounded(low ? lo : hi, a.t);
	}
}

/* Like kv_write.cu. */
DT_DEVICE void keep(const float (&r)[8], const struct heads &a, bool value, int64_t head, int64_t to,
		    int64_t at)
{
	void *cache = value ? a.v : a.k;
	float scale, inverse;
	uint32_t max = 0;

	if (a.tc != DT_I8) {
		if (to >= 0 && at < a.d)
			dt_st<8>(cache, a.tc, (to * a.kv_heads + head) * a.d + at, r);
		return;
	}
	int8_t *out = (int8_t *)cache + (to * a.kv_heads + head) * (a.d + 4);

	for (int k = 0; k < 8; k++)
		max = dt_magnitude(r[k]) > max ? dt_magnitude(r[k]) : max;
	dt_int8_scale(dt_warp_largest(max, 32), &scale, &inverse);
	for (int k = 0; k < 8 && to >= 0 && at < a.d; k++) {
		dt_touch(out + at + k, 1);
		out[at + k] = inverse != 0 ? (int8_t)rintf(r[k] * inverse) : 0;
	}
	if (at == 0 && to >= 0) {
		for (int k = 0; k < 4; k++)
			dt_touch(out + a.d + k, 1);
		memcpy(out + a.d, &scale, 4);
	}
}

__global__ void __launch_bounds__(256) heads_kernel(struct heads a)
{
	const uint32_t all = (uint32_t)(a.heads + 2 * a.kv_heads), n = (uint32_t)a.rows * all;
	const int64_t at = threadIdx.x % 32 * 8;

	dt_let_next();
	for (uint32_t i = blockIdx.x * 8 + threadIdx.x / 32; i < n; i += gridDim.x * 8) {
		const int64_t row = i / all, h = i % all, from = row * a.width + h * a.d + at;
		const bool value = h >= a.heads + a.kv_heads, key = h >= a.heads && !value;
		/* On the critical path of a step: issues all three loads before the first is used. */
		const int64_t pos = a.half ? a.pos[row] : 0, slot = key || value ? a.slot[row] : 0;
		float r[8] = {};

		dt_wait_before();
		if (at < a.d)
			dt_ld<8>(r, a.x, a.t, from);
		if (a.half && (pos < 0 || pos >= a.positions)) {
			*a.bad = 1;
			continue;
		}
		if (!value && a.wq)
			norm(r, a, key ? a.wk : a.wq, at);
		if (!value && a.half)
			rotate(r, a, pos, at);
		if (!value && at < a.d)
			dt_st<8>(a.x, a.t, from, r);
		if (key || value)
			keep(r, a, value, h - a.heads - (value ? a.kv_heads : 0), slot, at);
	}
}

int dt_cuda_step_heads(struct dt_dev *dev, struct dt_tensor kcache, struct dt_tensor vcache,
		       struct dt_tensor qkv, const struct dt_attn *p, const int64_t *slot,
		       const struct dt_rope *rope, const int32_t *pos, struct dt_tensor wq,
		       struct dt_tensor wk, bool plus_one, float eps)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t rows = dt_rows(qkv);
	struct dt_table t = {slot, (size_t)rows * sizeof *slot, NULL};
	struct heads a = {};
	int rc;

	if (!c)
		return -ENODEV;
	a.x = qkv.data;
	a.k = kcache.data;
	a.v = vcache.data;
	a.t = qkv.dtype;
	a.tc = kcache.dtype;
	a.rows = rows;
	a.width = dt_cols(qkv);
	a.heads = p->heads;
	a.kv_heads = p->kv_heads;
	a.d = p->head_dim;
	a.wq = wq.data;
	a.wk = wk.data;
	a.tw = wq.dtype;
	a.plus_one = plus_one;
	a.eps = eps;
	a.bad = c->bad;
	if (rope) {
		a.half = rope->rot_dim / 2;
		a.positions = rope->positions;
		a.apart = rope->pairing == DT_ROPE_HALF;
		a.cos = rope->cos;
		a.sin = rope->sin;
		a.pos = pos;
	}
	if (p->value_dim || a.d > MOST || !dt_by_8(a.d, a.x, wq.data, wk.data) ||
	    (a.tc != DT_I8 && !dt_by_8(8, a.k, a.v)) ||
	    (rope && (rope->rot_heads != a.heads + a.kv_heads || rope->head_dim != a.d)) ||
	    (a.apart && !dt_by_8(a.half, a.cos, a.sin)))
		return -ENOTSUP;
	rc = dt_cuda_tables(dev, &t, 1);
	a.slot = (const int64_t *)t.ret;
	return rc < 0 ? rc
		      : DT_LAUNCH_EARLY(c, rows <= DT_FEW_ROWS, heads_kernel,
					dt_blocks(c, rows * (a.heads + 2 * a.kv_heads), 8), 256, 0, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
