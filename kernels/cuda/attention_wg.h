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

/* Rows [row, row + ROWS) below `rows`, D columns of which d are there, at from + r * width. */
template <int D, int ROWS>
DT_DEVICE void dt_wg_load(struct dt_wg_tile<ROWS> t, const uint16_t *from, int64_t width, int64_t row,
			  int64_t rows, int64_t d)
{
	DT_UNROLL
	for (int i = 0; i < ROWS * D / 8 / DT_WG_THREADS; i++) {
		const int at = i * DT_WG_THREADS + (int)threadIdx.x, r = at / (D / 8), c = at % (D / 8) * 8;
		const bool in = row + r < rows && c < d;

		dt_cp_async(dt_wg_at(t, r, c), in ? from + (row + r) * width + c : from, in ? 16 : 0);
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

/* One of the instances of kernel<T, D>, w wide. */
#define DT_WG_PICK(kernel, type, w)                                                                          \
	((type) == DT_BF16 ? (w) <= 64 ? kernel<struct dt_bf16, 64> : kernel<struct dt_bf16, 128>            \
	 : (w) <= 64 ? kernel<struct dt_f16, 64>                                                             \
			   : kernel<struct dt_f16, 128>)

#endif
/* SPDX-License-Identifier: Apache-2.0 */
