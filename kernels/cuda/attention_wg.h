/*
 * Attention of 16-bit types by products of warpgroups (wgmma.h; Shah et al., FlashAttention-3, 2024): a block
 * has 128 queries or keys of a head, each of its two warpgroups 64. Heads are padded with zeros to 64 or 128.
 */
#ifndef DT_KERNELS_CUDA_ATTENTION_WG_H
#define DT_KERNELS_CUDA_ATTENTION_WG_H

#include "kernels/cuda/attention.h"
#include "kernels/cuda/wgmma.h"

#define DT_WG_THREADS 256
#define DT_WG_ROWS    128

static inline bool dt_attn_wg(const struct dt_cuda *c, const struct dt_attn_args &a)
{
	return c->info.major == 9 && a.t != DT_F32 && a.fast && a.cap == 0 && dt_attn_wide(a) <= 128;
}

/* The warpgroup's number, known to be one for a warp: products are begun in branches that depend on it. */
DT_DEVICE int dt_wg_group(void)
{
	return __shfl_sync(DT_ALL, (int)threadIdx.x / 128, 0);
}

/* What a thread copies of tiles of a matrix: 16 bytes of a row, and of every STEP'th row behind it. */
template <int D> struct dt_wg_reader {
	static constexpr int STEP = DT_WG_THREADS * 8 / D;
	const uint16_t *from;
	int64_t width, own; /* own: the thread's first element of a tile that begins with row 0 */
	int rows, row, n; /* rows there are; the thread's first of a tile; bytes of a piece that are there */
};

/* Of `rows` rows, D columns of which d are there, at from + r * width. */
template <int D>
DT_DEVICE struct dt_wg_reader<D> dt_wg_reads(const uint16_t *from, int64_t width, int64_t rows, int64_t d) {
	const int c = (int)threadIdx.x % (D / 8) * 8, r = (int)threadIdx.x / (D / 8);

	return {from, width, r *width + c, (int)rows, r, c < d ? 16 : 0};
}

/* Rows [row, row + ROWS), zeros past the last there is. */
template <int ROWS, int D>
DT_DEVICE void dt_wg_load(struct dt_wg_tile<ROWS> t, const struct dt_wg_reader<D> &r, int row)
{
	constexpr int step = dt_wg_reader<D>::STEP;
	uint16_t *to = dt_wg_at(t, r.row, (int)threadIdx.x % (D / 8) * 8);

	static_assert(step % 8 == 0, "the places of a thread's pieces are exchanged alike");
	DT_UNROLL
	for (int i = 0; i < ROWS / step; i++) {
		const uint16_t *tile = r.from + (row + i * step) * r.width;

		/* Where nothing is read, the address is not looked at. */
		dt_cp_async(to + i * step * 64, tile + r.own, r.row < r.rows - row - i * step ? r.n : 0);
	}
}

/* p rounded to T, as the first operand of a product. */
template <class T, int N> DT_DEVICE void dt_wg_round(uint32_t (&r)[N / 2][4], const float (&p)[N][4])
{
	DT_UNROLL
	for (int k = 0; k < N / 2; k++)
		DT_UNROLL
	for (int i = 0; i < 4; i++)
		r[k][i] = dt_pack<T>(p[2 * k + i / 2][i % 2 * 2], p[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* 128 rows that tiles are multiplied with: their elements are in registers in heads of 64. */
template <int D> struct dt_wg_side {
	struct dt_wg_tile<DT_WG_ROWS> t;
	uint32_t f[D == 64 ? D / 16 : 1][4];
};

template <int D> DT_DEVICE void dt_wg_side_read(struct dt_wg_side<D> &s)
{
	DT_UNROLL
	for (int k = 0; k < (D == 64 ? D / 16 : 0); k++)
		dt_wg_fragment(s.f[k], s.t, (int)threadIdx.x / 32 * 16, k * 16);
}

/* d = the warpgroup's 64 rows of s times the transpose of t's rows. */
template <class T, int D, int N, int ROWS>
DT_DEVICE void dt_wg_side_scores(float (&d)[N][4], const struct dt_wg_side<D> &s, struct dt_wg_tile<ROWS> t)
{
	DT_UNROLL
	for (int k = 0; k < D / 16; k++)
		if constexpr (D == 64)
			dt_wg_rows<T>(d, s.f[k], t, k * 16, k > 0);
		else
			dt_wg_rows<T>(d, s.t, (int)threadIdx.x / 128 * 64, t, k * 16, k > 0);
}

/* acc += p times t's rows. */
template <class T, int N, int K, int ROWS>
DT_DEVICE void dt_wg_gather(float (&acc)[N][4], const uint32_t (&p)[K][4], struct dt_wg_tile<ROWS> t)
{
	DT_UNROLL
	for (int k = 0; k < K; k++)
		dt_wg_cols<T>(acc, p[k], t, k * 16, true);
}

/* 128 queries of a head, 64 of which are the warpgroup's, and the tiles of keys that they see. */
struct dt_wg_queries {
	int h, kv, b;	 /* head, its head of keys, sequence */
	int q0;		 /* the first query of the block */
	int own, query;	 /* the warpgroup's first; the thread's first (the other is 8 behind it) */
	int first;	 /* key of the first tile */
	int tiles, mine; /* that the block sees, that the warpgroup sees */
};

DT_DEVICE struct dt_wg_queries dt_wg_queries(const struct dt_attn_args &a, int tile)
{
	const int seq = (int)a.seq, window = (int)a.window, h = (int)blockIdx.y;
	const int q0 = (int)(gridDim.x - 1 - blockIdx.x) * DT_WG_ROWS; /* the longest first */
	const int own = q0 + dt_wg_group() * 64;
	const int first = window && q0 >= window ? (q0 - window + 1) / tile * tile : 0;
	const auto seen = [=](int rows) {
		return ((q0 + rows < seq ? q0 + rows : seq) - 1 - first) / tile + 1;
	};

	return {h,
		h / (int)(a.heads / a.kv_heads),
		(int)blockIdx.z,
		q0,
		own,
		q0 + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4,
		first,
		seen(DT_WG_ROWS),
		own < seq ? seen(own - q0 + 64) : 0};
}

/* Whether some of the warpgroup's queries do not see some of the keys from `key` on. */
DT_DEVICE bool dt_wg_edge(const struct dt_attn_args &a, const struct dt_wg_queries &q, int key, int tile)
{
	const int window = (int)a.window;

	return key + tile > q.own || q.own + 64 > (int)a.seq || (window && q.own + 64 - key > window);
}

/* Scores of keys that a row does not see are -Inf: of the thread's row, and of the eighth below it. */
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

/* Rows of batch b of a matrix of 16-bit elements, from column col on. */
DT_DEVICE const uint16_t *dt_wg_from(const struct dt_attn_args &a, const void *p, int64_t width, int b,
				     int64_t col)
{
	return (const uint16_t *)p + b * a.seq * width + col;
}

/* One of the instances of kernel<T, D>, w wide. */
#define DT_WG_PICK(kernel, type, w)                                                                          \
	((type) == DT_BF16 ? (w) <= 64 ? kernel<struct dt_bf16, 64> : kernel<struct dt_bf16, 128>            \
	 : (w) <= 64 ? kernel<struct dt_f16, 64>                                                             \
			   : kernel<struct dt_f16, 128>)

#endif
/* SPDX-License-Identifier: Apache-2.0 */
