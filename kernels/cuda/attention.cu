/* Forward over whole sequences. */
#include "kernels/cuda/attention_mma.h"

template <class T, int D> __global__ void __launch_bounds__(128) forward_kernel(struct dt_attn_args a)
{
	dt_attn_forward_tile<T, D>(a);
}

/* One query per warp: lanes are keys for the scores, columns for the sum of values. */
__global__ void __launch_bounds__(128) forward_rows_kernel(struct dt_attn_args a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = dt_attn_sequence(a);
	const int64_t i = (int64_t)blockIdx.x * 4 + warp, row = b * a.seq + i;
	const int64_t kcol = dt_attn_keys(a, kv), vcol = dt_attn_values(a, kv);
	float *q = (float *)dt_shared() + warp * (a.d + a.v), *o = q + a.d, max = DT_NEGINF, sum = 0;

	if (i >= a.seq)
		return;
	for (int64_t c = lane; c < a.d; c += 32)
		q[c] = dt_ld1(a.qkv, a.t, row * a.width + h * a.d + c);
	for (int64_t c = lane; c < a.v; c += 32)
		o[c] = 0;
	__syncwarp();
	for (int64_t j = a.window && i >= a.window ? i - a.window + 1 : 0; j <= i; j += 32) {
		const int64_t key = j + lane, at = (b * a.seq + key) * a.width;
		float s = DT_NEGINF, top, shrink;

		if (key <= i) {
			s = 0;
			for (int64_t c = 0; c < a.d; c++)
				s += q[c] * dt_ld1(a.qkv, a.t, at + kcol + c);
			s = a.cap > 0 ? dt_softcap(s * a.scale, a.cap) : s * a.scale;
		}
		top = dt_warp_max(s > max ? s : max);
		shrink = expf(max - top);
		max = top;
		s = expf(s - top);
		sum = sum * shrink + dt_warp_sum(s);
		for (int64_t c = lane; c < dt_ceil_div(a.v, 32) * 32; c += 32) {
			float add = 0;

			for (int k = 0; k < 32; k++) {
				const float p = __shfl_sync(DT_ALL, s, k);

				if (j + k <= i && c < a.v)
					add += p *
					       dt_ld1(a.qkv, a.t, (b * a.seq + j + k) * a.width + vcol + c);
			}
			if (c < a.v)
				o[c] = o[c] * shrink + add;
		}
	}
	for (int64_t c = lane; c < a.v; c += 32)
		dt_st1(a.out, a.t, (row * a.heads + h) * a.v + c, o[c] / sum);
	if (lane == 0)
		a.lse[(b * a.heads + h) * a.seq + i] = max + logf(sum);
}

int dt_cuda_attention_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			      struct dt_tensor qkv, const struct dt_attn *p)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct dt_attn_args a;

	if (!c)
		return -ENODEV;
	a = dt_attn_args(p, qkv);
	a.out = o.data;
	a.lse = (float *)lse.data;
	a.fast = a.fast && dt_aligned(o.data);
	const int rc = dt_attn_wg_forward(c, a, p->batch);

	if (rc != -ENOTSUP)
		return rc;
	void (*kernel)(struct dt_attn_args) =
		a.t == DT_F32 ? NULL : DT_ATTN_PICK(forward_kernel, a.t, dt_attn_wide(a));

	if (kernel)
		return dt_attn_launch(c, kernel, dt_ceil_div(a.seq, DT_TILE), a.heads, p->batch,
				      3 * dt_attn_tile_bytes(dt_attn_wide(a)), a);
	return dt_attn_launch(c, forward_rows_kernel, dt_ceil_div(a.seq, 4), a.heads, p->batch,
			      (size_t)(a.d + a.v) * 16, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
