/*
 * Backward, in the two kernels of attention_backward.cu and for its reason: the same call has the same bits.
 * The exponents are computed while do . v is, and the slopes of scores while dv grows.
 */
#include "kernels/cuda/attention_wg.h"

#define TILE 64 /* of queries beside keys, of keys beside queries */

/* A tile of each of two matrices; there are two such places. */
struct wg_tiles {
	struct dt_wg_tile<TILE> x, y;
};

template <int D> DT_DEVICE struct wg_tiles tiles_of(uint16_t *tiles, int which)
{
	return {{tiles + which * 2 * TILE * D}, {tiles + (which * 2 + 1) * TILE * D}};
}

/* A tile of queries that step i of a block of keys is about: those of one head after another. */
struct wg_step {
	int h, q0;
};

/* 128 keys of a head, and the queries that see them. */
struct wg_keys {
	int kv, b, k0, own, key; /* as in dt_wg_queries */
	int each, steps;	 /* tiles of a head of queries; of all heads of the group */
};

DT_DEVICE struct wg_keys wg_keys(const struct dt_attn_args &a)
{
	const int k0 = (int)blockIdx.x * DT_WG_ROWS, last = k0 + DT_WG_ROWS - 1; /* the longest first */
	const int seq = (int)a.seq, window = (int)a.window;
	const int each = ((window && last + window < seq ? last + window : seq) - k0 + TILE - 1) / TILE;

	return {(int)blockIdx.y,
		(int)blockIdx.z,
		k0,
		k0 + dt_wg_group() * 64,
		k0 + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4,
		each,
		each * (int)(a.heads / a.kv_heads)};
}

/* Queries and the gradients of what came of them, of a head; and where it is in lse and dot. */
template <int D> struct wg_head {
	struct dt_wg_reader<D> q, g;
};

template <int D>
DT_DEVICE void bring_queries(const struct dt_attn_args &a, const struct wg_head<D> &from, struct wg_tiles to,
			     float *stats, struct wg_step w)
{
	struct wg_head<D> head = from;

	head.q.from += w.h * a.d;
	head.g.from += w.h * a.v;
	dt_wg_load(to.x, head.q, w.q0);
	dt_wg_load(to.y, head.g, w.q0);
	dt_cp_commit();
	if (threadIdx.x < TILE) {
		const int i = w.q0 + (int)threadIdx.x;
		const int64_t at = (blockIdx.z * a.heads + w.h) * a.seq + i;

		stats[threadIdx.x] = i < a.seq ? dt_at(a.lse, at) * DT_LOG2E : 0;
		stats[TILE + threadIdx.x] = i < a.seq ? dt_at(a.dot, at) : 0;
	}
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, 1) wg_dkv_kernel(struct dt_attn_args a)
{
	uint16_t *room = (uint16_t *)dt_wg_shared(), *tiles = room + 2 * DT_WG_ROWS * D;
	float *stats = (float *)(tiles + 4 * TILE * D);
	const struct wg_keys w = wg_keys(a);
	const int col = (int)threadIdx.x % 4 * 2, row = (int)threadIdx.x / 32 * 16;
	const int64_t kcol = dt_attn_keys(a, w.kv), vcol = dt_attn_values(a, w.kv);
	const struct wg_head<D> from = {
		dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, 0), a.width, a.seq, a.d),
			dt_wg_reads<D>(dt_wg_from(a, a.dout, a.heads *a.v, w.b, 0), a.heads *a.v, a.seq, a.v)
	};
	const float unit = a.scale * DT_LOG2E;
	float s[TILE / 8][4], dp[TILE / 8][4], dk[D / 8][4], dv[D / 8][4];
	uint32_t p[TILE / 16][4], ds[TILE / 16][4];
	struct dt_wg_side<D> k = {{room}, {}}, v = {
		{room + DT_WG_ROWS * D},
		{
		}
	};

	/* Head and first query of step i. */
	const auto step_of = [&](int i) -> struct wg_step {
		const int head = i / w.each;

		return {w.kv * (int)(a.heads / a.kv_heads) + head, w.k0 + (i - head * w.each) * TILE};
	};
	const auto bring = [&](int i) {
		bring_queries(a, from, tiles_of<D>(tiles, i & 1), stats + (i & 1) * 2 * TILE, step_of(i));
	};

	DT_UNROLL
	for (int i = 0; i < D / 2; i++)
		dk[i / 4][i % 4] = dv[i / 4][i % 4] = 0;
	dt_wg_load(k.t, dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, kcol), a.width, a.seq, a.d), w.k0);
	dt_wg_load(v.t, dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, vcol), a.width, a.seq, a.v), w.k0);
	bring(0);
	for (int i = 0; i < w.steps; i++) {
		const int q0 = step_of(i).q0;
		const struct wg_tiles at = tiles_of<D>(tiles, i & 1);
		const float *lse = stats + (i & 1) * 2 * TILE + col, *dot = lse + TILE;

		dt_cp_wait<0>();
		dt_wg_written();
		__syncthreads(); /* these queries are there, those before them have been used */
		if (i + 1 < w.steps)
			bring(i + 1);
		if (i == 0) {
			dt_wg_side_read(k);
			dt_wg_side_read(v);
		}
		if (q0 + TILE <= w.own || w.own >= a.seq || (a.window && q0 - w.own - 63 >= a.window))
			continue; /* the warpgroup's keys are seen by none of them */
		dt_wg_begin();
		dt_wg_side_scores<T>(s, k, at.x);
		dt_wg_commit();
		dt_wg_side_scores<T>(dp, v, at.y);
		dt_wg_commit();
		dt_wg_wait<1>();
		if (q0 < w.own + 64 || q0 + TILE > a.seq || (a.window && q0 + TILE - w.own > a.window))
			dt_wg_mask(s, {dt_attn_seen_by(a, w.key, q0), dt_attn_seen_by(a, w.key + 8, q0)});
		DT_UNROLL
		for (int n = 0; n < TILE / 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++)
			s[n][e] = dt_exp2(fmaf(s[n][e], unit, -lse[n * 8 + e % 2]));
		dt_wg_round<T>(p, s);
		dt_wg_wait<0>();
		dt_wg_begin();
		dt_wg_gather<T>(dv, p, at.y);
		dt_wg_commit();
		DT_UNROLL
		for (int n = 0; n < TILE / 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++)
			dp[n][e] = s[n][e] * (dp[n][e] - dot[n * 8 + e % 2]);
		dt_wg_round<T>(ds, dp);
		dt_wg_begin();
		dt_wg_gather<T>(dk, ds, at.x);
		dt_wg_commit();
		dt_wg_wait<0>();
	}
	__syncthreads();
	/* Keys and values have been used: their place is the results'. */
	uint16_t *out = (uint16_t *)a.out + w.b * a.seq * a.width, *place = tiles + row * (D + 8);

	dt_attn_store<T, D>(out + kcol, a.width, place, dk, a.scale, a.scale, w.k0 + row, a.seq, a.d, true);
	dt_attn_store<T, D>(out + vcol, a.width, place, dv, 1, 1, w.k0 + row, a.seq, a.v, true);
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, 1) wg_dq_kernel(struct dt_attn_args a)
{
	uint16_t *room = (uint16_t *)dt_wg_shared(), *tiles = room + 2 * DT_WG_ROWS * D;
	const struct dt_wg_queries w = dt_wg_queries(a, TILE);
	const auto keys = dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, dt_attn_keys(a, w.kv)), a.width,
					 a.seq, a.d);
	const auto values = dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, dt_attn_values(a, w.kv)),
					   a.width, a.seq, a.v);
	const float unit = a.scale * DT_LOG2E;
	float s[TILE / 8][4], dp[TILE / 8][4], dq[D / 8][4], lse[2], dot[2];
	uint32_t ds[TILE / 16][4];
	struct dt_wg_side<D> q = {{room}, {}}, g = {
		{room + DT_WG_ROWS * D},
		{
		}
	};

	DT_UNROLL
	for (int i = 0; i < D / 2; i++)
		dq[i / 4][i % 4] = 0;
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		const int64_t at = (w.b * a.heads + w.h) * a.seq + w.query + 8 * i;

		lse[i] = w.query + 8 * i < a.seq ? dt_at(a.lse, at) * DT_LOG2E : 0;
		dot[i] = w.query + 8 * i < a.seq ? dt_at(a.dot, at) : 0;
	}
	dt_wg_load(q.t, dt_wg_reads<D>(dt_wg_from(a, a.qkv, a.width, w.b, w.h * a.d), a.width, a.seq, a.d),
		   w.q0);
	dt_wg_load(g.t,
		   dt_wg_reads<D>(dt_wg_from(a, a.dout, a.heads * a.v, w.b, w.h * a.v), a.heads * a.v, a.seq,
				  a.v),
		   w.q0);
	const auto bring = [&](int j) {
		const struct wg_tiles to = tiles_of<D>(tiles, j & 1);

		dt_wg_load(to.x, keys, w.first + j * TILE);
		dt_wg_load(to.y, values, w.first + j * TILE);
		dt_cp_commit();
	};
	/* Tile j is there behind this, and what was before it has been used. */
	const auto turn = [&](int j) {
		dt_cp_wait<0>();
		dt_wg_written();
		__syncthreads();
		if (j + 1 < w.tiles)
			bring(j + 1);
	};

	bring(0);
	for (int j = 0; j < w.tiles; j++) {
		const int key = w.first + j * TILE;
		const struct wg_tiles at = tiles_of<D>(tiles, j & 1);

		turn(j);
		if (j == 0) {
			dt_wg_side_read(q);
			dt_wg_side_read(g);
		}
		if (j >= w.mine)
			continue;
		dt_wg_begin();
		dt_wg_side_scores<T>(s, q, at.x);
		dt_wg_commit();
		dt_wg_side_scores<T>(dp, g, at.y);
		dt_wg_commit();
		dt_wg_wait<1>();
		if (dt_wg_edge(a, w, key, TILE))
			dt_wg_mask(s, {dt_attn_keys_seen(a, w.query, key),
				       dt_attn_keys_seen(a, w.query + 8, key)});
		DT_UNROLL
		for (int n = 0; n < TILE / 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++)
			s[n][e] = dt_exp2(fmaf(s[n][e], unit, -lse[e / 2]));
		dt_wg_wait<0>();
		DT_UNROLL
		for (int n = 0; n < TILE / 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++)
			dp[n][e] = s[n][e] * (dp[n][e] - dot[e / 2]);
		dt_wg_round<T>(ds, dp);
		dt_wg_begin();
		dt_wg_gather<T>(dq, ds, at.x);
		dt_wg_commit();
		dt_wg_wait<0>();
	}
	__syncthreads();
	const int row = (int)threadIdx.x / 32 * 16;

	dt_attn_store<T, D>((uint16_t *)a.out + w.b * a.seq * a.width + w.h * a.d, a.width,
			    tiles + row * (D + 8), dq, a.scale, a.scale, w.q0 + row, a.seq, a.d, true);
}

int dt_attn_wg_backward(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t batch)
{
	const int64_t wide = dt_attn_wide(a), d = wide <= 64 ? 64 : 128;
	const unsigned tiles = (unsigned)dt_ceil_div(a.seq, DT_WG_ROWS);
	const size_t room =
		1024 + (size_t)(2 * DT_WG_ROWS + 4 * TILE) * (size_t)d * 2 + 4 * TILE * sizeof(float);
	int rc;

	if (!dt_attn_wg(c, a))
		return -ENOTSUP;
	rc = DT_LAUNCH(c, DT_WG_PICK(wg_dkv_kernel, a.t, wide),
		       dim3(tiles, (unsigned)a.kv_heads, (unsigned)batch), DT_WG_THREADS, room, a);
	return rc < 0 ? rc
		      : DT_LAUNCH(c, DT_WG_PICK(wg_dq_kernel, a.t, wide),
				  dim3(tiles, (unsigned)a.heads, (unsigned)batch), DT_WG_THREADS, room, a);
}
/* SPDX-License-Identifier: Apache-2.0 */
