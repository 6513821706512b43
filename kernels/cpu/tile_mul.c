/*
 * The micro-kernel of tile.h. Compiled once per instruction set, with
 *   TILE_NAME  the function   TILE_LANES  floats per vector   TILE_ROWS  rows of c held in registers
 *   TILE_PAIRS  words are pairs of bf16   TILE_TURN, TILE_TURN_EIGHTS  the name of the transposition, if
 *   it has one for AVX-512 or for AVX2
 * so that TILE_ROWS x 2 vectors of sums, two of b and one of a fit the registers.
 */
#include "kernels/cpu/tile.h"

#if TILE_LANES >= 8
#include <immintrin.h>
#endif

#define L    TILE_LANES
#define MOST 4 /* vectors at a time, if rows are few */

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

/* rows and vecs are constants after inlining; sum stays in registers. */
DT_INLINE void block(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, int64_t a_word,
		     const uint32_t *b, int64_t ldb, int64_t words, bool accumulate, const int rows,
		     const int vecs)
{
	vec sum[TILE_ROWS][MOST];

	DT_FOR (8, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			sum[r][v] = accumulate ? *(vec *)(c + r * ldc + v * L) : (vec){0};
	for (int64_t w = 0; w < words; w++) {
		DT_FOR (8, int r = 0; r < rows; r++)
			DT_FOR (4, int v = 0; v < vecs; v++)
				sum[r][v] = step(sum[r][v], a[r * a_row], b + v * L);
		a += a_word;
		b += ldb;
	}
	DT_FOR (8, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			*(vec *)(c + r * ldc + v * L) = sum[r][v];
}

/* All rows of one panel of vecs vectors; with MOST at most three rows. */
DT_INLINE void panel(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, int64_t a_word,
		     const uint32_t *b, int64_t ldb, int64_t rows, int64_t words, bool accumulate,
		     const int vecs)
{
	int64_t i = 0;

	if (vecs == MOST && rows == 3) {
		block(c, ldc, a, a_row, a_word, b, ldb, words, accumulate, 3, vecs);
		return;
	}
	for (; vecs < MOST && i + TILE_ROWS <= rows; i += TILE_ROWS)
		block(c + i * ldc, ldc, a + i * a_row, a_row, a_word, b, ldb, words, accumulate, TILE_ROWS,
		      vecs);
#if TILE_ROWS > 4
	for (; vecs < MOST && i + 4 <= rows; i += 4)
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

	/* Few rows, as in decoding: more vectors, as each sum is a dependency chain. */
	for (; rows <= 3 && j + MOST * L <= cols; j += MOST * L)
		panel(c + j, ldc, a, a_row, a_word, b + j, ldb, rows, words, accumulate, MOST);
	for (; j + 2 * L <= cols; j += 2 * L)
		panel(c + j, ldc, a, a_row, a_word, b + j, ldb, rows, words, accumulate, 2);
	for (; j < cols; j += L)
		panel(c + j, ldc, a, a_row, a_word, b + j, ldb, rows, words, accumulate, 1);
}

#if defined(TILE_TURN) || defined(TILE_PAIRS)
/* Transposes 16 x 16 words: swaps pairs, fours, then quarters of a vector. */
DT_INLINE void turn16(uint32_t *out, __m512i r[16])
{
	__m512i t[16];

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

		_mm512_storeu_si512(out + j * DT_TILE, _mm512_shuffle_i32x4(a, b, 0x88));
		_mm512_storeu_si512(out + (4 + j) * DT_TILE, _mm512_shuffle_i32x4(c, d, 0x88));
		_mm512_storeu_si512(out + (8 + j) * DT_TILE, _mm512_shuffle_i32x4(a, b, 0xdd));
		_mm512_storeu_si512(out + (12 + j) * DT_TILE, _mm512_shuffle_i32x4(c, d, 0xdd));
	}
}
#endif

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

/* Words [16 w, 16 w + 16) of a row. */
DT_INLINE __m512i words_of(const void *row, int64_t w)
{
	return row ? _mm512_loadu_si512((const char *)row + 64 * w) : _mm512_setzero_si512();
}

void dt_tile_lanes_bf16(uint32_t *out, const void *const *row, int64_t rows, int64_t d)
{
	for (int64_t first = 0; first < DT_TILE; first += 16)
		for (int64_t w = 0; w < d / 32; w++) {
			__m512i r[16];

			for (int64_t i = 0; i < 16; i++)
				r[i] = words_of(first + i < rows ? row[first + i] : NULL, w);
			turn16(out + w * 16 * DT_TILE + first, r);
		}
}

void dt_tile_depth_bf16(uint32_t *out, const void *const *row, int64_t rows, int64_t d)
{
	/* Interleaves the halves of a and b: the first sixteen of each, then the others. */
	const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39,
					     7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
	const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));

	for (int64_t i = 0; i < DT_TILE; i += 2, out += d)
		for (int64_t w = 0; w < d / 32; w++) {
			const __m512i a = words_of(i < rows ? row[i] : NULL, w),
				      b = words_of(i + 1 < rows ? row[i + 1] : NULL, w);

			_mm512_storeu_si512(out + 32 * w, _mm512_permutex2var_epi16(a, low, b));
			_mm512_storeu_si512(out + 32 * w + 16, _mm512_permutex2var_epi16(a, high, b));
		}
}
#endif

#ifdef TILE_TURN_EIGHTS
/* Transposes 8 x 8 words: swaps pairs, fours, then halves of a vector. */
DT_INLINE void turn8(uint32_t *out, const uint32_t *in)
{
	__m256 r[8], t[8];

	for (int i = 0; i < 8; i++)
		r[i] = _mm256_loadu_ps((const float *)in + i * 64);
	for (int i = 0; i < 8; i += 2) {
		t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
		t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) { /* r[i + j]: word j of each half, from rows i .. i + 3 */
		r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
		r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
		r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
		r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
	}
	for (int j = 0; j < 4; j++) {
		_mm256_storeu_ps((float *)out + j * DT_TILE, _mm256_permute2f128_ps(r[j], r[4 + j], 0x20));
		_mm256_storeu_ps((float *)out + (4 + j) * DT_TILE,
				 _mm256_permute2f128_ps(r[j], r[4 + j], 0x31));
	}
}

DT_TILE_TURN(TILE_TURN_EIGHTS)
{
	int64_t w = 0;

	for (; w + 8 <= n; w += 8)
		for (int i = 0; i < 16; i += 8)
			turn8(out + w * DT_TILE + i, in + i * 64 + w);
	for (; w < n; w++)
		for (int64_t i = 0; i < 16; i++)
			out[w * DT_TILE + i] = in[i * 64 + w];
}
#endif

#ifdef TILE_TURN
DT_TILE_TURN(TILE_TURN)
{
	int64_t w = 0;

	for (; w + 16 <= n; w += 16) {
		__m512i r[16];

		for (int i = 0; i < 16; i++)
			r[i] = _mm512_loadu_si512(in + i * 64 + w);
		turn16(out + w * DT_TILE, r);
	}
	for (; w < n; w++)
		for (int64_t i = 0; i < 16; i++)
			out[w * DT_TILE + i] = in[i * 64 + w];
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
