/*
 * Products of few rows with keys and values as cache rows in place, for AVX2 (tile.h). Packing a tile first
 * would write and read f32 copies that one token uses only once.
 */
#include "kernels/cpu/tile.h"

#include <immintrin.h>

enum { L = 8, LANES = 32 }; /* LANES: keys processed at a time */

/* s += a b in place: with twelve sums in registers, gcc's own choice of operands spills some to memory. */
#define ADD(s, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+x"(s) : "x"(a), "x"(b))

/* Eight elements of a row. */
DT_INLINE __m256 widened(const void *p, const enum dt_dtype type)
{
	switch (type) {
	case DT_BF16:
		return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(p)), 16));
	case DT_I8:
		return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
	default:
		return _mm256_loadu_ps(p);
	}
}

/*
 * Element `part` of the eight 32-bit words at p. The mask of bf16 is read from memory each time: sums take
 * all registers but those of four operands.
 */
DT_INLINE __m256 part_of(const uint32_t *p, const enum dt_dtype type, const int part)
{
	static const _Alignas(32)
		uint32_t high[L] = {-65536u, -65536u, -65536u, -65536u, -65536u, -65536u, -65536u, -65536u};
	__m256i words = _mm256_loadu_si256((const __m256i *)p);

	switch (type) {
	case DT_BF16:
		if (!part)
			return _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
		__asm__("vpand %1, %0, %0" : "+x"(words) : "m"(high));
		return _mm256_castsi256_ps(words);
	case DT_I8:
		return _mm256_cvtepi32_ps(
			_mm256_srai_epi32(part == 3 ? words : _mm256_slli_epi32(words, 24 - 8 * part), 24));
	default:
		return _mm256_castsi256_ps(words);
	}
}

DT_INLINE __m256 all(const uint32_t *a)
{
	return _mm256_broadcast_ss((const float *)a);
}

/* Like tile_mul.c's turn8: out[w * LANES + i] is word w of row i, eight of each. */
DT_INLINE void turned(uint32_t *out, const char *const row[8], int64_t at)
{
	__m256 r[8], s[8];

	for (int i = 0; i < 8; i++)
		r[i] = _mm256_loadu_ps((const float *)(row[i] + at));
	for (int i = 0; i < 8; i += 2) {
		s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
		s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
	}
	for (int i = 0; i < 8; i += 4) {
		r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
		r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
		r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
		r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
	}
	for (int j = 0; j < 4; j++) {
		_mm256_storeu_ps((float *)out + j * LANES, _mm256_permute2f128_ps(r[j], r[4 + j], 0x20));
		_mm256_storeu_ps((float *)out + (4 + j) * LANES,
				 _mm256_permute2f128_ps(r[j], r[4 + j], 0x31));
	}
}

/*
 * Keys [0, vecs L) of those in lanes. Parameters marked const are constants after inlining. A sum has a
 * latency of four cycles: with few rows twelve sums are in flight, with the elements of one key at a time in
 * a register.
 */
DT_INLINE void across(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const uint32_t *lanes,
		      int64_t d, const void *const *ask, const enum dt_dtype type, const int vecs,
		      const int rows)
{
	const int parts = 4 / (int)dt_dtype_size(type), few = rows <= 3 ? rows : 0;
	__m256 sum[6][4];

	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			sum[r][v] = _mm256_setzero_ps();
	for (int64_t w = 0; w < d; w += parts, lanes += LANES) {
		DT_FOR (2, int v = 0; v < vecs / 2; v++)
			if (ask)
				dt_prefetch_ahead(*ask++);
		DT_FOR (4, int k = 0; k < parts; k++) {
			__m256 f[6], t[4];

			DT_FOR (6, int r = 0; r < few; r++)
				f[r] = all(a + r * a_row + w + k);
			DT_FOR (4, int v = 0; v < vecs; v++) {
				t[v] = part_of(lanes + v * L, type, k);
				DT_FOR (6, int r = 0; r < few; r++)
					ADD(sum[r][v], f[r], t[v]);
			}
			DT_FOR (6, int r = few; r < rows; r++) {
				const __m256 one = all(a + r * a_row + w + k);

				DT_FOR (4, int v = 0; v < vecs; v++)
					ADD(sum[r][v], one, t[v]);
			}
		}
	}
	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			_mm256_storeu_ps(c + r * ldc + v * L, sum[r][v]);
}

/* vecs L columns of all keys, which begin `at` bytes after the beginning of each row. */
DT_INLINE void down(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const void *const *row,
		    int64_t at, int64_t keys, const void *const *ask, const enum dt_dtype type,
		    const int vecs, const int rows)
{
	const int bytes = vecs * L * (int)dt_dtype_size(type); /* bytes per key: 64 of all keys make a line */
	__m256 sum[6][8];

	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (8, int v = 0; v < vecs; v++)
			sum[r][v] = _mm256_loadu_ps(c + r * ldc + v * L);
	for (int64_t k = 0; k < keys; k++) {
		const char *p = row[k];
		__m256 f[6];

		DT_FOR (2, int v = 0; v < (bytes + 63) / 64; v++)
			if (ask && k * bytes % 64 == 0)
				dt_prefetch_ahead(ask[k * bytes / 64 + v]);
		if (!p)
			continue;
		DT_FOR (6, int r = 0; r < rows; r++)
			f[r] = all(a + r * a_row + k);
		DT_FOR (8, int v = 0; v < vecs; v++) {
			const __m256 x = widened(p + at + v * L * dt_dtype_size(type), type);

			DT_FOR (6, int r = 0; r < rows; r++)
				ADD(sum[r][v], f[r], x);
		}
	}
	DT_FOR (6, int r = 0; r < rows; r++)
		DT_FOR (8, int v = 0; v < vecs; v++)
			_mm256_storeu_ps(c + r * ldc + v * L, sum[r][v]);
}

/* Rows processed together, of those left: enough to reuse each loaded number. */
DT_INLINE int64_t together(int64_t left)
{
	return left > 6 ? 4 : left;
}

/* Calls call(..., ROWS) with ROWS a constant equal to n. */
#define OF_ROWS(n, call, ...)                                                                                \
	((n) == 6   ? call(__VA_ARGS__, 6)                                                                   \
	 : (n) == 5 ? call(__VA_ARGS__, 5)                                                                   \
	 : (n) == 4 ? call(__VA_ARGS__, 4)                                                                   \
	 : (n) == 3 ? call(__VA_ARGS__, 3)                                                                   \
	 : (n) == 2 ? call(__VA_ARGS__, 2)                                                                   \
		    : call(__VA_ARGS__, 1))

DT_INLINE void across_typed(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const void *const *row,
			    int64_t at, int64_t keys, int64_t rows, int64_t d, const void *const *ask,
			    const enum dt_dtype type)
{
	static const char zero[DT_TILE_ROWS_DIM * 4];
	const int64_t bytes = d * dt_dtype_size(type), whole = (keys + 15) / 16 * 16;
	uint32_t lanes[DT_TILE_ROWS_DIM * LANES];

	for (int64_t j = 0; j < whole; j += LANES) {
		const int64_t n = dt_min64(LANES, whole - j);

		for (int64_t i = 0; i < n; i += 8) {
			const char *key[8];

			for (int64_t k = 0; k < 8; k++)
				key[k] = j + i + k < keys && row[j + i + k]
						 ? (const char *)row[j + i + k] + at
						 : zero;
			for (int64_t b = 0; b < bytes; b += 32)
				turned(lanes + b / 4 * LANES + i, key, b);
		}
		for (int64_t i = 0, m; i < rows; i += m) {
			m = together(rows - i);
			if (m <= 3 && n == LANES) { /* more vectors, as each sum is a dependency chain */
				OF_ROWS(m, across, c + i * ldc + j, ldc, a + i * a_row, a_row, lanes, d,
					ask && !i ? ask + j * bytes / 64 : NULL, type, 4);
				continue;
			}
			for (int64_t k = 0; k < n; k += 2 * L)
				OF_ROWS(m, across, c + i * ldc + j + k, ldc, a + i * a_row, a_row, lanes + k,
					d, ask && !i ? ask + (j + k) * bytes / 64 : NULL, type, 2);
		}
	}
}

DT_INLINE void down_typed(float *c, int64_t ldc, const uint32_t *a, int64_t a_row, const void *const *row,
			  int64_t at, int64_t keys, int64_t rows, int64_t d, const void *const *ask,
			  const enum dt_dtype type)
{
	const int64_t size = dt_dtype_size(type);

	for (int64_t i = 0, m; i < rows; i += m) {
		const uint32_t *from = a + i * a_row;
		int64_t col = 0;

		m = together(rows - i);
		for (; m <= 3 && col + 4 * L <= d; col += 4 * L)
			OF_ROWS(m, down, c + i * ldc + col, ldc, from, a_row, row, at + col * size, keys,
				ask && !i ? ask + keys * col * size / 64 : NULL, type, 4);
		for (; col < d; col += 2 * L)
			OF_ROWS(m, down, c + i * ldc + col, ldc, from, a_row, row, at + col * size, keys,
				ask && !i ? ask + keys * col * size / 64 : NULL, type, 2);
	}
}

/* Calls call(..., TYPE) with TYPE a constant equal to type. */
#define OF_TYPE(type, call, ...)                                                                             \
	((type) == DT_BF16 ? call(__VA_ARGS__, DT_BF16)                                                      \
	 : (type) == DT_I8 ? call(__VA_ARGS__, DT_I8)                                                        \
			   : call(__VA_ARGS__, DT_F32))

DT_TILE_OF_ROWS(dt_tile_across_rows_v3)
{
	OF_TYPE(type, across_typed, c, ldc, a, a_row, row, at, keys, rows, d, ask);
}

DT_TILE_OF_ROWS(dt_tile_down_rows_v3)
{
	OF_TYPE(type, down_typed, c, ldc, a, a_row, row, at, keys, rows, d, ask);
}
/* SPDX-License-Identifier: Apache-2.0 */
