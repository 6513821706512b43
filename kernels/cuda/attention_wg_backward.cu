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

/* Queries and what is known of them, of step i of a tile of keys: tiles of one head after another. */
struct wg_step {
	int64_t h, q0;
};

DT_DEVICE struct wg_step step_of(const struct dt_attn_args &a, int64_t i, int64_t k0, int64_t each)
{
	return {(int64_t)blockIdx.y * (a.heads / a.kv_heads) + i / each, k0 + i % each * TILE};
}

template <int D>
DT_DEVICE void bring_queries(const struct dt_attn_args &a, struct wg_tiles to, float *stats, struct wg_step w)
{
	const int64_t b = blockIdx.z;

	dt_wg_load<D>(to.x, (const uint16_t *)a.qkv + b * a.seq * a.width + w.h * a.d, a.width, w.q0, a.seq,
		      a.d);
	dt_wg_load<D>(to.y, (const uint16_t *)a.dout + (b * a.seq * a.heads + w.h) * a.v, a.heads * a.v, w.q0,
		      a.seq, a.v);
	dt_cp_commit();
	if (threadIdx.x < TILE) {
		const int64_t i = w.q0 + threadIdx.x, at = (b * a.heads + w.h) * a.seq + i;

		stats[threadIdx.x] = i < a.seq ? dt_at(a.lse, at) * DT_LOG2E : 0;
		stats[TILE + threadIdx.x] = i < a.seq ? dt_at(a.dot, at) : 0;
	}
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, 1) wg_dkv_kernel(struct dt_attn_args a)
{
	uint16_t *room = (uint16_t *)dt_wg_shared(), *tiles = room + 2 * DT_WG_ROWS * D;
	float *stats = (float *)(tiles + 4 * TILE * D);
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, col = lane % 4 * 2;
	const int64_t kv = blockIdx.y, b = blockIdx.z,
		      k0 = (int64_t)blockIdx.x * DT_WG_ROWS; /* the longest first */
	const int64_t own = k0 + dt_wg_group() * 64, key = k0 + warp * 16 + lane / 4;
	const uint16_t *rows = (const uint16_t *)a.qkv + b * a.seq * a.width;
	const int64_t kcol = dt_attn_keys(a, kv), vcol = dt_attn_values(a, kv), last = k0 + DT_WG_ROWS - 1;
	const int64_t end = a.window && last + a.window < a.seq ? last + a.window : a.seq;
	const int64_t each = (end - k0 + TILE - 1) / TILE, steps = each * (a.heads / a.kv_heads);
	float s[TILE / 8][4], dp[TILE / 8][4], dk[D / 8][4], dv[D / 8][4];
	uint32_t p[TILE / 16][4], ds[TILE / 16][4];
	struct dt_wg_side<D> k = {{room}, {}}, v = {
		{room + DT_WG_ROWS * D},
		{
		}
	};

	DT_UNROLL
	for (int i = 0; i < D / 2; i++)
		dk[i / 4][i % 4] = dv[i / 4][i % 4] = 0;
	dt_wg_load<D>(k.t, rows + kcol, a.width, k0, a.seq, a.d);
	dt_wg_load<D>(v.t, rows + vcol, a.width, k0, a.seq, a.v);
	bring_queries<D>(a, tiles_of<D>(tiles, 0), stats, step_of(a, 0, k0, each));
	for (int64_t i = 0; i < steps; i++) {
		const struct wg_step w = step_of(a, i, k0, each);
		const struct wg_tiles at = tiles_of<D>(tiles, (int)(i % 2));
		const float *lse = stats + i % 2 * 2 * TILE, *dot = lse + TILE;

		dt_cp_wait<0>();
		dt_wg_written();
		__syncthreads(); /* these queries are there, those before them have been used */
		if (i + 1 < steps)
			bring_queries<D>(a, tiles_of<D>(tiles, (int)((i + 1) % 2)),
					 stats + (i + 1) % 2 * 2 * TILE, step_of(a, i + 1, k0, each));
		if (i == 0) {
			dt_wg_side_read(k);
			dt_wg_side_read(v);
		}
		if (w.q0 + TILE <= own || own >= a.seq || (a.window && w.q0 - own - 63 >= a.window))
			continue; /* the warpgroup's keys are seen by none of them */
		const struct dt_attn_range in[2] = {dt_attn_seen_by(a, key, w.q0),
						    dt_attn_seen_by(a, key + 8, w.q0)};

		dt_wg_begin();
		dt_wg_side_scores<T>(s, k, at.x);
		dt_wg_commit();
		dt_wg_side_scores<T>(dp, v, at.y);
		dt_wg_commit();
		dt_wg_wait<1>();
		DT_UNROLL
		for (int n = 0; n < TILE / 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++) {
			const int j = n * 8 + col + e % 2;

			s[n][e] = dt_attn_weight(a, s[n][e], lse[j], dt_attn_in(in[e / 2], j));
		}
		dt_wg_round<T>(p, s);
		dt_wg_wait<0>();
		dt_wg_begin();
		dt_wg_gather<T>(dv, p, at.y);
		dt_wg_commit();
		DT_UNROLL
		for (int n = 0; n < TILE / 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++)
			dp[n][e] = s[n][e] * (dp[n][e] - dot[n * 8 + col + e % 2]);
		dt_wg_round<T>(ds, dp);
		dt_wg_begin();
		dt_wg_gather<T>(dk, ds, at.x);
		dt_wg_commit();
		dt_wg_wait<0>();
	}
	__syncthreads();
	/* Keys and values have been used: their place is the results'. */
	uint16_t *out = (uint16_t *)a.out + b * a.seq * a.width, *place = tiles + warp * 16 * (D + 8);

	dt_attn_store<T, D>(out + kcol, a.width, place, dk, a.scale, a.scale, k0 + warp * 16, a.seq, a.d,
			    true);
	dt_attn_store<T, D>(out + vcol, a.width, place, dv, 1, 1, k0 + warp * 16, a.seq, a.v, true);
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, 1) wg_dq_kernel(struct dt_attn_args a)
{
	uint16_t *room = (uint16_t *)dt_wg_shared(), *tiles = room + 2 * DT_WG_ROWS * D;
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, col = lane % 4 * 2;
	const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads), b = blockIdx.z;
	const int64_t q0 = (int64_t)(gridDim.x - 1 - blockIdx.x) * DT_WG_ROWS;
	const int64_t own = q0 + dt_wg_group() * 64, query = q0 + warp * 16 + lane / 4;
	const uint16_t *rows = (const uint16_t *)a.qkv + b * a.seq * a.width;
	const uint16_t *keys = rows + dt_attn_keys(a, kv), *values = rows + dt_attn_values(a, kv);
	const int64_t first = a.window && q0 >= a.window ? (q0 - a.window + 1) / TILE * TILE : 0;
	const int steps = (int)((dt_min64(q0 + DT_WG_ROWS, a.seq) - 1 - first) / TILE) + 1;
	const int mine = own < a.seq ? (int)((dt_min64(own + 64, a.seq) - 1 - first) / TILE) + 1 : 0;
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
		const int64_t at = (b * a.heads + h) * a.seq + query + 8 * i;

		lse[i] = query + 8 * i < a.seq ? dt_at(a.lse, at) * DT_LOG2E : 0;
		dot[i] = query + 8 * i < a.seq ? dt_at(a.dot, at) : 0;
	}
	dt_wg_load<D>(q.t, rows + h * a.d, a.width, q0, a.seq, a.d);
	dt_wg_load<D>(g.t, (const uint16_t *)a.dout + (b * a.seq * a.heads + h) * a.v, a.heads * a.v, q0,
		      a.seq, a.v);
	const auto bring = [&](int j) {
		const struct wg_tiles to = tiles_of<D>(tiles, j & 1);

		dt_wg_load<D>(to.x, keys, a.width, first + (int64_t)j * TILE, a.seq, a.d);
		dt_wg_load<D>(to.y, values, a.width, first + (int64_t)j * TILE, a.seq, a.v);
		dt_cp_commit();
	};
	/* Tile j is there behind this, and what was before it has been used. */
	const auto turn = [&](int j) {
		dt_cp_wait<0>();
		dt_wg_written();
		__syncthreads();
		if (j + 1 < steps)
			bring(j + 1);
	};

	bring(0);
	for (int j = 0; j < steps; j++) {
		const int64_t key = first + (int64_t)j * TILE;
		const struct wg_tiles at = tiles_of<D>(tiles, j & 1);
		const struct dt_attn_range in[2] = {dt_attn_keys_seen(a, query, key),
						    dt_attn_keys_seen(a, query + 8, key)};

		turn(j);
		if (j == 0) {
			dt_wg_side_read(q);
			dt_wg_side_read(g);
		}
		if (j >= mine)
			continue;
		dt_wg_begin();
		dt_wg_side_scores<T>(s, q, at.x);
		dt_wg_commit();
		dt_wg_side_scores<T>(dp, g, at.y);
		dt_wg_commit();
		dt_wg_wait<1>();
		DT_UNROLL
		for (int n = 0; n < TILE / 8; n++)
			DT_UNROLL
		for (int e = 0; e < 4; e++)
			s[n][e] = dt_attn_weight(a, s[n][e], lse[e / 2],
						 dt_attn_in(in[e / 2], n * 8 + col + e % 2));
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
	dt_attn_store<T, D>((uint16_t *)a.out + b * a.seq * a.width + h * a.d, a.width,
			    tiles + warp * 16 * (D + 8), dq, a.scale, a.scale, q0 + warp * 16, a.seq, a.d,
			    true);
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
