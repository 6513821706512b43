/*
 * The micro-kernel of tile.h. Compiled once for each instruction set, with
 *   TILE_NAME  the function   TILE_LANES  floats in a vector   TILE_ROWS  rows of c held in registers
 *   TILE_PAIRS  words are pairs of bf16   TILE_TURN  the name of the transposition, where it goes with it
 * so that TILE_ROWS x 2 vectors of sums, two of b and one of a fit the registers.
 */
#include "kernels/cpu/tile.h"

#if TILE_LANES == 16
#include <immintrin.h>
#endif

#define L TILE_LANES

typedef float vec __attribute__((vector_size(L * 4), aligned(4)));

DT_INLINE vec step(vec sum, uint32_t a, const uint32_t *b)
{
#ifdef TILE_PAIRS
	return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)a),
				     (__m512bh)_mm512_loadu_si512(b));
#else
	float f;

	memcpy(&f, &a, 4);
	return sum + f * *(const vec *)b;
#endif
}

/* rows and vecs are constants where this is inlined, and sum lives in registers. */
DT_INLINE void block(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, int64_t a_word,
		     const uint32_t *b, int64_t ldb, int64_t words, bool accumulate, const int rows,
		     const int vecs)
{
	vec sum[TILE_ROWS][2];

#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
		for (int v = 0; v < vecs; v++)
			sum[r][v] = accumulate ? *(vec *)(c + r * ldc + v * L) : (vec){0};
	for (int64_t w = 0; w < words; w++) {
#pragma GCC unroll 8
		for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
			for (int v = 0; v < vecs; v++)
				sum[r][v] = step(sum[r][v], a[r * a_row], b + v * L);
		a += a_word;
		b += ldb;
	}
#pragma GCC unroll 8
	for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
		for (int v = 0; v < vecs; v++)
			*(vec *)(c + r * ldc + v * L) = sum[r][v];
}

/* All rows of one panel of vecs vectors. */
DT_INLINE void panel(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, int64_t a_word,
		     const uint32_t *b, int64_t ldb, int64_t rows, int64_t words, bool accumulate,
		     const int vecs)
{
	int64_t i = 0;

	for (; i + TILE_ROWS <= rows; i += TILE_ROWS)
		block(c + i * ldc, ldc, a + i * a_row, a_row, a_word, b, ldb, words, accumulate, TILE_ROWS,
		      vecs);
#if TILE_ROWS > 4
	for (; i + 4 <= rows; i += 4)
		block(c + i * ldc, ldc, a + i * a_row, a_row, a_word, b, ldb, words, accumulate, 4, vecs);
#endif
	for (; i + 2 <= rows; i += 2)
		block(c + i * ldc, ldc, a + i * a_row, a_row, a_word, b, ldb, words, accumulate, 2, vecs);
	for (; i < rows; i++)
		block(c + i * ldc, ldc, a + i * a_row, a_row, a_word, b, ldb, words, accumulate, 1, vecs);
}

DT_TILE_MUL(TILE_NAME)
{
	int64_t j = 0;

	for (; j + 2 * L <= cols; j += 2 * L)
		panel(c + j, ldc, a, a_row, a_word, b + j, ldb, rows, words, accumulate, 2);
	for (; j < cols; j += L)
		panel(c + j, ldc, a, a_row, a_word, b + j, ldb, rows, words, accumulate, 1);
}

#ifdef TILE_PAIRS
void dt_tile_along_bf16(uint32_t *out, const float *x, int64_t n)
{
	int64_t i = 0;

	for (; i + L <= n; i += L)
		_mm512_storeu_si512(out + i, (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 2 * i + L),
									  _mm512_loadu_ps(x + 2 * i)));
	for (; i < n; i++)
		out[i] = dt_f32_to_bf16(x[2 * i]) | (uint32_t)dt_f32_to_bf16(x[2 * i + 1]) << 16;
}

void dt_tile_across_bf16(uint32_t *out, const float *x, const float *y, int64_t n)
{
	int64_t i = 0;

	for (; i + L <= n; i += L) {
		__m512i lo = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
		__m512i hi = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(y + i)));

		_mm512_storeu_si512(out + i, _mm512_or_si512(lo, _mm512_slli_epi32(hi, 16)));
	}
	for (; i < n; i++)
		out[i] = dt_f32_to_bf16(x[i]) | (uint32_t)dt_f32_to_bf16(y[i]) << 16;
}
#endif

#ifdef TILE_TURN
/* Sixteen by sixteen words at a time: pairs, fours, then whole quarters of a vector change places. */
DT_TILE_TURN(TILE_TURN)
{
	int64_t w = 0;

	for (; w + 16 <= n; w += 16) {
		__m512i r[16], t[16];

		for (int i = 0; i < 16; i++)
			r[i] = _mm512_loadu_si512(in + i * 64 + w);
		for (int i = 0; i < 16; i += 2) {
			t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
			t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
		}
		for (int i = 0; i < 16; i += 4) { /* r[i + j]: word j of each quarter, from rows i .. i + 3 */
			r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
			r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
			r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
			r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
		}
		for (int j = 0; j < 4; j++) {
			__m512i a = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88),
				b = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
			__m512i c = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd),
				d = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);

			_mm512_storeu_si512(out + (w + j) * DT_TILE, _mm512_shuffle_i32x4(a, b, 0x88));
			_mm512_storeu_si512(out + (w + 4 + j) * DT_TILE, _mm512_shuffle_i32x4(c, d, 0x88));
			_mm512_storeu_si512(out + (w + 8 + j) * DT_TILE, _mm512_shuffle_i32x4(a, b, 0xdd));
			_mm512_storeu_si512(out + (w + 12 + j) * DT_TILE, _mm512_shuffle_i32x4(c, d, 0xdd));
		}
	}
	for (; w < n; w++)
		for (int64_t i = 0; i < 16; i++)
			out[w * DT_TILE + i] = in[i * 64 + w];
}
#endif
