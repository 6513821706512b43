/* Compiled for AVX512_VNNI (meson.build); elsewhere dt_tile_int8 returns false. */
#include "kernels/cpu/tile_int8.h"
#include "kernels/int8.h"

#include <math.h>

#ifdef __x86_64__
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tile_int8_join.h"

typedef __m512i vec;

DT_INLINE vec four(uint32_t word)
{
	return _mm512_set1_epi32((int)word);
}

DT_INLINE void clear(vec sum[4][2][DT_TILE_PARTS], const int rows, const int parts)
{
	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (2, int g = 0; g < 2; g++)
			DT_FOR (3, int p = 0; p < parts; p++)
				sum[r][g][p] = _mm512_setzero_si512();
}

/* Calls block(..., R) with R a constant equal to n, 1 to 4. */
#define BY_ROWS(n, block, ...)                                                                               \
	do {                                                                                                 \
		if ((n) == 4)                                                                                \
			block(__VA_ARGS__, 4);                                                               \
		else if ((n) == 3)                                                                           \
			block(__VA_ARGS__, 3);                                                               \
		else if ((n) == 2)                                                                           \
			block(__VA_ARGS__, 2);                                                               \
		else                                                                                         \
			block(__VA_ARGS__, 1);                                                               \
	} while (0)

/* Two groups of keys, rows of q from i on. */
DT_INLINE void block_across(float *s, const struct dt_tile_bytes *q, int64_t i, const char *const *k,
			    const char *const *next, const float *k_scale, int64_t words, const int parts,
			    const int rows)
{
	vec sum[4][2][DT_TILE_PARTS];

	clear(sum, rows, parts);
	for (int64_t w = 0; w < words; w++) {
		const vec key[2] = {_mm512_loadu_si512(k[0] + 64 * w), _mm512_loadu_si512(k[1] + 64 * w)};

		if (next) {
			dt_prefetch_ahead(next[0] + 64 * w);
			dt_prefetch_ahead(next[1] + 64 * w);
		}
		DT_FOR (4, int r = 0; r < rows; r++)
			DT_FOR (3, int p = 0; p < parts; p++) {
				const vec x = four(q->part[p][(i + r) * words + w]);

				sum[r][0][p] = _mm512_dpbusd_epi32(sum[r][0][p], key[0], x);
				sum[r][1][p] = _mm512_dpbusd_epi32(sum[r][1][p], key[1], x);
			}
	}
	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (2, int g = 0; g < 2; g++)
			_mm512_storeu_ps(
				s + (i + r) * DT_TILE + 16 * g,
				dt_int8_score(sum[r][g], parts, q, i + r, _mm512_loadu_ps(k_scale + 16 * g)));
}

/* Rows from `first` on; if these are not all, the other rows do the prefetching. */
DT_INLINE void rows_across(float *s, const struct dt_tile_bytes *q, const void *const k[4],
			   const void *const next[4], const float *k_scale, int64_t first, int64_t n,
			   int64_t words, const int most, const int parts)
{
	for (int g = 0; g < 4; g += 2) {
		const char *const *key = (const char *const *)k + g, *const *then =
									     (const char *const *)next + g;

		for (int64_t i = first; i < n; i += most)
			BY_ROWS(dt_min64(most, n - i), block_across, s + 16 * g, q, i, key, i ? NULL : then,
				k_scale + 16 * g, words, parts);
	}
}

/* How many of n rows use AMX tiles: multiples of sixteen, and a last tile that is at least half full. */
static int64_t tiled(const struct dt_tile_bytes *q, int64_t n)
{
	if (!dt_isa()->amx || q->parts != 2)
		return 0;
	return n % 16 < 8 ? n / 16 * 16 : n;
}

void dt_tile_int8_across(float *s, const struct dt_tile_bytes *q, const void *const k[4],
			 const void *const next[4], const float *k_scale, int64_t n, int64_t words)
{
	const int64_t done = tiled(q, n);

	if (done)
		(dt_isa()->amx == DT_AMX_TILES ? dt_tile_int8_across_amx : dt_tile_int8_across_amx_plain_v4)(
			s, q, k, next, k_scale, done, words);
	if (q->parts == 2)
		rows_across(s, q, k, next, k_scale, done, n, words, 4, 2);
	else
		rows_across(s, q, k, next, k_scale, 0, n, words, 2, 3);
}

/* Columns j .. j + 31 of o, from row i on. */
DT_INLINE void block_down(float *o, int64_t ldo, const struct dt_tile_bytes *w, int64_t i,
			  const char *const *v, const char *const *next, int64_t j, int64_t d,
			  const int parts, const int rows)
{
	vec sum[4][2][DT_TILE_PARTS];

	clear(sum, rows, parts);
	for (int64_t u = 0; u < DT_TILE / 4; u++) {
		const int64_t at = 4 * (u % 4 * d + j);
		const vec value[2] = {_mm512_loadu_si512(v[u / 4] + at),
				      _mm512_loadu_si512(v[u / 4] + at + 64)};

		if (next) {
			dt_prefetch_ahead(next[u / 4] + at);
			dt_prefetch_ahead(next[u / 4] + at + 64);
		}
		DT_FOR (4, int r = 0; r < rows; r++)
			DT_FOR (3, int p = 0; p < parts; p++) {
				const vec x = four(w->part[p][(i + r) * (DT_TILE / 4) + u]);

				sum[r][0][p] = _mm512_dpbusd_epi32(sum[r][0][p], x, value[0]);
				sum[r][1][p] = _mm512_dpbusd_epi32(sum[r][1][p], x, value[1]);
			}
	}
	DT_FOR (4, int r = 0; r < rows; r++)
		DT_FOR (2, int c = 0; c < 2; c++) {
			float *to = o + (i + r) * ldo + j + 16 * c;

			_mm512_storeu_ps(to, dt_int8_add(_mm512_loadu_ps(to), sum[r][c], parts, w, i + r));
		}
}

DT_INLINE void rows_down(float *o, int64_t ldo, const struct dt_tile_bytes *w, const void *const v[4],
			 const void *const next[4], int64_t first, int64_t n, int64_t d, const int most,
			 const int parts)
{
	const char *const *value = (const char *const *)v, *const *then = (const char *const *)next;

	for (int64_t j = 0; j < d; j += 32)
		for (int64_t i = first; i < n; i += most)
			BY_ROWS(dt_min64(most, n - i), block_down, o, ldo, w, i, value, i ? NULL : then, j, d,
				parts);
}

void dt_tile_int8_down(float *o, int64_t ldo, const struct dt_tile_bytes *w, const void *const v[4],
		       const void *const next[4], int64_t n, int64_t d)
{
	const int64_t done = tiled(w, n);

	if (done)
		(dt_isa()->amx == DT_AMX_TILES ? dt_tile_int8_down_amx
					       : dt_tile_int8_down_amx_plain_v4)(o, ldo, w, v, next, done, d);
	if (w->parts == 2)
		rows_down(o, ldo, w, v, next, done, n, d, 4, 2);
	else
		rows_down(o, ldo, w, v, next, 0, n, d, 2, 3);
}

void dt_tile_bytes_of(struct dt_tile_bytes *q, const void *const *row, enum dt_dtype type, int64_t n,
		      int64_t d)
{
	float buf[DT_CHUNK];

	for (int64_t i = 0; i < n; i++) {
		int8_t *to[DT_TILE_PARTS];
		vec sum[DT_TILE_PARTS];
		uint32_t max = 0;
		float inverse;

		for (int p = 0; p < DT_TILE_PARTS; p++)
			sum[p] = _mm512_setzero_si512();
		for (int p = 0; p < q->parts; p++)
			to[p] = (int8_t *)q->part[p] + i * d;
		for (int64_t c = 0; c < d; c += DT_CHUNK) {
			const int64_t m = dt_min64(DT_CHUNK, d - c);
			const uint32_t here = dt_largest(
				dt_load(buf, (const char *)row[i] + c * dt_dtype_size(type), type, m), m);

			max = here > max ? here : max;
		}
		dt_int_scale(max, q->parts == 2 ? 127 * 256.f : 127 * 65536.f, &q->scale[i], &inverse);
		for (int64_t c = 0; c < d; c += DT_CHUNK) {
			const int64_t m = dt_min64(DT_CHUNK, d - c);
			const float *x =
				dt_load(buf, (const char *)row[i] + c * dt_dtype_size(type), type, m);

			for (int64_t j = 0; j < m; j += 16) {
				const __m512 y = inverse ? _mm512_loadu_ps(x + j) : _mm512_setzero_ps();
				vec v = _mm512_cvtps_epi32(_mm512_mul_ps(y, _mm512_set1_ps(inverse)));

				for (int p = q->parts - 1; p >= 0; p--) {
					const vec low = _mm512_srai_epi32(_mm512_slli_epi32(v, 24), 24);

					_mm_storeu_si128((__m128i *)(to[p] + c + j), _mm512_cvtepi32_epi8(v));
					sum[p] = _mm512_add_epi32(sum[p], low);
					v = _mm512_srai_epi32(_mm512_sub_epi32(v, low), 8);
				}
			}
		}
		q->offset[0][i] =
			128 * (256 * _mm512_reduce_add_epi32(sum[0]) + _mm512_reduce_add_epi32(sum[1]));
		q->offset[1][i] = 128 * _mm512_reduce_add_epi32(sum[2]);
	}
}

void dt_tile_bytes_of_weights(struct dt_tile_bytes *w, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++, x += DT_TILE) {
		float inverse;

		dt_int_scale(dt_largest(x, DT_TILE), w->parts == 2 ? 65535.f : 16776960.f, &w->scale[i],
			     &inverse);
		for (int64_t j = 0; j < DT_TILE; j += 16) {
			const vec v = _mm512_cvtps_epi32(
				_mm512_mul_ps(_mm512_loadu_ps(x + j), _mm512_set1_ps(inverse)));

			for (int p = 0; p < w->parts; p++)
				_mm_storeu_si128((__m128i *)(w->part[p] + i * (DT_TILE / 4) + j / 4),
						 _mm512_cvtepi32_epi8(_mm512_srli_epi32(
							 v, (unsigned)(8 * (w->parts - 1 - p)))));
		}
	}
}
#else
void dt_tile_int8_across(float *s, const struct dt_tile_bytes *q, const void *const k[4],
			 const void *const next[4], const float *k_scale, int64_t n, int64_t words)
{
}

void dt_tile_int8_down(float *o, int64_t ldo, const struct dt_tile_bytes *w, const void *const v[4],
		       const void *const next[4], int64_t n, int64_t d)
{
}

void dt_tile_bytes_of(struct dt_tile_bytes *q, const void *const *row, enum dt_dtype type, int64_t n,
		      int64_t d)
{
}

void dt_tile_bytes_of_weights(struct dt_tile_bytes *w, const float *x, int64_t n)
{
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
