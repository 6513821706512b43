/*
 * Shared by our own products: a block has a 64 x 64 tile of the result, so that operands are read 32 times
 * less often than they are used. Each sum runs over k in order. The caller provides the copy of a piece of
 * both operands to shared memory, so the layout of rows is free.
 */
#ifndef DT_KERNELS_CUDA_PRODUCT_H
#define DT_KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/mma.h"

#define DT_PRODUCT_TILE 64
#define DT_PRODUCT_DEEP 32 /* elements of k at a time; half for f32 */
/* Shared memory per block: two pieces of both operands; one for f32. */
#define DT_PRODUCT_ROOM	    (4 * DT_PRODUCT_TILE * (DT_PRODUCT_DEEP + 8) * 2)
#define DT_PRODUCT_ROOM_F32 (DT_PRODUCT_DEEP * (DT_PRODUCT_TILE + 4) * 4)

/*
 * Copies ROWS x COLS of a matrix of 16-bit elements to shared memory, zeros outside. 128 threads. row_of
 * returns the address of row i; fast: rows can be copied in 16-byte pieces.
 */
template <int ROWS, int COLS, class F>
DT_DEVICE void dt_product_load(uint16_t *tile, const void *from, int64_t rows, int64_t cols, int64_t row,
			       int64_t col, bool fast, F row_of)
{
	const uint16_t *src = (const uint16_t *)from;

	for (int i = (int)threadIdx.x; i < ROWS * COLS / 8; i += 128) {
		const int r = i / (COLS / 8), c = i % (COLS / 8) * 8;
		const bool in = row + r < rows;
		const int64_t at = (in ? row_of(row + r) : 0) + col + c;
		uint16_t *to = tile + r * (COLS + 8) + c;

		if (fast) {
			const bool all = in && col + c < cols;

			dt_cp_async(to, all ? src + at : src, all ? 16 : 0);
			continue;
		}
		for (int k = 0; k < 8; k++) {
			const bool ok = in && col + c + k < cols;

			if (ok)
				dt_touch(src + at + k, 2);
			to[k] = ok ? src[at + k] : (uint16_t)0;
		}
	}
}

/*
 * d += a tile of op(a) op(b) over depth. Four warps, each 32 x 32 of the block's 64 x 64; the next piece of k
 * is copied meanwhile. bring(a, b, k) starts copying DEEP of k from k on: a as 64 rows of DEEP columns, or
 * (ta) as DEEP rows of 64; b as 64 rows of DEEP (tb), or as DEEP rows of 64.
 */
template <class T, class F>
DT_DEVICE void dt_product_add(float (&d)[2][4][4], bool ta, bool tb, int64_t depth, F bring)
{
	const int tile = DT_PRODUCT_TILE, deep = DT_PRODUCT_DEEP;
	const int piece = tile * (deep + 8); /* at least deep * (tile + 8) */
	uint16_t *a = (uint16_t *)dt_shared(), *b = a + 2 * piece;
	const int warp = (int)threadIdx.x / 32, mw = warp / 2 * 32, nw = warp % 2 * 32;

	if (depth) {
		bring(a, b, (int64_t)0);
		dt_cp_commit();
	}
	for (int64_t k = 0; k < depth; k += deep) {
		const int now = (int)(k / deep % 2) * piece, next = piece - now;

		if (k + deep < depth) {
			bring(a + next, b + next, k + deep);
			dt_cp_commit();
			dt_cp_wait<1>();
		} else {
			dt_cp_wait<0>();
		}
		__syncthreads();
		DT_UNROLL
		for (int kk = 0; kk < deep; kk += 16) {
			uint32_t fa[2][4], fb[2][4];

			DT_UNROLL
			for (int i = 0; i < 2; i++) {
				if (ta)
					dt_fragment_a_trans(fa[i], a + now, tile + 8, mw + 16 * i, kk);
				else
					dt_fragment_a(fa[i], a + now, deep + 8, mw + 16 * i, kk);
				if (tb)
					dt_fragment_b(fb[i], b + now, deep + 8, nw + 16 * i, kk);
				else
					dt_fragment_b_trans(fb[i], b + now, tile + 8, nw + 16 * i, kk);
			}
			DT_UNROLL
			for (int i = 0; i < 2; i++)
				DT_UNROLL
			for (int j = 0; j < 4; j++)
				dt_mma<T>(d[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
		}
		__syncthreads(); /* this piece's memory is overwritten next */
	}
}

/* Calls put(row, column, value) for each result of this thread. */
template <class F> DT_DEVICE void dt_product_each(const float (&d)[2][4][4], F put)
{
	const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;

	DT_UNROLL
	for (int i = 0; i < 2; i++)
		DT_UNROLL
	for (int j = 0; j < 4; j++)
		DT_UNROLL
	for (int e = 0; e < 4; e++)
		put(warp / 2 * 32 + 16 * i + lane / 4 + e / 2 * 8,
		    warp % 2 * 32 + 8 * j + lane % 4 * 2 + e % 2, d[i][j][e]);
}

/*
 * The same for f32: 256 threads, 4 x 4 results each. a_at(i, k) and b_at(j, k) return elements of op(a) and
 * of op(b) transposed, zeros outside; a_along, b_along: k is contiguous in memory.
 */
template <class A, class B>
DT_DEVICE void dt_product_add(float (&d)[4][4], bool a_along, bool b_along, int64_t depth, A a_at, B b_at)
{
	const int tile = DT_PRODUCT_TILE, deep = DT_PRODUCT_DEEP / 2;
	float(*a)[DT_PRODUCT_TILE + 4] = (float(*)[DT_PRODUCT_TILE + 4]) dt_shared(),
				    (*b)[DT_PRODUCT_TILE + 4] = a + deep;
	const int ti = (int)threadIdx.x / 16 * 4, tj = (int)threadIdx.x % 16 * 4;

	for (int64_t k0 = 0; k0 < depth; k0 += deep) {
		for (int u = (int)threadIdx.x; u < tile * deep; u += 256) {
			/* Coalesced reads, whichever dimension is contiguous. */
			const int ai = a_along ? u / deep : u % tile, ak = a_along ? u % deep : u / tile;
			const int bj = b_along ? u / deep : u % tile, bk = b_along ? u % deep : u / tile;

			a[ak][ai] = k0 + ak < depth ? a_at(ai, k0 + ak) : 0;
			b[bk][bj] = k0 + bk < depth ? b_at(bj, k0 + bk) : 0;
		}
		__syncthreads();
		for (int k = 0; k < deep; k++)
			DT_UNROLL
		for (int i = 0; i < 4; i++)
			DT_UNROLL
		for (int j = 0; j < 4; j++)
			d[i][j] += a[k][ti + i] * b[k][tj + j];
		__syncthreads();
	}
}

template <class F> DT_DEVICE void dt_product_each(const float (&d)[4][4], F put)
{
	DT_UNROLL
	for (int i = 0; i < 4; i++)
		DT_UNROLL
	for (int j = 0; j < 4; j++)
		put((int)threadIdx.x / 16 * 4 + i, (int)threadIdx.x % 16 * 4 + j, d[i][j]);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
