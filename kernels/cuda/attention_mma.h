/*
 * Attention by tiles of 64 queries and 64 keys; backward is in attention_mma_backward.h. The products are the
 * same for whole sequences (dt_attn_args, below) and for spans (dt_span_args of attention_span.h). Each of
 * the two defines:
 *   dt_attn_k, _v              a head of the keys, of the values; dt_attn_kv_width: their row stride
 *   dt_attn_walk_of            iterates over the tiles of keys for a block of queries;
 *                              dt_attn_keys_seen: the keys of a tile that a query sees
 *   dt_attn_block_of           the keys of a block, and the queries that see them
 *   dt_attn_o, _dq, _dk, _dv   where results go
 */
#ifndef DT_KERNELS_CUDA_ATTENTION_MMA_H
#define DT_KERNELS_CUDA_ATTENTION_MMA_H

#include "kernels/cuda/attention.h"

/* Destination of a head's rows: 16-bit, or f32, which is overwritten or added to. */
struct dt_attn_to {
	void *to;
	int64_t at, width; /* offset of the first element; row stride */
	bool f32, add;
};

/* ---- whole sequences ---- */

DT_DEVICE const uint16_t *dt_attn_k(const struct dt_attn_args &a, int64_t b, int64_t kv)
{
	return (const uint16_t *)a.qkv + b * a.seq * a.width + dt_attn_keys(a, kv);
}

DT_DEVICE const uint16_t *dt_attn_v(const struct dt_attn_args &a, int64_t b, int64_t kv)
{
	return (const uint16_t *)a.qkv + b * a.seq * a.width + dt_attn_values(a, kv);
}

DT_DEVICE int64_t dt_attn_kv_width(const struct dt_attn_args &a)
{
	return a.width;
}

struct dt_attn_walk {
	int64_t key, q0; /* first key of the tile, first query of the block */
};

DT_DEVICE struct dt_attn_walk dt_attn_walk_of(const struct dt_attn_args &a, int64_t b, int64_t q0)
{
	(void)b;
	return {a.window && q0 >= a.window ? (q0 - a.window + 1) / DT_TILE * DT_TILE : 0, q0};
}

DT_DEVICE bool dt_attn_more(const struct dt_attn_walk &w)
{
	return w.key <= w.q0;
}

DT_DEVICE void dt_attn_step(const struct dt_attn_args &a, struct dt_attn_walk &w)
{
	(void)a;
	w.key += DT_TILE;
}

/* Whether there is a first tile. */
DT_DEVICE bool dt_attn_any(const struct dt_attn_walk &w)
{
	(void)w;
	return true;
}

/* Whether some query of the block does not see some key of the tile (masking is needed). */
DT_DEVICE bool dt_attn_edge(const struct dt_attn_args &a, const struct dt_attn_walk &w)
{
	return w.key + DT_TILE > w.q0 || (a.window && w.q0 + DT_TILE - w.key > a.window);
}

DT_DEVICE struct dt_attn_rows dt_attn_rows_of(const struct dt_attn_args &a, const struct dt_attn_walk &w)
{
	return {w.key, a.seq};
}

DT_DEVICE struct dt_attn_range dt_attn_keys_seen(const struct dt_attn_args &a, const struct dt_attn_walk &w,
						 int64_t query)
{
	return dt_attn_keys_seen(a, query, w.key);
}

struct dt_attn_block {
	int64_t key;		  /* the first key */
	struct dt_attn_rows rows; /* rows of the keys in their matrix */
	int64_t first, end;	  /* range of queries */
};

DT_DEVICE struct dt_attn_block dt_attn_block_of(const struct dt_attn_args &a)
{
	const int64_t k0 = (int64_t)blockIdx.x * DT_TILE; /* longest first */

	return {k0,
		{k0, a.seq},
		k0,
		a.window && k0 + DT_TILE - 1 + a.window < a.seq ? k0 + DT_TILE - 1 + a.window : a.seq};
}

/* Whether any query sees any of the keys. */
DT_DEVICE bool dt_attn_any(const struct dt_attn_block &k)
{
	(void)k;
	return true;
}

/* Whether some query of the tile from q0 on does not see some key of the block (masking is needed). */
DT_DEVICE bool dt_attn_edge(const struct dt_attn_args &a, const struct dt_attn_block &k, int64_t q0)
{
	return q0 < k.key + DT_TILE || q0 + DT_TILE > a.seq || (a.window && q0 + DT_TILE - k.key > a.window);
}

/* End of the query rows that a tile may read. */
DT_DEVICE int64_t dt_attn_last(const struct dt_attn_args &a, const struct dt_attn_block &k)
{
	(void)k;
	return a.seq;
}

/* Prepares dt_attn_met: stores which keys of the block a query sees. */
DT_DEVICE void dt_attn_meet(struct dt_attn_range *seen, const struct dt_attn_args &a,
			    const struct dt_attn_block &k, int64_t query)
{
	(void)seen, (void)a, (void)k, (void)query;
}

/* Whether query q0 + j sees this key. */
DT_DEVICE bool dt_attn_met(const struct dt_attn_range *seen, const struct dt_attn_args &a,
			   const struct dt_attn_block &k, int64_t q0, int j, int64_t key)
{
	(void)seen, (void)k;
	return dt_sees(a, q0 + j, key);
}

DT_DEVICE struct dt_attn_to dt_attn_o(const struct dt_attn_args &a, int64_t b, int64_t h)
{
	return {a.out, b * a.seq * a.heads * a.v + h * a.v, a.heads * a.v, false, false};
}

DT_DEVICE struct dt_attn_to dt_attn_dq(const struct dt_attn_args &a, int64_t b, int64_t h)
{
	return {a.out, b * a.seq * a.width + h * a.d, a.width, false, false};
}

DT_DEVICE struct dt_attn_to dt_attn_dk(const struct dt_attn_args &a, int64_t b, int64_t kv)
{
	return {a.out, b * a.seq * a.width + dt_attn_keys(a, kv), a.width, false, false};
}

DT_DEVICE struct dt_attn_to dt_attn_dv(const struct dt_attn_args &a, int64_t b, int64_t kv)
{
	return {a.out, b * a.seq * a.width + dt_attn_values(a, kv), a.width, false, false};
}

/* ---- for whole sequences and spans ---- */

/* Like dt_attn_store for f32, directly from registers. */
template <int D>
DT_DEVICE void dt_attn_store_f32(const struct dt_attn_to &to, const float (&acc)[D / 8][4],
				 const float (&f)[2], struct dt_attn_rows in, int64_t d, bool fast)
{
	const int lane = (int)threadIdx.x % 32;

	DT_UNROLL
	for (int i = 0; i < D / 4; i++) {
		const int n = i / 2, e = i % 2 * 2, c = n * 8 + lane % 4 * 2;
		const int64_t row = in.row + lane / 4 + e * 4;
		float *at = (float *)to.to + to.at + row * to.width + c;
		float2 x = {acc[n][e] * f[e / 2], acc[n][e + 1] * f[e / 2]};

		if (row >= in.end || c >= d)
			continue;
		if (fast) {
			dt_touch(at, 8);
			if (to.add) {
				const float2 y = *(const float2 *)at;

				x.x += y.x;
				x.y += y.y;
			}
			*(float2 *)at = x;
			continue;
		}
		dt_st1(at, DT_F32, 0, to.add ? dt_ld1(at, DT_F32, 0) + x.x : x.x);
		if (c + 1 < d)
			dt_st1(at, DT_F32, 1, to.add ? dt_ld1(at, DT_F32, 1) + x.y : x.y);
	}
}

/* Stores a warp's 16 rows of D results, times their factors; tile: 16 rows no other warp still reads. */
template <class T, int D>
DT_DEVICE void dt_attn_give(const struct dt_attn_to &to, uint16_t *tile, const float (&acc)[D / 8][4],
			    const float (&f)[2], struct dt_attn_rows in, int64_t d, bool fast)
{
	if (to.f32)
		dt_attn_store_f32<D>(to, acc, f, in, d, fast);
	else
		dt_attn_store<T, D>((uint16_t *)to.to + to.at, to.width, tile, acc, f[0], f[1], in.row,
				    in.end, d, fast);
}

/* Reads q and writes o once; k and v are read once for every 64 queries that see them. */
template <class T, int D, class A> DT_DEVICE void dt_attn_forward_tile(const A &a)
{
	uint16_t *q = (uint16_t *)dt_shared(), *k = q + DT_TILE * (D + 8), *v = k + DT_TILE * (D + 8);
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = dt_attn_sequence(a);
	const int64_t q0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * DT_TILE; /* longest first */
	const int64_t query = q0 + warp * 16 + lane / 4, width = dt_attn_kv_width(a);
	const uint16_t *keys = dt_attn_k(a, b, kv), *values = dt_attn_v(a, b, kv);
	auto at = dt_attn_walk_of(a, b, q0);
	float s[8][4], o[D / 8][4], max[2] = {DT_NEGINF, DT_NEGINF}, sum[2] = {0, 0}, shrink[2];

	dt_zero(o);
	if (dt_attn_any(at)) {
		dt_attn_load<D>(q, (const uint16_t *)a.qkv + b * a.seq * a.width + h * a.d, a.width,
				{q0, a.seq}, a.d, a.fast);
		dt_attn_load<D>(k, keys, width, dt_attn_rows_of(a, at), a.d, a.fast);
	}
	dt_cp_commit();
	while (dt_attn_more(at)) {
		const bool edge = dt_attn_edge(a, at);
		const auto now = at;

		dt_cp_wait<0>();
		__syncthreads(); /* the keys have arrived; the previous values are no longer used */
		dt_attn_load<D>(v, values, width, dt_attn_rows_of(a, at), a.v, a.fast);
		dt_cp_commit();
		dt_attn_scores<T, D>(s, q, warp * 16, k);
		__syncthreads(); /* the keys are no longer used */
		dt_attn_step(a, at);
		if (dt_attn_more(at))
			dt_attn_load<D>(k, keys, width, dt_attn_rows_of(a, at), a.d, a.fast);
		dt_cp_commit();
		dt_attn_soften(s, shrink, max, sum, a, now, query, edge);
		dt_attn_shrink(o, shrink);
		dt_cp_wait<1>();
		__syncthreads(); /* the values have arrived */
		dt_attn_gather<T, D>(o, s, v);
	}
	dt_cp_wait<0>();
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		sum[i] = dt_quad_sum(sum[i]);
		if (lane % 4 == 0 && query + 8 * i < a.seq)
			a.lse[(b * a.heads + h) * a.seq + query + 8 * i] = max[i] / DT_LOG2E + logf(sum[i]);
		sum[i] = sum[i] == 0 ? 0 : 1 / sum[i]; /* a row that sees no key */
	}
	/* Only this warp reads these rows of q. */
	dt_attn_give<T, D>(dt_attn_o(a, b, h), q + warp * 16 * (D + 8), o, sum, {q0 + warp * 16, a.seq}, a.v,
			   a.fast);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
