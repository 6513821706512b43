/*
 * Products of bf16 pairs besides mul (tile.h), for processors with AVX512_BF16: few rows as AMX tiles round
 * them, sixteen rows that prefetch, and operands in several arrays.
 */
#include "kernels/cpu/subnormal.h"
#include "kernels/cpu/tile.h"

#include <immintrin.h>

#define L    16
#define MOST 4 /* vectors at a time */

typedef float vec __attribute__((vector_size(L * 4), aligned(4)));

DT_INLINE vec step(vec sum, uint32_t a, const uint32_t *b)
{
	return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)a),
				     (__m512bh)_mm512_loadu_si512(b));
}

/* One row by vecs vectors in amx.h's order: per 16 words one chain over even elements and one over odd
 * ones. */
DT_INLINE void row_in_order(float *c, const uint32_t *a, const uint32_t *b, int64_t ldb, int64_t words,
			    bool accumulate, const int vecs)
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
	__m512 sum[MOST];

	DT_FOR (4, int v = 0; v < vecs; v++)
		sum[v] = accumulate ? _mm512_loadu_ps(c + v * L) : _mm512_setzero_ps();
	for (int64_t first = 0; first < words; first += 16) {
		__m512 part[MOST][2];

		DT_FOR (4, int v = 0; v < vecs; v++)
			part[v][0] = part[v][1] = _mm512_setzero_ps();
		for (int64_t w = first; w < dt_min64(first + 16, words); w++) {
			const __m512 even = (__m512)_mm512_set1_epi32((int)(a[w] << 16)),
				     odd = (__m512)_mm512_set1_epi32((int)(a[w] & 0xffff0000u));

			DT_FOR (4, int v = 0; v < vecs; v++) {
				const __m512i x = _mm512_loadu_si512(b + w * ldb + v * L);

				part[v][0] =
					_mm512_fmadd_ps(even, (__m512)_mm512_slli_epi32(x, 16), part[v][0]);
				part[v][1] =
					_mm512_fmadd_ps(odd, (__m512)_mm512_and_si512(x, high), part[v][1]);
			}
		}
		DT_FOR (4, int v = 0; v < vecs; v++)
			sum[v] = _mm512_add_ps(sum[v], _mm512_add_ps(part[v][0], part[v][1]));
	}
	DT_FOR (4, int v = 0; v < vecs; v++)
		_mm512_storeu_ps(c + v * L, sum[v]);
}

DT_TILE_MUL(dt_tile_mul_few_bf16)
{
	const uint64_t was = dt_subnormals_flush(); /* like AMX tiles */

	for (int64_t i = 0; i < rows; i++) {
		int64_t j = 0;

		for (; j + MOST * L <= cols; j += MOST * L)
			row_in_order(c + i * ldc + j, a + i * a_row, b + j, ldb, words, accumulate, MOST);
		for (; j < cols; j += L)
			row_in_order(c + i * ldc + j, a + i * a_row, b + j, ldb, words, accumulate, 1);
	}
	dt_subnormals_keep(was);
}

/* Like block. next.at NULL: no prefetches; else one with every word. */
DT_INLINE void block_asking(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b,
			    int64_t ldb, int64_t words, bool accumulate, struct dt_tile_next next,
			    const int rows, const int vecs)
{
	vec sum[6][4];

	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			sum[r][v] = accumulate ? *(vec *)(c + r * ldc + v * L) : (vec){0};
	for (int64_t w = 0; w < words; w++, b += ldb) {
		if (next.at)
			dt_prefetch_ahead((const char *)next.at + w / 16 * next.step + w % 16 * next.row);
		DT_FOR (6, int r = 0; r < rows; r++)
			DT_FOR (4, int v = 0; v < vecs; v++)
				sum[r][v] = step(sum[r][v], a[r * a_row + w], b + v * L);
	}
	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			*(vec *)(c + r * ldc + v * L) = sum[r][v];
}

/* Sixteen rows, vecs vectors of columns. */
DT_INLINE void rows_asking(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *b,
			   int64_t ldb, int64_t words, bool accumulate, struct dt_tile_next next,
			   const int vecs)
{
	const struct dt_tile_next none = {0};

	block_asking(c, ldc, a, a_row, b, ldb, words, accumulate, next, 6, vecs);
	block_asking(c + 6 * ldc, ldc, a + 6 * a_row, a_row, b, ldb, words, accumulate, none, 6, vecs);
	block_asking(c + 12 * ldc, ldc, a + 12 * a_row, a_row, b, ldb, words, accumulate, none, 4, vecs);
}

DT_TILE_MUL_ASKING(dt_tile_mul_asking_bf16)
{
	switch (cols / L) {
	case 4:
		rows_asking(c, ldc, a, a_row, b, ldb, words, accumulate, next, 4);
		break;
	case 3:
		rows_asking(c, ldc, a, a_row, b, ldb, words, accumulate, next, 3);
		break;
	case 2:
		rows_asking(c, ldc, a, a_row, b, ldb, words, accumulate, next, 2);
		break;
	default:
		rows_asking(c, ldc, a, a_row, b, ldb, words, accumulate, next, 1);
	}
}

/* Like block, for four separate groups of sixteen columns. Only the first rows prefetch. */
DT_INLINE void block_across(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *const *b,
			    const uint32_t *const *next, int64_t words, const int rows)
{
	vec sum[6][4];

	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < 4; v++)
			sum[r][v] = (vec){0};
	for (int64_t w = 0; w < words; w++) {
		DT_FOR (4, int v = 0; next && v < 4; v++)
			dt_prefetch_ahead(next[v] + w * L);
		DT_FOR (6, int r = 0; r < rows; r++)
			DT_FOR (4, int v = 0; v < 4; v++)
				sum[r][v] = step(sum[r][v], a[r * a_row + w], b[v] + w * L);
	}
	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < 4; v++)
			*(vec *)(c + r * ldc + v * L) = sum[r][v];
}

DT_TILE_MUL_ACROSS(dt_tile_mul_across_bf16)
{
	int64_t i = 0;

	for (; i + 6 <= rows; i += 6)
		block_across(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, words, 6);
	for (; i + 4 <= rows; i += 4) /* four heads often share a key */
		block_across(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, words, 4);
	for (; i + 3 <= rows; i += 3)
		block_across(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, words, 3);
	for (; i < rows; i++)
		block_across(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, words, 1);
}

/* Words in groups of eight, by vecs vectors of columns. */
DT_INLINE void block_down(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *const *b,
			  const uint32_t *const *next, int64_t cols, int64_t col, int64_t first, int64_t last,
			  const int rows, const int vecs)
{
	vec sum[6][4];

	c += col;
	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			sum[r][v] = *(vec *)(c + r * ldc + v * L);
	for (int64_t w = first; w < last; w++) {
		const uint32_t *from = b[w / 8] + w % 8 * cols + col;

		DT_FOR (4, int v = 0; next && v < vecs; v++)
			dt_prefetch_ahead(next[w / 8] + w % 8 * cols + col + v * L);
		DT_FOR (6, int r = 0; r < rows; r++)
			DT_FOR (4, int v = 0; v < vecs; v++)
				sum[r][v] = step(sum[r][v], a[r * a_row + w], from + v * L);
	}
	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			*(vec *)(c + r * ldc + v * L) = sum[r][v];
}

/* All rows of vecs vectors of columns. */
DT_INLINE void panel_down(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *const *b,
			  const uint32_t *const *next, int64_t rows, int64_t cols, int64_t col, int64_t first,
			  int64_t last, const int vecs)
{
	int64_t i = 0;

	for (; i + 6 <= rows; i += 6)
		block_down(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, cols, col, first, last,
			   6, vecs);
	for (; i + 4 <= rows; i += 4)
		block_down(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, cols, col, first, last,
			   4, vecs);
	for (; i + 3 <= rows; i += 3)
		block_down(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, cols, col, first, last,
			   3, vecs);
	for (; i < rows; i++)
		block_down(c + i * ldc, ldc, a + i * a_row, a_row, b, i ? NULL : next, cols, col, first, last,
			   1, vecs);
}

DT_TILE_MUL_DOWN(dt_tile_mul_down_bf16)
{
	int64_t col = 0;

	for (; col + 4 * L <= cols; col += 4 * L)
		panel_down(c, ldc, a, a_row, b, next, rows, cols, col, first, last, 4);
	for (; col < cols; col += 2 * L)
		panel_down(c, ldc, a, a_row, b, next, rows, cols, col, first, last, 2);
}
/* SPDX-License-Identifier: Apache-2.0 */
