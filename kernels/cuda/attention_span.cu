/* Attention over spans of keys: forward, and merging of partial results. */
#include "kernels/cuda/attention_rows.h"
#include "kernels/cuda/attention_span.h"

/* With 128-wide heads shared memory fits three blocks per SM: registers are limited to match. */
template <class T, int D>
__global__ void __launch_bounds__(128, D == 128 ? 3 : 1) span_tile_kernel(struct dt_span_args a)
{
	dt_attn_forward_tile<T, D>(a);
}

/* One row per warp. */
__global__ void __launch_bounds__(128, 6) span_rows_kernel(struct dt_span_args a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = dt_attn_sequence(a);
	const int64_t i = (int64_t)blockIdx.x * 4 + warp, row = b * a.seq + i;
	float *q = (float *)dt_shared() + warp * (a.d + a.v), *o = q + a.d, max = DT_NEGINF, sum = 0;

	if (i >= a.seq)
		return;
	const struct dt_span_seen in = dt_span_seen(a, b, i);

	for (int64_t c = lane; c < a.d; c += 32)
		q[c] = dt_ld1(a.qkv, a.t, row * a.width + h * a.d + c);
	for (int64_t c = lane; c < a.v; c += 32)
		o[c] = 0;
	__syncwarp();
	for (int r = 0; r < a.nrun; r++) {
		const struct dt_span_seen part = dt_span_part(a, in, r);

		for (int64_t p = part.from; p <= part.to; p += 32) {
			const int64_t key = dt_span_row(a, b, r, p);
			float s = DT_NEGINF, top, shrink;

			if (p + lane <= part.to) {
				s = dt_dot_row(q, a.kv, a.t, dt_span_key(a, key + lane, kv), a.d) * a.scale;
				s = a.cap > 0 ? dt_softcap(s, a.cap) : s;
			}
			top = dt_warp_max(s > max ? s : max);
			shrink = expf(max - top);
			max = top;
			s = expf(s - top);
			sum = sum * shrink + dt_warp_sum(s);
			for (int64_t c = lane; c < a.v; c += 32)
				o[c] *= shrink;
			dt_add_rows(o, s, a.kv, a.t, dt_span_value(a, key, kv), a.kv_width, part.to - p + 1,
				    a.v);
		}
	}
	for (int64_t c = lane; c < a.v; c += 32)
		dt_st1(a.out, a.out_t, (row * a.heads + h) * a.v + c, sum == 0 ? 0 : o[c] / sum);
	if (lane == 0)
		a.lse[(b * a.heads + h) * a.seq + i] = sum == 0 ? DT_NEGINF : max + logf(sum);
}

int dt_cuda_attention_span_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
				   struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				   const struct dt_attn_span *s)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct dt_span_args a;

	if (!c)
		return -ENODEV;
	a = dt_span_args(p, s, q, kv, lse);
	a.out = o.data;
	a.out_t = o.dtype;
	a.fast = a.fast && dt_aligned(o.data);
	void (*kernel)(struct dt_span_args) =
		a.t == DT_F32 ? NULL : DT_ATTN_PICK(span_tile_kernel, a.t, dt_attn_wide(a));

	if (kernel)
		return dt_attn_launch(c, kernel, dt_ceil_div(a.seq, DT_TILE), a.heads, p->batch,
				      3 * dt_attn_tile_bytes(dt_attn_wide(a)), a);
	return dt_attn_launch(c, span_rows_kernel, dt_ceil_div(a.seq, 4), a.heads, p->batch,
			      (size_t)(a.d + a.v) * 16, a);
}

/* One row of one head per thread. */
__global__ void __launch_bounds__(128)
	merge_kernel(float *o, float *lse, const float *part, const float *part_lse, int64_t rows,
		     int64_t heads, int64_t d, int64_t n)
{
	const int64_t i = (int64_t)blockIdx.x * 128 + threadIdx.x;
	const int64_t at = i < n ? ((i / rows / heads * rows + i % rows) * heads + i / rows % heads) * d : 0;
	float more, share;

	if (i >= n || part_lse[i] == DT_NEGINF)
		return;
	more = dt_at(part_lse, i) - dt_at(lse, i);
	share = 1 / (1 + expf(-more));
	for (int64_t c = 0; c < d; c++)
		o[at + c] += share * (part[at + c] - o[at + c]);
	lse[i] = more > 0 ? part_lse[i] + log1pf(expf(-more)) : lse[i] + log1pf(expf(more));
}

int dt_cuda_attention_merge(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
			    struct dt_tensor part, struct dt_tensor part_lse)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t n = dt_numel(lse);

	if (!c)
		return -ENODEV;
	return DT_LAUNCH(c, merge_kernel, (unsigned)dt_ceil_div(n, 128), 128, 0, (float *)o.data,
			 (float *)lse.data, (const float *)part.data, (const float *)part_lse.data,
			 lse.dim[2], lse.dim[1], dt_cols(o) / lse.dim[1], n);
}
/* SPDX-License-Identifier: Apache-2.0 */
