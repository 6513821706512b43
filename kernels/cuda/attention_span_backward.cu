/* Backward of attention over spans of keys. */
#include "kernels/cuda/attention_mma_backward.h"
#include "kernels/cuda/attention_rows.h"
#include "kernels/cuda/attention_span.h"

template <class T, int D> __global__ void __launch_bounds__(128) span_dkv_kernel(struct dt_span_args a)
{
	dt_attn_dkv_tile<T, D>(a);
}

template <class T, int D> __global__ void __launch_bounds__(128) span_dq_kernel(struct dt_span_args a)
{
	dt_attn_dq_tile<T, D>(a);
}

DT_DEVICE void span_put(void *to, int t, int64_t at, float v, bool add)
{
	dt_st1(to, t, at, add ? dt_ld1(to, t, at) + v : v);
}

/* p and ds of one score, by the formulas of attention.h. */
DT_DEVICE float span_slope(const struct dt_span_args &a, float *p, float product, float dp, float lse,
			   float dot)
{
	float score = product * a.scale, cap = 1;

	if (a.cap > 0) {
		score = dt_softcap(score, a.cap);
		cap = 1.f - score / a.cap * (score / a.cap);
	}
	*p = expf(score - lse);
	return *p * (dp - dot) * cap;
}

/* One query per warp. */
__global__ void __launch_bounds__(128, 6) span_dq_rows_kernel(struct dt_span_args a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = dt_attn_sequence(a);
	const int64_t i = (int64_t)blockIdx.x * 4 + warp, row = b * a.seq + i;
	float *q = (float *)dt_shared() + warp * (2 * a.d + a.v), *dq = q + a.d, *g = dq + a.d;

	if (i >= a.seq)
		return;
	const struct dt_span_seen in = dt_span_seen(a, b, i);

	for (int64_t c = lane; c < a.d; c += 32) {
		q[c] = dt_ld1(a.qkv, a.t, row * a.width + h * a.d + c);
		dq[c] = 0;
	}
	for (int64_t c = lane; c < a.v; c += 32)
		g[c] = dt_ld1(a.dout, a.t, (row * a.heads + h) * a.v + c);
	__syncwarp();
	const int64_t stat = (b * a.heads + h) * a.seq + i;
	const float lse = dt_at(a.lse, stat), dot = dt_at(a.dot, stat);

	for (int r = 0; r < a.nrun; r++) {
		const struct dt_span_seen part = dt_span_part(a, in, r);

		for (int64_t p = part.from; p <= part.to; p += 32) {
			const int64_t key = dt_span_row(a, b, r, p);
			float ds = 0, prob;

			if (p + lane <= part.to)
				ds = span_slope(
					a, &prob,
					dt_dot_row(q, a.kv, a.t, dt_span_key(a, key + lane, kv), a.d),
					dt_dot_row(g, a.kv, a.t, dt_span_value(a, key + lane, kv), a.v), lse,
					dot);
			dt_add_rows(dq, ds, a.kv, a.t, dt_span_key(a, key, kv), a.kv_width, part.to - p + 1,
				    a.d);
		}
	}
	for (int64_t c = lane; c < a.d; c += 32)
		span_put(a.dq, a.dq_t, row * a.dq_width + h * a.d + c, dq[c] * a.scale, a.add);
}

/* One key of a key/value head per warp, against every query of the heads that share it. */
__global__ void __launch_bounds__(128, 6) span_dkv_rows_kernel(struct dt_span_args a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t kv = blockIdx.y, group = a.heads / a.kv_heads, b = dt_attn_sequence(a);
	const int64_t j = (int64_t)blockIdx.x * 4 + warp, r = j / a.run_keys;
	float *k = (float *)dt_shared() + warp * 2 * (a.d + a.v), *dk = k + a.d, *v = dk + a.d, *dv = v + a.v;
	int64_t key, pos;

	if (j >= a.nrun * a.run_keys)
		return;
	pos = a.run[r].pos + j % a.run_keys;
	key = dt_span_row(a, b, (int)r, pos);
	for (int64_t c = lane; c < a.d; c += 32) {
		k[c] = dt_ld1(a.kv, a.t, dt_span_key(a, key, kv) + c);
		dk[c] = 0;
	}
	for (int64_t c = lane; c < a.v; c += 32) {
		v[c] = dt_ld1(a.kv, a.t, dt_span_value(a, key, kv) + c);
		dv[c] = 0;
	}
	__syncwarp();
	for (int64_t h = kv * group; h < (kv + 1) * group; h++)
		for (int64_t i = 0; i < a.seq; i += 32) {
			const int64_t row = b * a.seq + i, stat = (b * a.heads + h) * a.seq + i + lane;
			const int64_t qat = row * a.width + h * a.d, gat = (row * a.heads + h) * a.v;
			struct dt_span_seen in = {1, 0};
			float ds = 0, prob = 0;

			if (i + lane < a.seq)
				in = dt_span_seen(a, b, i + lane);
			if (in.from <= pos && pos <= in.to)
				ds = span_slope(a, &prob,
						dt_dot_row(k, a.qkv, a.t, qat + lane * a.width, a.d),
						dt_dot_row(v, a.dout, a.t, gat + lane * a.heads * a.v, a.v),
						dt_at(a.lse, stat), dt_at(a.dot, stat));
			dt_add_rows(dk, ds, a.qkv, a.t, qat, a.width, a.seq - i, a.d);
			dt_add_rows(dv, prob, a.dout, a.t, gat, a.heads * a.v, a.seq - i, a.v);
		}
	for (int64_t c = lane; c < a.d; c += 32)
		span_put(a.dkv, a.dkv_t, dt_span_key(a, key, kv) + c, dk[c] * a.scale, a.add);
	for (int64_t c = lane; c < a.v; c += 32)
		span_put(a.dkv, a.dkv_t, dt_span_value(a, key, kv) + c, dv[c], a.add);
}

static int by_tiles(const struct dt_cuda *c, const struct dt_span_args &a, int64_t batch)
{
	const int64_t wide = dt_attn_wide(a), keys = a.nrun * dt_ceil_div(a.run_keys, DT_TILE);
	const size_t smem = dt_attn_room(wide, 2 * sizeof(float) + sizeof(struct dt_attn_range));
	void (*dkv)(struct dt_span_args) = DT_ATTN_PICK(span_dkv_kernel, a.t, wide);
	void (*dq)(struct dt_span_args) = DT_ATTN_PICK(span_dq_kernel, a.t, wide);
	int rc = dt_attn_launch(c, dkv, keys, a.kv_heads, batch, smem, a);

	return rc < 0 ? rc : dt_attn_launch(c, dq, dt_ceil_div(a.seq, DT_TILE), a.heads, batch, smem, a);
}

static int by_rows(const struct dt_cuda *c, const struct dt_span_args &a, int64_t batch)
{
	int rc = dt_attn_launch(c, span_dkv_rows_kernel, dt_ceil_div(a.nrun * a.run_keys, 4), a.kv_heads,
				batch, (size_t)(a.d + a.v) * 32, a);

	return rc < 0 ? rc
		      : dt_attn_launch(c, span_dq_rows_kernel, dt_ceil_div(a.seq, 4), a.heads, batch,
				       (size_t)(2 * a.d + a.v) * 16, a);
}

int dt_cuda_attention_span_backward(struct dt_dev *dev, struct dt_tensor dq, struct dt_tensor dkv,
				    struct dt_tensor dout, struct dt_tensor o, struct dt_tensor lse,
				    struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				    const struct dt_attn_span *s)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t stats = p->batch * s->rows * p->heads;
	struct dt_span_args a;
	int rc;

	if (!c)
		return -ENODEV;
	a = dt_span_args(p, s, q, kv, lse);
	a.dot = (float *)dt_cuda_scratch(dev, (size_t)stats * 4);
	if (!a.dot)
		return -ENOMEM;
	a.o = o.data;
	a.dout = dout.data;
	a.dq = dq.data;
	a.dkv = dkv.data;
	a.dq_t = dq.dtype;
	a.dq_width = dt_cols(dq);
	a.dkv_t = dkv.dtype;
	a.fast = a.fast && a.dq_width % 8 == 0 && dt_aligned(dout.data) && dt_aligned(dq.data) &&
		 dt_aligned(dkv.data);
	rc = dt_attn_dots(c, a, stats);
	if (rc < 0)
		return rc;
	return a.t == DT_F32 || dt_attn_wide(a) > 256 ? by_rows(c, a, p->batch) : by_tiles(c, a, p->batch);
}
/* SPDX-License-Identifier: Apache-2.0 */
