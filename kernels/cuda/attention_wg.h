/*
 * Attention of 16-bit types with wgmma (wgmma.h; Shah et al., FlashAttention-3, 2024): a block has 128
 * queries or keys of a head, 64 for each of its two warpgroups. Heads are padded with zeros to 64 or 128.
 */
#ifndef DT_KERNELS_CUDA_ATTENTION_WG_H
#define DT_KERNELS_CUDA_ATTENTION_WG_H

#include "kernels/cuda/attention.h"
#include "kernels/cuda/tma.h"

#define DT_WG_THREADS 256
#define DT_WG_ROWS    128

static inline bool dt_attn_wg(const struct dt_cuda *c, const struct dt_attn_args &a)
{
	return c->info.major == 9 && a.t != DT_F32 && a.fast && a.cap == 0 && dt_attn_wide(a) <= 128;
}

/*
 * TMA maps: heads of queries and keys; of values; in backward, of the gradients of o. And the launch order of
 * blocks: `near` of the n heads of all sequences run at about the same time, so that data that their blocks
 * read repeatedly stays in L2.
 */
struct dt_wg_maps {
	struct dt_gpu_map qk, v, g;
	int heads, n, near, tiles; /* heads per sequence; tiles of 128 rows per head */
};

/* Map of heads [rows of seq, cols], which are cols apart in rows of `width` elements. */
static inline int dt_wg_map(struct dt_gpu_map *ret, const struct dt_attn_args &a, const void *from,
			    int64_t cols, int64_t heads, int64_t width, int64_t batch)
{
	const int64_t n[4] = {cols, heads, a.seq, batch}, step[3] = {cols, width, a.seq * width};

	return dt_gpu_map(ret, from, n, step);
}

static inline int dt_wg_maps(struct dt_wg_maps *ret, const struct dt_attn_args &a, int64_t batch)
{
	const int64_t qk = a.heads + a.kv_heads;
	int rc = dt_wg_map(&ret->qk, a, a.qkv, a.d, qk, a.width, batch);

	if (rc == 0)
		rc = dt_wg_map(&ret->v, a, (const uint16_t *)a.qkv + qk * a.d, a.v, a.kv_heads, a.width,
			       batch);
	if (rc == 0 && a.dout)
		rc = dt_wg_map(&ret->g, a, a.dout, a.v, a.heads, a.heads * a.v, batch);
	return rc;
}

#ifdef __CUDACC__
#define DT_WG_CACHE (24 << 20) /* bytes: half of the L2 of sm_90 */
#else
#define DT_WG_CACHE (256 << 10) /* small, so that some of the tests' shapes do not fit */
#endif

/*
 * Grid for the heads of `batch` sequences. The blocks of a head read this many matrices [seq, wide]: `near`
 * is the number of heads whose matrices fit in L2; 0: all heads, as then finishing evenly matters more.
 */
static inline dim3 dt_wg_order(struct dt_wg_maps *m, const struct dt_attn_args &a, int64_t heads,
			       int64_t batch, int64_t matrices)
{
	const int64_t n = heads * batch, bytes = matrices * a.seq * dt_attn_wide(a) * 2;
	const int64_t room = bytes ? DT_WG_CACHE / bytes : n, sets = dt_ceil_div(n, room < 1 ? 1 : room);

	m->heads = (int)heads;
	m->n = (int)n;
	m->near = (int)dt_ceil_div(n, sets);
	m->tiles = (int)dt_ceil_div(a.seq, DT_WG_ROWS);
	return dim3((unsigned)(m->n * m->tiles));
}

/* A block's head, its sequence, and its tile of the head; tiles of number 0 start first. */
struct dt_wg_place {
	int h, b, tile;
};

DT_DEVICE struct dt_wg_place dt_wg_place(const struct dt_wg_maps &m)
{
	const int size = m.near * m.tiles, set = (int)blockIdx.x / size, i = (int)blockIdx.x % size;
	const int left = m.n - set * m.near, n = left < m.near ? left : m.near;
	const int head = set * m.near + i % n;

	return {head % m.heads, head / m.heads, i / n};
}

/* The warpgroup's number, uniform per warp for the compiler: products are issued in branches that depend on
 * it. */
DT_DEVICE int dt_wg_group(void)
{
	return __shfl_sync(DT_ALL, (int)threadIdx.x / 128, 0);
}

/* p rounded to T, in the registers of a first operand. */
template <class T, int N> DT_DEVICE void dt_wg_round(uint32_t (&r)[N / 2][4], const float (&p)[N][4])
{
	DT_UNROLL
	for (int k = 0; k < N / 2; k++)
		DT_UNROLL
	for (int i = 0; i < 4; i++)
		r[k][i] = dt_pack<T>(p[2 * k + i / 2][i % 2 * 2], p[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* acc += p times the rows of t. */
template <class T, int N, int K, int ROWS>
DT_DEVICE void dt_wg_gather(float (&acc)[N][4], const uint32_t (&p)[K][4], struct dt_wg_tile<ROWS> t)
{
	DT_UNROLL
	for (int k = 0; k < K; k++)
		dt_wg_cols<T>(acc, p[k], t, k * 16, true);
}

/* 128 queries of a head, 64 per warpgroup, and the tiles of keys that they see. */
struct dt_wg_queries {
	int h, kv, b;	 /* head, its key head, sequence */
	int heads;	 /* number of q heads */
	int group;	 /* the warpgroup's number */
	int q0;		 /* the first query of the block */
	int own, query;	 /* first query of the warpgroup; first of the thread (its other is 8 further) */
	int first;	 /* first key of the first tile */
	int tiles, mine; /* tiles that the block sees, that the warpgroup sees: at most one fewer, or none */
	int warps;	 /* number of warps that see some keys */
};

/* Blocks with the most keys start first. */
DT_DEVICE struct dt_wg_queries dt_wg_queries(const struct dt_attn_args &a, const struct dt_wg_maps &m,
					     int tile)
{
	const struct dt_wg_place at = dt_wg_place(m);
	const int seq = (int)a.seq, window = (int)a.window, h = at.h;
	const int q0 = (m.tiles - 1 - at.tile) * DT_WG_ROWS;
	const int group = dt_wg_group(), own = q0 + group * 64;
	const int first = window && q0 >= window ? (q0 - window + 1) / tile * tile : 0;
	const auto seen = [=](int rows) {
		return ((q0 + rows < seq ? q0 + rows : seq) - 1 - first) / tile + 1;
	};

	return {h,
		h / (int)(a.heads / a.kv_heads),
		at.b,
		(int)a.heads,
		group,
		q0,
		own,
		q0 + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4,
		first,
		seen(DT_WG_ROWS),
		own < seq ? seen(own - q0 + 64) : 0,
		q0 + 64 < seq ? 8 : 4};
}

/*
 * Turns of the two warpgroups: tiles - 1 each, the first warpgroup's before the second's. A warpgroup waits
 * for its turn at barrier 1 + its number, where the other arrives when it passes the turn on. There are no
 * turns if one of them has no queries, nor for heads of 64: there two blocks share an SM, and an order within
 * each costs more than it gains.
 */
template <int D> DT_DEVICE bool dt_wg_turns(const struct dt_wg_queries &w)
{
	return D > 64 && w.warps == 8 && w.tiles > 1;
}

template <int D> DT_DEVICE void dt_wg_turns_begin(const struct dt_wg_queries &w)
{
	if (dt_wg_turns<D>(w) && w.group == 1)
		dt_named_come<1, DT_WG_THREADS>();
}

template <int D> DT_DEVICE void dt_wg_turn_take(const struct dt_wg_queries &w)
{
	if (!dt_wg_turns<D>(w))
		return;
	if (w.group == 0)
		dt_named_wait<1, DT_WG_THREADS>();
	else
		dt_named_wait<2, DT_WG_THREADS>();
}

/* Passes the turn on after turn i, except after the last turn of the second warpgroup. */
template <int D> DT_DEVICE void dt_wg_turn_give(const struct dt_wg_queries &w, int i)
{
	if (!dt_wg_turns<D>(w))
		return;
	if (w.group == 0)
		dt_named_come<2, DT_WG_THREADS>();
	else if (i + 2 < w.tiles)
		dt_named_come<1, DT_WG_THREADS>();
}

/* A warpgroup that sees one tile fewer passes on its last turn. */
template <int D> DT_DEVICE void dt_wg_turns_end(const struct dt_wg_queries &w)
{
	if (w.mine < w.tiles) {
		dt_wg_turn_take<D>(w);
		dt_wg_turn_give<D>(w, w.tiles - 2);
	}
}

/* Whether some of the warpgroup's queries do not see some of the n keys from `key` on. */
DT_DEVICE bool dt_wg_edge(const struct dt_attn_args &a, const struct dt_wg_queries &q, int key, int tile)
{
	const int window = (int)a.window;

	return key + tile > q.own || q.own + 64 > (int)a.seq || (window && q.own + 64 - key > window);
}

/* Sets the scores of unseen keys to -Inf, for the thread's row and the one 8 below it. */
template <int N> DT_DEVICE void dt_wg_mask(float (&s)[N][4], const struct dt_attn_range (&in)[2])
{
	const int col = (int)threadIdx.x % 4 * 2;

	DT_UNROLL
	for (int n = 0; n < N; n++)
		DT_UNROLL
	for (int e = 0; e < 4; e++)
		if (!dt_attn_in(in[e / 2], n * 8 + col + e % 2))
			s[n][e] = DT_NEGINF;
}

/* Selects the instance of kernel<T, D> for width w. */
#define DT_WG_PICK(kernel, type, w)                                                                          \
	((type) == DT_BF16 ? (w) <= 64 ? kernel<struct dt_bf16, 64> : kernel<struct dt_bf16, 128>            \
	 : (w) <= 64 ? kernel<struct dt_f16, 64>                                                             \
			   : kernel<struct dt_f16, 128>)

#endif
/* SPDX-License-Identifier: Apache-2.0 */
