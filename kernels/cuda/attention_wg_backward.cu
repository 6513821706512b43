/*
 * Backward, as two kernels like attention_backward.cu and for the same reason: the same call gives the same
 * bits. Exponentials are computed during do . v, and gradients of scores while dv accumulates; the last
 * tile's accumulation still runs when the scores of the next tile are issued.
 *
 * Every product reads the fixed operand from shared memory. It cannot stay in registers: ptxas 13.0 reuses
 * the registers of a first operand read before the loop, if products are in flight at the loop's end.
 */
#include "kernels/cuda/attention_wg.h"

#define TILE  64 /* queries in the kernel for keys, keys in the kernel for queries */
#define SLOTS 4	 /* at least 3 */

/* Shared memory: 128 rows of two fixed matrices, and tiles of two streamed ones. Results reuse x. */
template <int D> struct room {
	uint16_t own[2][DT_WG_ROWS * D], x[SLOTS][TILE * D], y[SLOTS][TILE * D];
	float lse[DT_WG_THREADS / 32][TILE], dot[DT_WG_THREADS / 32][TILE]; /* of queries, per warp */
	struct dt_ring<SLOTS> tiles;
	uint64_t stays;
};

template <int D> DT_DEVICE struct dt_wg_tile<TILE> x_of(struct room<D> &r, int i) {
	return {r.x[i % SLOTS]};
}

template <int D>
DT_DEVICE struct dt_wg_tile<TILE> y_of(struct room<D> &r, int i) {
	return {r.y[i % SLOTS]};
}

/* Starts copying tile i: rows of x and of y, of one head. One thread. */
template <int D>
DT_DEVICE void bring(struct room<D> &r, int i, const struct dt_gpu_map &x, int xhead,
		     const struct dt_gpu_map &y, int yhead, int row, int b)
{
	uint64_t *there = &r.tiles.there[i % SLOTS];

	dt_mbar_expect(there, 2 * TILE * D * 2);
	dt_bring<D>(x_of(r, i), x, row, xhead, b, there);
	dt_bring<D>(y_of(r, i), y, row, yhead, b, there);
}

/* Initialises mbarriers and starts copying the fixed matrices. One thread. */
template <int D>
DT_DEVICE void bring_own(struct room<D> &r, const struct dt_gpu_map &x, int xhead, const struct dt_gpu_map &y,
			 int yhead, int row, int b)
{
	dt_ring_init(r.tiles);
	dt_mbar_init(&r.stays, 1);
	dt_wg_written();
	dt_mbar_expect(&r.stays, 2 * DT_WG_ROWS * D * 2);
	dt_bring<D>(dt_wg_tile<DT_WG_ROWS>{r.own[0]}, x, row, xhead, b, &r.stays);
	dt_bring<D>(dt_wg_tile<DT_WG_ROWS>{r.own[1]}, y, row, yhead, b, &r.stays);
}

/* Starts copying the fixed matrices and the first of n tiles, by ask(i); waits for the fixed matrices. */
template <int D, class F>
DT_DEVICE void bring_first(struct room<D> &r, const struct dt_gpu_map &x, int xhead,
			   const struct dt_gpu_map &y, int yhead, int row, int b, int n, F ask)
{
	if (threadIdx.x == 0) {
		bring_own(r, x, xhead, y, yhead, row, b);
		for (int i = 0; i < SLOTS && i < n; i++)
			ask(i);
	}
	__syncthreads();
	dt_mbar_wait(&r.stays, 0);
}

/* d = the warpgroup's 64 rows of s times the transpose of t's rows. */
template <class T, int D, int N, int ROWS>
DT_DEVICE void scores(float (&d)[N][4], struct dt_wg_tile<DT_WG_ROWS> s, struct dt_wg_tile<ROWS> t)
{
	DT_UNROLL
	for (int k = 0; k < D / 16; k++)
		dt_wg_rows<T>(d, s, (int)threadIdx.x / 128 * 64, t, k * 16, k > 0);
}

/* Turns products q . k into weights; lse(n) is what to subtract from the exponents of 2. */
template <int N, class F> DT_DEVICE void weigh(float (&s)[N][4], float unit, F lse)
{
	DT_UNROLL
	for (int n = 0; n < N; n++)
		DT_UNROLL
	for (int e = 0; e < 4; e++)
		s[n][e] = dt_exp2(fmaf(s[n][e], unit, -lse(n, e)));
}

/* Turns dp into ds. */
template <int N, class F> DT_DEVICE void slopes(float (&dp)[N][4], const float (&s)[N][4], F dot)
{
	DT_UNROLL
	for (int n = 0; n < N; n++)
		DT_UNROLL
	for (int e = 0; e < 4; e++)
		dp[n][e] = s[n][e] * (dp[n][e] - dot(n, e));
}

/* 128 keys of a head, and the queries that see them. */
struct wg_keys {
	int kv, b, k0, own, key; /* as in dt_wg_queries */
	int warps;
	int heads, group; /* q heads; how many of them share the keys */
	int each, steps;  /* tiles per q head; over all heads of the group */
};

DT_DEVICE struct wg_keys wg_keys(const struct dt_attn_args &a, const struct dt_wg_maps &m)
{
	const struct dt_wg_place at = dt_wg_place(m);
	const int k0 = at.tile * DT_WG_ROWS, last = k0 + DT_WG_ROWS - 1;
	const int seq = (int)a.seq, window = (int)a.window, group = (int)(a.heads / a.kv_heads);
	const int each = ((window && last + window < seq ? last + window : seq) - k0 + TILE - 1) / TILE;

	return {at.h,
		at.b,
		k0,
		k0 + dt_wg_group() * 64,
		k0 + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4,
		k0 + 64 < seq ? 8 : 4,
		(int)a.heads,
		group,
		each,
		each * group};
}

/* The tile of queries in step i of a block of keys: the tiles of one head after another. */
struct wg_step {
	int h, q0;
};

DT_DEVICE struct wg_step step_of(const struct wg_keys &w, int i)
{
	const int head = i / w.each;

	return {w.kv * w.group + head, w.k0 + (i - head * w.each) * TILE};
}

DT_DEVICE struct wg_step step_after(const struct wg_keys &w, struct wg_step s)
{
	return s.q0 + TILE < w.k0 + w.each * TILE ? wg_step{s.h, s.q0 + TILE} : wg_step{s.h + 1, w.k0};
}

/* Whether some of the tile's queries see some of the warpgroup's keys; whether all see all. */
DT_DEVICE bool some_see(const struct dt_attn_args &a, const struct wg_keys &w, int q0)
{
	return !(q0 + TILE <= w.own || (a.window && q0 - w.own - 63 >= a.window));
}

DT_DEVICE bool all_see(const struct dt_attn_args &a, const struct wg_keys &w, int q0)
{
	return !(q0 < w.own + 64 || q0 + TILE > a.seq || (a.window && q0 + TILE - w.own > a.window));
}

/* lse and do . o of queries q0 + lane and q0 + lane + 32, 0 if there is no query. */
struct wg_stats {
	float lse[2], dot[2];
};

DT_DEVICE struct wg_stats read_stats(const struct dt_attn_args &a, const struct wg_keys &w, struct wg_step s)
{
	struct wg_stats r = {{0, 0}, {0, 0}};

	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		const int q = s.q0 + (int)threadIdx.x % 32 + i * 32;
		const int64_t at = ((int64_t)w.b * a.heads + s.h) * a.seq + q;

		if (q < a.seq) {
			r.lse[i] = dt_at(a.lse, at) * DT_LOG2E;
			r.dot[i] = dt_at(a.dot, at);
		}
	}
	return r;
}

/* For the warp's own use; it must have read the previous values. */
template <int D> DT_DEVICE void write_stats(struct room<D> &r, const struct wg_stats &s)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

	__syncwarp();
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		r.lse[warp][lane + i * 32] = s.lse[i];
		r.dot[warp][lane + i * 32] = s.dot[i];
	}
	__syncwarp();
}

/* One of two floats. */
DT_DEVICE float of_pair(const float *p, int which)
{
	const uint2 u = *(const uint2 *)p;
	float f[2];

	memcpy(f, &u, sizeof f);
	return f[which];
}

/* Stores the warp's 16 rows of both gradients; all warps must be done with the tiles of x. */
template <class T, int D>
DT_DEVICE void store(const struct dt_attn_args &a, const struct wg_keys &w, struct room<D> &r,
		     const float (&dk)[D / 8][4], const float (&dv)[D / 8][4])
{
	const int first = (int)threadIdx.x / 32 * 16, row = w.k0 + first;
	uint16_t *out = (uint16_t *)a.out + w.b * a.seq * a.width, *place = r.x[0] + first * (D + 8);

	dt_attn_store<T, D>(out + dt_attn_keys(a, w.kv), a.width, place, dk, a.scale, a.scale, row, a.seq,
			    a.d, true);
	dt_attn_store<T, D>(out + dt_attn_values(a, w.kv), a.width, place, dv, 1, 1, row, a.seq, a.v, true);
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, 1)
	wg_dkv_kernel(struct dt_attn_args a, const __grid_constant__ struct dt_wg_maps m)
{
	struct room<D> &r = *(struct room<D> *)dt_wg_shared();
	const struct wg_keys w = wg_keys(a, m);
	const int warp = (int)threadIdx.x / 32, col = (int)threadIdx.x % 4 * 2;
	const float *lse = r.lse[warp] + col, *dot = r.dot[warp] + col, unit = a.scale * DT_LOG2E;
	float s[TILE / 8][4], dp[TILE / 8][4], dk[D / 8][4], dv[D / 8][4];
	uint32_t p[TILE / 16][4], ds[TILE / 16][4];
	const struct dt_wg_tile<DT_WG_ROWS> k = {r.own[0]}, v = {
		r.own[1]
	};
	struct wg_step now = step_of(w, 0);
	struct wg_stats ahead = read_stats(a, w, now);
	/*
	 * The tile still used by the products of dk and dv; it is released with the next tile that the
	 * warpgroup uses. Of two consecutive tiles the warpgroup skips at most one, so with three slots it
	 * never waits for the one it holds.
	 */
	int held = -1;
	static_assert(SLOTS >= 3, "a warpgroup would wait for itself");

	const auto ask = [&](int i) {
		const struct wg_step t = step_of(w, i);

		bring(r, i, m.qk, t.h, m.g, t.h, t.q0, w.b);
	};
	const auto used = [&](int i) {
		return i >= 0 && i + SLOTS < w.steps ? dt_ring_used(r.tiles, i, w.warps) : ~0u;
	};

	dt_zero(dk);
	dt_zero(dv);
	bring_first(r, m.qk, w.heads + w.kv, m.v, w.kv, w.k0, w.b, w.steps, ask);
	for (int i = 0; i < (w.own < a.seq ? w.steps : 0); i++) {
		const int q0 = now.q0;

		write_stats(r, ahead);
		now = step_after(w, now);
		if (i + 1 < w.steps)
			ahead = read_stats(a, w, now);
		dt_ring_wait(r.tiles, i);
		if (!some_see(a, w, q0)) {
			if (dt_ring_last(used(i), w.warps))
				ask(i + SLOTS);
			continue;
		}
		dt_wg_begin();
		scores<T, D>(s, k, x_of(r, i));
		dt_wg_commit();
		scores<T, D>(dp, v, y_of(r, i));
		dt_wg_commit();
		dt_wg_wait<1>();
		const unsigned before = used(held);

		if (!all_see(a, w, q0))
			dt_wg_mask(s, {dt_attn_seen_by(a, w.key, q0), dt_attn_seen_by(a, w.key + 8, q0)});
		weigh(s, unit, [&](int n, int e) { return of_pair(lse + n * 8, e % 2); });
		dt_wg_round<T>(p, s);
		if (dt_ring_last(before, w.warps))
			ask(held + SLOTS);
		held = i;
		dt_wg_wait<0>();
		dt_wg_begin();
		dt_wg_gather<T>(dv, p, y_of(r, i));
		dt_wg_commit();
		slopes(dp, s, [&](int n, int e) { return of_pair(dot + n * 8, e % 2); });
		dt_wg_round<T>(ds, dp);
		dt_wg_begin();
		dt_wg_gather<T>(dk, ds, x_of(r, i));
		dt_wg_commit();
	}
	dt_wg_wait<0>();
	__syncthreads();
	store<T>(a, w, r, dk, dv);
}

template <class T, int D>
__global__ void __launch_bounds__(DT_WG_THREADS, D == 64 ? 2 : 1)
	wg_dq_kernel(struct dt_attn_args a, const __grid_constant__ struct dt_wg_maps m)
{
	struct room<D> &r = *(struct room<D> *)dt_wg_shared();
	const struct dt_wg_queries w = dt_wg_queries(a, m, TILE);
	const float unit = a.scale * DT_LOG2E;
	float s[TILE / 8][4], dp[TILE / 8][4], dq[D / 8][4], lse[2], dot[2];
	uint32_t ds[TILE / 16][4];
	const struct dt_wg_tile<DT_WG_ROWS> q = {r.own[0]}, g = {
		r.own[1]
	};

	const auto ask = [&](int j) {
		bring(r, j, m.qk, w.heads + w.kv, m.v, w.kv, w.first + j * TILE, w.b);
	};

	dt_zero(dq);
	DT_UNROLL
	for (int i = 0; i < 2; i++) {
		const int64_t at = (w.b * a.heads + w.h) * a.seq + w.query + 8 * i;

		lse[i] = w.query + 8 * i < a.seq ? dt_at(a.lse, at) * DT_LOG2E : 0;
		dot[i] = w.query + 8 * i < a.seq ? dt_at(a.dot, at) : 0;
	}
	bring_first(r, m.qk, w.h, m.g, w.h, w.q0, w.b, w.tiles, ask);
	for (int j = 0; j < w.mine; j++) {
		const int key = w.first + j * TILE;

		dt_ring_wait(r.tiles, j);
		dt_wg_begin();
		scores<T, D>(s, q, x_of(r, j));
		dt_wg_commit();
		dt_wg_wait<1>(); /* dq of the previous tile is done; its ds frees registers for dp */
		const unsigned before =
			j && j - 1 + SLOTS < w.tiles ? dt_ring_used(r.tiles, j - 1, w.warps) : ~0u;

		dt_wg_begin();
		scores<T, D>(dp, g, y_of(r, j));
		dt_wg_commit();
		dt_wg_wait<1>();
		if (dt_wg_edge(a, w, key, TILE))
			dt_wg_mask(s, {dt_attn_keys_seen(a, w.query, key),
				       dt_attn_keys_seen(a, w.query + 8, key)});
		weigh(s, unit, [&](int, int e) { return lse[e / 2]; });
		if (dt_ring_last(before, w.warps))
			ask(j - 1 + SLOTS);
		dt_wg_wait<0>();
		slopes(dp, s, [&](int, int e) { return dot[e / 2]; });
		dt_wg_round<T>(ds, dp);
		dt_wg_begin();
		dt_wg_gather<T>(dq, ds, x_of(r, j));
		dt_wg_commit();
	}
	dt_wg_wait<0>();
	__syncthreads();
	const int row = (int)threadIdx.x / 32 * 16;

	dt_attn_store<T, D>((uint16_t *)a.out + w.b * a.seq * a.width + w.h * a.d, a.width,
			    r.x[0] + row * (D + 8), dq, a.scale, a.scale, w.q0 + row, a.seq, a.d, true);
}

int dt_attn_wg_backward(const struct dt_cuda *c, const struct dt_attn_args &a, int64_t batch)
{
	const int64_t wide = dt_attn_wide(a);
	const size_t bytes = 1024 + (wide <= 64 ? sizeof(struct room<64>) : sizeof(struct room<128>));
	struct dt_wg_maps m;
	int rc;

	if (!dt_attn_wg(c, a))
		return -ENOTSUP;
	rc = dt_wg_maps(&m, a, batch);
	if (rc < 0)
		return rc;
	dim3 grid = dt_wg_order(&m, a, a.kv_heads, batch, 2 * a.heads / a.kv_heads + 4);

	rc = DT_LAUNCH(c, DT_WG_PICK(wg_dkv_kernel, a.t, wide), grid, DT_WG_THREADS, bytes, a, m);
	if (rc < 0)
		return rc;
	grid = dt_wg_order(&m, a, a.heads, batch, 5);
	return DT_LAUNCH(c, DT_WG_PICK(wg_dq_kernel, a.t, wide), grid, DT_WG_THREADS, bytes, a, m);
}
/* SPDX-License-Identifier: Apache-2.0 */
