/*
 * Backward without atomics, so that the same call gives the same bits: one kernel per tile of keys for dk and
 * dv, which also sums over the q heads that share them, and one per tile of queries for dq. Both compute
 * scores and do . v: 7 products instead of 5. Tiles are copied during the products of the previous tile; with
 * wide heads, which hold one buffer, during those of the first of two tiles.
 */
#ifndef DT_KERNELS_CUDA_ATTENTION_MMA_BACKWARD_H
#define DT_KERNELS_CUDA_ATTENTION_MMA_BACKWARD_H

#include "kernels/cuda/attention_mma.h"

/* Buffers for tiles of the other side: two if the shared memory does not cost a resident block. */
template <int D> constexpr int dt_attn_buffers = D <= 64 ? 2 : 1;

/* Shared memory of a backward kernel; known: bytes of per-query statistics. */
static inline size_t dt_attn_room(int64_t d, size_t known)
{
	const size_t two = d <= 64 ? 2 : 1;

	return (2 + 2 * two) * dt_attn_tile_bytes(d) + two * DT_TILE * known;
}

/* Copies rows of q or k, and rows as wide as values, into tiles, as two groups of async copies. */
template <int D, class A>
DT_DEVICE void dt_attn_bring(uint16_t *x, const uint16_t *from, int64_t width, uint16_t *y,
			     const uint16_t *other, int64_t other_width, struct dt_attn_rows in, const A &a)
{
	dt_attn_load<D>(x, from, width, in, a.d, a.fast);
	dt_cp_commit();
	dt_attn_load<D>(y, other, other_width, in, a.v, a.fast);
	dt_cp_commit();
}

/* The queries and their statistics in step i of a block of keys: the tiles of one head after another. */
struct dt_attn_queries {
	uint16_t *q, *g;
	float *lse, *dot;
	struct dt_attn_range *seen;
	int64_t h, q0;
};

template <int D, class A, class B>
DT_DEVICE struct dt_attn_queries dt_attn_queries_of(const A &a, const B &k, uint16_t *tiles, int i, int each)
{
	constexpr int two = dt_attn_buffers<D>;
	const int room = DT_TILE * (D + 8), which = i % two;
	float *stats = (float *)(tiles + two * 2 * room);
	const int64_t group = a.heads / a.kv_heads;

	return {tiles + which * 2 * room,
		tiles + (which * 2 + 1) * room,
		stats + which * 2 * DT_TILE,
		stats + (which * 2 + 1) * DT_TILE,
		(struct dt_attn_range *)(stats + two * 2 * DT_TILE) + which * DT_TILE,
		blockIdx.y * group + i / each,
		k.first + i % each * DT_TILE};
}

template <int D, class A, class B>
DT_DEVICE void dt_attn_bring_queries(const A &a, const B &k, const struct dt_attn_queries &w, int64_t b)
{
	dt_attn_bring<D>(w.q, (const uint16_t *)a.qkv + b * a.seq * a.width + w.h * a.d, a.width, w.g,
			 (const uint16_t *)a.dout + (b * a.seq * a.heads + w.h) * a.v, a.heads * a.v,
			 {w.q0, dt_attn_last(a, k)}, a);
	if (threadIdx.x < DT_TILE) {
		const int64_t i = w.q0 + threadIdx.x, at = (b * a.heads + w.h) * a.seq + i;
		const bool in = i < dt_attn_last(a, k);

		w.lse[threadIdx.x] = in ? a.lse[at] * DT_LOG2E : 0;
		w.dot[threadIdx.x] = in ? a.dot[at] : 0;
		dt_attn_meet(w.seen + threadIdx.x, a, k, i);
	}
}

/* Waits for the queries of step i; starts copying the next ones if there are two buffers. */
template <int D, class A, class B>
DT_DEVICE void dt_attn_wait_queries(const A &a, const B &k, uint16_t *tiles, int i, int steps, int each,
				    int64_t b)
{
	constexpr int two = dt_attn_buffers<D>;

	if (i || two == 1)
		__syncthreads(); /* the previous tiles are no longer used */
	if (i + two - 1 < steps) {
		dt_attn_bring_queries<D>(a, k, dt_attn_queries_of<D>(a, k, tiles, i + two - 1, each), b);
	} else {
		dt_cp_commit();
		dt_cp_commit();
	}
	dt_cp_wait<two == 2 ? 2 : 1>();
	__syncthreads();
}

/*
 * dk and dv of a 128-wide head take 128 of 255 registers. Scores and their gradients for a whole tile of
 * queries would take 64 more, beside fragments and addresses, so they are computed for half a tile at a time.
 */
template <class T, int D, class A> DT_DEVICE void dt_attn_dkv_tile(const A &a)
{
	constexpr int SOME = D > 64 ? 4 : 8; /* queries at a time, in eights */
	const int room = DT_TILE * (D + 8);
	uint16_t *k = (uint16_t *)dt_shared(), *v = k + room, *tiles = v + room;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, col = lane % 4 * 2;
	const int64_t kv = blockIdx.y, b = dt_attn_sequence(a), width = dt_attn_kv_width(a);
	const auto block = dt_attn_block_of(a);
	const int64_t key = block.key + warp * 16 + lane / 4;
	const int each = (int)((block.end - block.first + DT_TILE - 1) / DT_TILE),
		  steps = each * (int)(a.heads / a.kv_heads);
	float s[SOME][4], dp[SOME][4], dk[D / 8][4], dv[D / 8][4];

	if (!dt_attn_any(block) && dt_attn_dk(a, b, kv).add)
		return;
	dt_zero(dk);
	dt_zero(dv);
	if (dt_attn_any(block)) {
		dt_attn_load<D>(k, dt_attn_k(a, b, kv), width, block.rows, a.d, a.fast);
		dt_attn_load<D>(v, dt_attn_v(a, b, kv), width, block.rows, a.v, a.fast);
		if (dt_attn_buffers<D> == 2)
			dt_attn_bring_queries<D>(a, block, dt_attn_queries_of<D>(a, block, tiles, 0, each),
						 b);
	}
	for (int i = 0; i < steps; i++) {
		const struct dt_attn_queries w = dt_attn_queries_of<D>(a, block, tiles, i, each);
		const bool edge = dt_attn_edge(a, block, w.q0);

		dt_attn_wait_queries<D>(a, block, tiles, i, steps, each, b);
		DT_UNROLL_BY(1)
		for (int first = 0; first < DT_TILE; first += SOME * 8) {
			const uint16_t *q = w.q + first * (D + 8), *g = w.g + first * (D + 8);

			dt_attn_scores<T, D>(s, k, warp * 16, q);
			if (dt_attn_buffers<D> == 1 && first == 0) {
				dt_cp_wait<0>(); /* g has been copied meanwhile */
				__syncthreads();
			}
			dt_attn_scores<T, D>(dp, v, warp * 16, g);
			DT_UNROLL
			for (int n = 0; n < SOME; n++)
				DT_UNROLL
			for (int e = 0; e < 4; e++) {
				const int j = first + n * 8 + col + e % 2;

				dt_attn_slope(
					a, s[n][e], dp[n][e], w.lse[j], w.dot[j],
					!edge || dt_attn_met(w.seen, a, block, w.q0, j, key + e / 2 * 8));
			}
			dt_attn_gather<T, D>(dv, s, g);
			dt_attn_gather<T, D>(dk, dp, q);
		}
	}
	__syncthreads();
	/* Only this warp reads its rows of k. */
	uint16_t *tile = k + warp * 16 * (D + 8);
	const struct dt_attn_rows in = {block.rows.row + warp * 16, block.rows.end};
	const float scale[2] = {a.scale, a.scale}, one[2] = {1, 1};

	dt_attn_give<T, D>(dt_attn_dk(a, b, kv), tile, dk, scale, in, a.d, a.fast);
	dt_attn_give<T, D>(dt_attn_dv(a, b, kv), tile, dv, one, in, a.v, a.fast);
}

/* Waits for the keys and values of the tile in k and v, except v if there is one buffer only. */
template <int D, class A, class W>
DT_DEVICE void dt_attn_wait_keys(const A &a, uint16_t *tiles, int which, const uint16_t *keys,
				 const uint16_t *values, const W &at, const W &next, bool first)
{
	constexpr bool two = dt_attn_buffers<D> == 2;
	const int room = DT_TILE * (D + 8);
	const int64_t width = dt_attn_kv_width(a);

	if (!first || !two)
		__syncthreads(); /* the previous tiles are no longer used */
	if (!two || dt_attn_more(next)) {
		uint16_t *to = tiles + (two ? 1 - which : 0) * 2 * room;

		dt_attn_bring<D>(to, keys, width, to + room, values, width,
				 dt_attn_rows_of(a, two ? next : at), a);
	} else {
		dt_cp_commit();
		dt_cp_commit();
	}
	dt_cp_wait<two ? 2 : 1>();
	__syncthreads();
}

template <class T, int D, class A> DT_DEVICE void dt_attn_dq_tile(const A &a)
{
	constexpr bool two = dt_attn_buffers<D> == 2;
	const int room = DT_TILE * (D + 8);
	uint16_t *q = (uint16_t *)dt_shared(), *g = q + room, *tiles = g + room;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, col = lane % 4 * 2;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = dt_attn_sequence(a);
	const int64_t q0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * DT_TILE, query = q0 + warp * 16 + lane / 4;
	const uint16_t *keys = dt_attn_k(a, b, kv), *values = dt_attn_v(a, b, kv);
	const int64_t width = dt_attn_kv_width(a);
	auto at = dt_attn_walk_of(a, b, q0);
	float s[8][4], dp[8][4], dq[D / 8][4], lse[2], dot[2];

	if (!dt_attn_any(at) && dt_attn_dq(a, b, h).add)
		return;
	dt_zero(dq);
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		const int64_t at = (b * a.heads + h) * a.seq + query + 8 * i;

		lse[i] = query + 8 * i < a.seq ? a.lse[at] * DT_LOG2E : 0;
		dot[i] = query + 8 * i < a.seq ? a.dot[at] : 0;
	}
	if (dt_attn_any(at)) {
		dt_attn_load<D>(q, (const uint16_t *)a.qkv + b * a.seq * a.width + h * a.d, a.width,
				{q0, a.seq}, a.d, a.fast);
		dt_attn_load<D>(g, (const uint16_t *)a.dout + (b * a.seq * a.heads + h) * a.v, a.heads * a.v,
				{q0, a.seq}, a.v, a.fast);
		if (two)
			dt_attn_bring<D>(tiles, keys, width, tiles + room, values, width,
					 dt_attn_rows_of(a, at), a);
	}
	for (int i = 0; dt_attn_more(at); i++) {
		const bool edge = dt_attn_edge(a, at);
		const int which = two ? i % 2 : 0;
		uint16_t *k = tiles + which * 2 * room, *v = k + room;
		auto next = at;

		dt_attn_step(a, next);
		dt_attn_wait_keys<D>(a, tiles, which, keys, values, at, next, i == 0);
		dt_attn_scores<T, D>(s, q, warp * 16, k);
		if (!two) {
			dt_cp_wait<0>(); /* v has been copied meanwhile */
			__syncthreads();
		}
		dt_attn_scores<T, D>(dp, g, warp * 16, v);
		DT_UNROLL
		for (int e = 0; e < 2; e++) {
			struct dt_attn_range seen = {0, 0};

			if (edge)
				seen = dt_attn_keys_seen(a, at, query + 8 * e);
			DT_UNROLL
			for (int n = 0; n < 16; n++)
				dt_attn_slope(a, s[n / 2][2 * e + n % 2], dp[n / 2][2 * e + n % 2], lse[e],
					      dot[e], !edge || dt_attn_in(seen, n / 2 * 8 + col + n % 2));
		}
		dt_attn_gather<T, D>(dq, dp, k);
		at = next;
	}
	__syncthreads();
	const float scale[2] = {a.scale, a.scale};

	dt_attn_give<T, D>(dt_attn_dq(a, b, h), q + warp * 16 * (D + 8), dq, scale, {q0 + warp * 16, a.seq},
			   a.d, a.fast);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
