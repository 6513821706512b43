/*
 * Attention over spans of keys, and the merge of its parts: a warp has a row, for every type. Documents and
 * context parallelism on a card are right by this, not yet fast: the tiles of attention.cu are for whole
 * sequences.
 */
#include "kernels/cuda/attention_rows.h"

#define DT_NEGINF (-INFINITY)

struct span_args {
	const void *q, *kv, *o, *dout;
	void *out, *dq, *dkv;
	float *lse;
	const int32_t *pos, *first;
	int t, out_t, dq_t, dkv_t, nrun;
	bool add;
	int64_t rows, heads, kv_heads, d, v, window, q_width, dq_width, kv_width, run_keys, stride, k_col,
		v_col;
	float scale, cap;
	struct dt_attn_run run[DT_ATTN_RUNS];
};

static struct span_args span_args(const struct dt_attn *p, const struct dt_attn_span *s, struct dt_tensor q,
				  struct dt_tensor kv, struct dt_tensor lse)
{
	struct span_args a = {};

	a.q = q.data;
	a.kv = kv.data;
	a.lse = (float *)lse.data;
	a.pos = s->pos;
	a.first = s->first;
	a.t = q.dtype;
	a.nrun = s->nrun;
	a.add = s->add;
	a.rows = s->rows;
	a.heads = p->heads;
	a.kv_heads = p->kv_heads;
	a.d = p->head_dim;
	a.v = dt_attn_value_dim(p);
	a.window = p->window > 0 ? p->window : 0;
	a.q_width = dt_cols(q);
	a.kv_width = dt_cols(kv);
	a.run_keys = s->run_keys;
	a.stride = s->stride;
	a.k_col = s->k_col;
	a.v_col = s->v_col;
	a.scale = p->scale;
	a.cap = p->softcap;
	for (int i = 0; i < s->nrun; i++)
		a.run[i] = s->run[i];
	return a;
}

/* Where a head of the keys, of the values of a row of kv begins. */
DT_DEVICE int64_t key_at(const struct span_args &a, int64_t row, int64_t kv)
{
	return row * a.kv_width + a.k_col + kv * a.d;
}

DT_DEVICE int64_t value_at(const struct span_args &a, int64_t row, int64_t kv)
{
	return row * a.kv_width + a.v_col + kv * a.v;
}

/* The positions that query i of sequence b sees: from .. to. */
DT_DEVICE void seen(const struct span_args &a, int64_t b, int64_t i, int64_t *from, int64_t *to)
{
	const int64_t at = b * a.rows + i;

	*to = a.pos ? dt_at(a.pos, at) : i;
	*from = a.first ? dt_at(a.first, at) : 0;
	if (a.window && *to - a.window + 1 > *from)
		*from = *to - a.window + 1;
}

DT_DEVICE void span_put(void *to, int t, int64_t at, float v, bool add)
{
	dt_st1(to, t, at, add ? dt_ld1(to, t, at) + v : v);
}

__global__ void __launch_bounds__(128, 6) span_forward_kernel(struct span_args a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = blockIdx.z;
	const int64_t i = (int64_t)blockIdx.x * 4 + warp, row = b * a.rows + i;
	float *q = (float *)dt_shared() + warp * (a.d + a.v), *o = q + a.d, max = DT_NEGINF, sum = 0;
	int64_t from, to;

	if (i >= a.rows)
		return;
	seen(a, b, i, &from, &to);
	for (int64_t c = lane; c < a.d; c += 32)
		q[c] = dt_ld1(a.q, a.t, row * a.q_width + h * a.d + c);
	for (int64_t c = lane; c < a.v; c += 32)
		o[c] = 0;
	__syncwarp();
	for (int r = 0; r < a.nrun; r++) {
		const int64_t p0 = a.run[r].pos > from ? a.run[r].pos : from,
			      p1 = a.run[r].pos + a.run_keys - 1 < to ? a.run[r].pos + a.run_keys - 1 : to;

		for (int64_t p = p0; p <= p1; p += 32) {
			const int64_t key = a.run[r].row + b * a.stride + p - a.run[r].pos;
			float s = DT_NEGINF, top, shrink;

			if (p + lane <= p1) {
				s = dt_dot_row(q, a.kv, a.t, key_at(a, key + lane, kv), a.d) * a.scale;
				s = a.cap > 0 ? dt_softcap(s, a.cap) : s;
			}
			top = dt_warp_max(s > max ? s : max);
			shrink = expf(max - top);
			max = top;
			s = expf(s - top);
			sum = sum * shrink + dt_warp_sum(s);
			for (int64_t c = lane; c < a.v; c += 32)
				o[c] *= shrink;
			dt_add_rows(o, s, a.kv, a.t, value_at(a, key, kv), a.kv_width, p1 - p + 1, a.v);
		}
	}
	for (int64_t c = lane; c < a.v; c += 32)
		dt_st1(a.out, a.out_t, (row * a.heads + h) * a.v + c, sum > 0 ? o[c] / sum : 0);
	if (lane == 0)
		a.lse[(b * a.heads + h) * a.rows + i] = sum > 0 ? max + logf(sum) : DT_NEGINF;
}

/* p and ds of one score, as in the contract. */
DT_DEVICE float span_slope(const struct span_args &a, float *p, float product, float dp, float lse, float dot)
{
	float score = product * a.scale, cap = 1;

	if (a.cap > 0) {
		score = dt_softcap(score, a.cap);
		cap = 1.f - score / a.cap * (score / a.cap);
	}
	*p = expf(score - lse);
	return *p * (dp - dot) * cap;
}

/* do . o of a row of a head, by all lanes of a warp. */
DT_DEVICE float span_row_dot(const struct span_args &a, int64_t row, int64_t h)
{
	float s = 0;

	for (int64_t c = threadIdx.x % 32; c < a.v; c += 32)
		s += dt_ld1(a.dout, a.t, (row * a.heads + h) * a.v + c) *
		     dt_ld1(a.o, a.t, (row * a.heads + h) * a.v + c);
	return dt_warp_sum(s);
}

__global__ void __launch_bounds__(128, 6) span_dq_kernel(struct span_args a)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = blockIdx.z;
	const int64_t i = (int64_t)blockIdx.x * 4 + warp, row = b * a.rows + i;
	float *q = (float *)dt_shared() + warp * (2 * a.d + a.v), *dq = q + a.d, *g = dq + a.d, dot, lse;
	int64_t from, to;

	if (i >= a.rows)
		return;
	seen(a, b, i, &from, &to);
	for (int64_t c = lane; c < a.d; c += 32) {
		q[c] = dt_ld1(a.q, a.t, row * a.q_width + h * a.d + c);
		dq[c] = 0;
	}
	for (int64_t c = lane; c < a.v; c += 32)
		g[c] = dt_ld1(a.dout, a.t, (row * a.heads + h) * a.v + c);
	__syncwarp();
	dot = span_row_dot(a, row, h);
	lse = dt_at(a.lse, (b * a.heads + h) * a.rows + i);
	for (int r = 0; r < a.nrun; r++) {
		const int64_t p0 = a.run[r].pos > from ? a.run[r].pos : from,
			      p1 = a.run[r].pos + a.run_keys - 1 < to ? a.run[r].pos + a.run_keys - 1 : to;

		for (int64_t p = p0; p <= p1; p += 32) {
			const int64_t key = a.run[r].row + b * a.stride + p - a.run[r].pos;
			float ds = 0, prob;

			if (p + lane <= p1)
				ds = span_slope(
					a, &prob, dt_dot_row(q, a.kv, a.t, key_at(a, key + lane, kv), a.d),
					dt_dot_row(g, a.kv, a.t, value_at(a, key + lane, kv), a.v), lse, dot);
			dt_add_rows(dq, ds, a.kv, a.t, key_at(a, key, kv), a.kv_width, p1 - p + 1, a.d);
		}
	}
	for (int64_t c = lane; c < a.d; c += 32)
		span_put(a.dq, a.dq_t, row * a.dq_width + h * a.d + c, dq[c] * a.scale, a.add);
}

/* A warp has a key of a key/value head, against every query of the heads that share it. */
__global__ void __launch_bounds__(128, 6) span_dkv_kernel(struct span_args a, float *dots)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t kv = blockIdx.y, group = a.heads / a.kv_heads, b = blockIdx.z;
	const int64_t j = (int64_t)blockIdx.x * 4 + warp, r = j / a.run_keys;
	float *k = (float *)dt_shared() + warp * 2 * (a.d + a.v), *dk = k + a.d, *v = dk + a.d, *dv = v + a.v;
	int64_t key, pos;

	if (j >= a.nrun * a.run_keys)
		return;
	pos = a.run[r].pos + j % a.run_keys;
	key = a.run[r].row + b * a.stride + j % a.run_keys;
	for (int64_t c = lane; c < a.d; c += 32) {
		k[c] = dt_ld1(a.kv, a.t, key_at(a, key, kv) + c);
		dk[c] = 0;
	}
	for (int64_t c = lane; c < a.v; c += 32) {
		v[c] = dt_ld1(a.kv, a.t, value_at(a, key, kv) + c);
		dv[c] = 0;
	}
	__syncwarp();
	for (int64_t h = kv * group; h < (kv + 1) * group; h++)
		for (int64_t i = 0; i < a.rows; i += 32) {
			const int64_t row = b * a.rows + i, stat = (b * a.heads + h) * a.rows + i + lane;
			const int64_t qat = row * a.q_width + h * a.d, gat = (row * a.heads + h) * a.v;
			int64_t from = 1, to = 0;
			float ds = 0, prob = 0;

			if (i + lane < a.rows)
				seen(a, b, i + lane, &from, &to);
			if (from <= pos && pos <= to)
				ds = span_slope(a, &prob,
						dt_dot_row(k, a.q, a.t, qat + lane * a.q_width, a.d),
						dt_dot_row(v, a.dout, a.t, gat + lane * a.heads * a.v, a.v),
						dt_at(a.lse, stat), dt_at(dots, stat));
			dt_add_rows(dk, ds, a.q, a.t, qat, a.q_width, a.rows - i, a.d);
			dt_add_rows(dv, prob, a.dout, a.t, gat, a.heads * a.v, a.rows - i, a.v);
		}
	for (int64_t c = lane; c < a.d; c += 32)
		span_put(a.dkv, a.dkv_t, key_at(a, key, kv) + c, dk[c] * a.scale, a.add);
	for (int64_t c = lane; c < a.v; c += 32)
		span_put(a.dkv, a.dkv_t, value_at(a, key, kv) + c, dv[c], a.add);
}

__global__ void __launch_bounds__(128) span_dots_kernel(struct span_args a, float *dots, int64_t n)
{
	const int64_t i = (int64_t)blockIdx.x * 4 + threadIdx.x / 32, row = i / a.heads, h = i % a.heads;
	float s;

	if (i >= n)
		return;
	s = span_row_dot(a, row, h);
	if (threadIdx.x % 32 == 0)
		dots[(row / a.rows * a.heads + h) * a.rows + row % a.rows] = s;
}

int dt_cuda_attention_span_forward(struct dt_dev *dev, struct dt_tensor o, struct dt_tensor lse,
				   struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				   const struct dt_attn_span *s)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	struct span_args a;

	if (!c)
		return -ENODEV;
	a = span_args(p, s, q, kv, lse);
	a.out = o.data;
	a.out_t = o.dtype;
	return DT_LAUNCH(c, span_forward_kernel,
			 dim3((unsigned)dt_ceil_div(a.rows, 4), (unsigned)a.heads, (unsigned)p->batch), 128,
			 (size_t)(a.d + a.v) * 16, a);
}

int dt_cuda_attention_span_backward(struct dt_dev *dev, struct dt_tensor dq, struct dt_tensor dkv,
				    struct dt_tensor dout, struct dt_tensor o, struct dt_tensor lse,
				    struct dt_tensor q, struct dt_tensor kv, const struct dt_attn *p,
				    const struct dt_attn_span *s)
{
	const struct dt_cuda *c = dt_cuda_enter(dev);
	const int64_t stats = p->batch * s->rows * p->heads;
	struct span_args a;
	float *dots;
	int rc;

	if (!c)
		return -ENODEV;
	dots = (float *)dt_cuda_scratch(dev, (size_t)stats * 4);
	if (!dots)
		return -ENOMEM;
	a = span_args(p, s, q, kv, lse);
	a.o = o.data;
	a.dout = dout.data;
	a.dq = dq.data;
	a.dkv = dkv.data;
	a.dq_t = dq.dtype;
	a.dq_width = dt_cols(dq);
	a.dkv_t = dkv.dtype;
	const unsigned batch = (unsigned)p->batch;

	rc = DT_LAUNCH(c, span_dots_kernel, (unsigned)dt_ceil_div(stats, 4), 128, 0, a, dots, stats);
	if (rc == 0)
		rc = DT_LAUNCH(
			c, span_dkv_kernel,
			dim3((unsigned)dt_ceil_div(a.nrun * a.run_keys, 4), (unsigned)a.kv_heads, batch), 128,
			(size_t)(a.d + a.v) * 32, a, dots);
	if (rc == 0)
		rc = DT_LAUNCH(c, span_dq_kernel,
			       dim3((unsigned)dt_ceil_div(a.rows, 4), (unsigned)a.heads, batch), 128,
			       (size_t)(2 * a.d + a.v) * 16, a);
	return rc;
}

/* A thread has a row of a head. */
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
