/*
 * Products with int8 rows in place in a cache, by pairwise sums of 16-bit products (AVX2: one instruction
 * multiplies twice as many as in f32, and one instruction widens the bytes). See tile.h.
 */
#include "kernels/cpu/tile.h"
#include "kernels/int8.h"

#include <immintrin.h>

static const int8_t zeros[DT_TILE_ROWS_DIM];

void dt_tile_halves_of(int16_t *to, float *scale, const void *const *row, enum dt_dtype type, int64_t n,
		       int64_t d)
{
	float buf[DT_TILE_ROWS_DIM];

	for (int64_t i = 0; i < n; i++, to += d) {
		const float *x = dt_load(buf, row[i], type, d);
		float inverse;

		dt_int_scale(dt_largest(x, d), 32767, &scale[i], &inverse);
		for (int64_t j = 0; j < d; j += 8) {
			const __m256i v = _mm256_cvtps_epi32(
				_mm256_mul_ps(_mm256_loadu_ps(x + j), _mm256_set1_ps(inverse)));
			const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);

			/* 0 times Inf and NaN become the lowest integer: they make the scale NaN */
			_mm_storeu_si128((__m128i *)(to + j), _mm_packs_epi32(low, high));
		}
	}
}

/*
 * Rows of q times four keys: sum[r] holds the sums of row r. With more than two rows, two keys at a time:
 * more sums do not fit the registers. ask: one line per 16 elements.
 */
DT_INLINE void four_keys(__m128i sum[4], const int16_t *q, int64_t d, const int8_t *const key[4],
			 const void *const *ask, const int rows)
{
	const int turns = rows > 2 ? 2 : 1,
		  keys = 4 / turns; /* UBSan would check a division in a loop's condition */
	__m256i pairs[4][2];

	DT_FOR (2, int h = 0; h < turns; h++) {
		__m256i part[4][4];

		DT_FOR (4, int r = 0; r < rows; r++)
			DT_FOR (4, int v = 0; v < keys; v++)
				part[r][v] = _mm256_setzero_si256();
		for (int64_t w = 0; w < d; w += 16) {
			__m256i k[4];

			DT_FOR (4, int v = 0; v < keys; v++)
				k[v] = _mm256_cvtepi8_epi16(
					_mm_loadu_si128((const __m128i *)(key[h * keys + v] + w)));
			if (ask && !h)
				dt_prefetch_ahead(ask[w / 16]);
			DT_FOR (4, int r = 0; r < rows; r++) {
				__m256i x = _mm256_loadu_si256((const __m256i *)(q + r * d + w));

				__asm__("" : "+x"(x)); /* otherwise gcc reloads it for each key */
				DT_FOR (4, int v = 0; v < keys; v++)
					part[r][v] = _mm256_add_epi32(part[r][v], _mm256_madd_epi16(k[v], x));
			}
		}
		DT_FOR (4, int r = 0; r < rows; r++)
			DT_FOR (2, int v = 0; v < keys; v += 2)
				pairs[r][h + v / 2] = _mm256_hadd_epi32(part[r][v], part[r][v + 1]);
	}
	DT_FOR (4, int r = 0; r < rows; r++) {
		const __m256i four = _mm256_hadd_epi32(pairs[r][0], pairs[r][1]);

		sum[r] = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
	}
}

DT_INLINE void rows_across(float *s, const int16_t *q, const float *scale, const int8_t *const *key,
			   const float *k_scale, int64_t keys, int64_t d, const void *const *ask,
			   const int rows)
{
	for (int64_t j = 0; j < keys; j += 4) {
		const __m128 of_key = _mm_loadu_ps(k_scale + j);
		__m128i sum[4];

		four_keys(sum, q, d, key + j, ask ? ask + j * d / 64 : NULL, rows);
		DT_FOR (4, int r = 0; r < rows; r++)
			_mm_storeu_ps(s + r * DT_TILE + j,
				      _mm_mul_ps(_mm_cvtepi32_ps(sum[r]),
						 _mm_mul_ps(_mm_set1_ps(scale[r]), of_key)));
	}
}

/* Computes 8 vecs columns of all keys. ask: one line per 64 bytes. */
DT_INLINE void rows_down(float *o, int64_t ldo, const int16_t *w, const float *scale,
			 const int8_t *const *value, int64_t at, int64_t keys, const void *const *ask,
			 const int vecs, const int rows)
{
	const int lines_after = 64 / (8 * vecs); /* number of keys whose bytes make up a line */
	__m256i sum[4][4];

	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (4, int v = 0; v < vecs; v++)
			sum[r][v] = _mm256_setzero_si256();
	for (int64_t k = 0; k < keys; k += 2) {
		__m256i pair[4];

		if (ask && k % lines_after == 0)
			dt_prefetch_ahead(ask[k / lines_after]);
		DT_FOR (2, int v = 0; v < vecs; v += 2) {
			const __m256i a = _mm256_cvtepi8_epi16(
				_mm_loadu_si128((const __m128i *)(value[k] + at + 8 * v)));
			const __m256i b = _mm256_cvtepi8_epi16(
				_mm_loadu_si128((const __m128i *)(value[k + 1] + at + 8 * v)));

			pair[v] = _mm256_unpacklo_epi16(a, b);
			pair[v + 1] = _mm256_unpackhi_epi16(a, b);
		}
		DT_FOR (4, int r = 0; r < rows; r++) {
			int32_t two;

			memcpy(&two, w + r * DT_TILE + k, 4);
			DT_FOR (4, int v = 0; v < vecs; v++)
				sum[r][v] = _mm256_add_epi32(
					sum[r][v], _mm256_madd_epi16(pair[v], _mm256_set1_epi32(two)));
		}
	}
	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (2, int v = 0; v < vecs; v += 2) {
			float *to = o + r * ldo + 8 * v;
			const __m256 f = _mm256_set1_ps(scale[r]);
			const __m256i low = _mm256_permute2x128_si256(sum[r][v], sum[r][v + 1], 0x20),
				      high = _mm256_permute2x128_si256(sum[r][v], sum[r][v + 1], 0x31);

			_mm256_storeu_ps(to,
					 _mm256_fmadd_ps(_mm256_cvtepi32_ps(low), f, _mm256_loadu_ps(to)));
			_mm256_storeu_ps(to + 8, _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), f,
								 _mm256_loadu_ps(to + 8)));
		}
}

/* Pads the list of keys to a multiple of four, with zeros. */
static int64_t whole(const int8_t *to[DT_TILE], const void *const *row, int64_t at, int64_t keys)
{
	const int64_t n = (keys + 3) / 4 * 4;

	for (int64_t i = 0; i < n; i++)
		to[i] = i < keys && row[i] ? (const int8_t *)row[i] + at : zeros;
	return n;
}

/* Calls call(..., ROWS) with ROWS a constant equal to n. */
#define OF_ROWS(n, call, ...)                                                                                \
	((n) == 4   ? call(__VA_ARGS__, 4)                                                                   \
	 : (n) == 3 ? call(__VA_ARGS__, 3)                                                                   \
	 : (n) == 2 ? call(__VA_ARGS__, 2)                                                                   \
		    : call(__VA_ARGS__, 1))

void dt_tile_halves_across(float *s, const int16_t *q, const float *scale, const void *const *row, int64_t at,
			   const float *k_scale, int64_t keys, int64_t n, int64_t d, const void *const *ask)
{
	const int8_t *key[DT_TILE];
	const int64_t all = whole(key, row, at, keys);

	for (int64_t i = 0, m; i < n; i += m) {
		m = dt_min64(4, n - i);
		OF_ROWS(m, rows_across, s + i * DT_TILE, q + i * d, scale + i, key, k_scale, all, d,
			i ? NULL : ask);
	}
}

void dt_tile_halves_down(float *o, int64_t ldo, const int16_t *w, const float *scale, const void *const *row,
			 int64_t at, int64_t keys, int64_t n, int64_t d, const void *const *ask)
{
	const int8_t *value[DT_TILE];
	const int64_t all = whole(value, row, at, keys);

	for (int64_t i = 0, m; i < n; i += m) {
		int64_t c = 0;

		m = dt_min64(4, n - i);
		for (; m <= 2 && c + 32 <= d; c += 32)
			OF_ROWS(m, rows_down, o + i * ldo + c, ldo, w + i * DT_TILE, scale + i, value, c, all,
				ask && !i ? ask + all * c / 64 : NULL, 4);
		for (; c < d; c += 16)
			OF_ROWS(m, rows_down, o + i * ldo + c, ldo, w + i * DT_TILE, scale + i, value, c, all,
				ask && !i ? ask + all * c / 64 : NULL, 2);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
