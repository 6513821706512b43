/*
 * AVX-512 versions of the loops in blocks8.c, for as many of n values as fill their vectors; they return that
 * number. The results are those of the scalar loops, bit for bit.
 *
 * A map is linear within a decade, so that the code of x, or the one before it, follows from x's decade by a
 * multiplication and an addition; comparing with the midpoint after it decides. Tables of 256 floats are kept
 * as their upper and lower halves, and read by permutations of words: gathers of 16 bytes take as long as all
 * the rest.
 */
#ifndef DT_KERNELS_BLOCKS8_WIDE_H
#define DT_KERNELS_BLOCKS8_WIDE_H

#include "kernels/blocks8.h"

#include <string.h>

/* Tables of one map. Decades 1 to 7; 0: what is nearer to 0 than to the smallest value; 8: nearest to 1. */
struct wide_codes {
	_Alignas(64) uint16_t value[2][256], middle[2][256]; /* lower halves, upper halves */
	float bound[32];    /* by binade: the largest number of its lower decade, Inf if it has one decade */
	int32_t decade[32]; /* by binade: the lower decade */
	/* By decade: the number of the positive code of x is min(times x + base, most), rounded down. */
	float times[16], base[16], most[16];
	int32_t least; /* the code of the smallest positive value */
};

/* Index of x's binade in the tables, which begin below the smallest bound. */
static inline int wide_binade(float x)
{
	uint32_t bits;

	memcpy(&bits, &x, 4);
	return (int)(bits >> 23) - 100;
}

#ifdef __x86_64__
#include <immintrin.h>

#define WIDE	    __attribute__((target("arch=x86-64-v4")))
#define WIDE_INLINE static inline __attribute__((always_inline)) WIDE

/* Words i of a table of 256 for 32 indices. */
WIDE_INLINE __m512i wide_words(const uint16_t *table, __m512i i, __mmask32 odd, __mmask32 upper)
{
	__m512i v[4];

	for (int k = 0; k < 4; k++)
		v[k] = _mm512_permutex2var_epi16(_mm512_load_si512(table + 64 * k), i,
						 _mm512_load_si512(table + 64 * k + 32));
	v[0] = _mm512_mask_blend_epi16(odd, v[0], v[1]);
	v[2] = _mm512_mask_blend_epi16(odd, v[2], v[3]);
	return _mm512_mask_blend_epi16(upper, v[0], v[2]);
}

/* The floats of a table at 32 indices of 16 bits. */
WIDE_INLINE void wide_floats(__m512 to[2], const uint16_t table[2][256], __m512i i)
{
	const __mmask32 odd = _mm512_test_epi16_mask(i, _mm512_set1_epi16(64)),
			upper = _mm512_test_epi16_mask(i, _mm512_set1_epi16(128));
	const __m512i low = wide_words(table[0], i, odd, upper), high = wide_words(table[1], i, odd, upper);

	to[0] = _mm512_castsi512_ps(
		_mm512_or_si512(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(low)),
				_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(high)), 16)));
	to[1] = _mm512_castsi512_ps(_mm512_or_si512(
		_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(low, 1)),
		_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(high, 1)), 16)));
}

static WIDE int64_t wide_decode(float *to, const struct wide_codes *c, const uint8_t *code, float s,
				int64_t n)
{
	const __m512 scale = _mm512_set1_ps(s);
	int64_t i = 0;

	for (; i + 32 <= n; i += 32) {
		__m512 v[2];

		wide_floats(v, c->value,
			    _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(code + i))));
		_mm512_storeu_ps(to + i, _mm512_mul_ps(v[0], scale));
		_mm512_storeu_ps(to + i + 16, _mm512_mul_ps(v[1], scale));
	}
	return i;
}

#define WIDE_FOR for (int j = 0; j < 4; j++) /* for each of four vectors */

/*
 * The codes of x, or those before them. Magnitudes are changed by 1e-5 of themselves towards lower codes,
 * more than rounding errors and less than a code. Each step is done for all four vectors before the next one:
 * one chain of steps takes as long as the instructions of three.
 */
WIDE_INLINE void wide_guess(__m512i code[4], const struct wide_codes *c, const __m512 x[4],
			    const bool is_signed)
{
	const __m512 down = _mm512_set1_ps(0.99999f), up = _mm512_set1_ps(1.00001f);
	__m512 a[4], k[4];
	__m512i at[4], decade[4];
	__mmask16 minus[4];

	WIDE_FOR
	{
		minus[j] = _mm512_movepi32_mask(_mm512_castps_si512(x[j]));
		a[j] = is_signed
			       ? _mm512_mul_ps(_mm512_abs_ps(x[j]), _mm512_mask_blend_ps(minus[j], down, up))
			       : _mm512_mul_ps(_mm512_max_ps(x[j], _mm512_setzero_ps()), down);
	}
	WIDE_FOR at[j] = _mm512_max_epi32(
		_mm512_sub_epi32(_mm512_srli_epi32(_mm512_castps_si512(a[j]), 23), _mm512_set1_epi32(100)),
		_mm512_setzero_si512());
	WIDE_FOR k[j] =
		_mm512_permutex2var_ps(_mm512_loadu_ps(c->bound), at[j], _mm512_loadu_ps(c->bound + 16));
	WIDE_FOR decade[j] = _mm512_permutex2var_epi32(_mm512_loadu_si512(c->decade), at[j],
						       _mm512_loadu_si512(c->decade + 16));
	WIDE_FOR decade[j] = _mm512_mask_add_epi32(decade[j], _mm512_cmp_ps_mask(a[j], k[j], _CMP_GT_OQ),
						   decade[j], _mm512_set1_epi32(1));
	WIDE_FOR k[j] = _mm512_fmadd_ps(a[j], _mm512_permutexvar_ps(decade[j], _mm512_loadu_ps(c->times)),
					_mm512_permutexvar_ps(decade[j], _mm512_loadu_ps(c->base)));
	WIDE_FOR k[j] = _mm512_min_ps(k[j], _mm512_permutexvar_ps(decade[j], _mm512_loadu_ps(c->most)));
	WIDE_FOR code[j] = _mm512_add_epi32(_mm512_cvttps_epi32(k[j]), _mm512_set1_epi32(c->least));
	if (is_signed)
		WIDE_FOR code[j] = _mm512_max_epi32(
			_mm512_mask_sub_epi32(code[j], minus[j], _mm512_set1_epi32(254), code[j]),
			_mm512_setzero_si512());
}

/* Whether x > y; whether x is a number: bits 0 to 15 for the first vector, 16 to 31 for the second. */
WIDE_INLINE __mmask32 wide_above(const __m512 x[2], const __m512 y[2])
{
	return _mm512_kunpackw(_mm512_cmp_ps_mask(x[1], y[1], _CMP_GT_OQ),
			       _mm512_cmp_ps_mask(x[0], y[0], _CMP_GT_OQ));
}

WIDE_INLINE __mmask32 wide_number(const __m512 x[2])
{
	return _mm512_kunpackw(_mm512_cmp_ps_mask(x[1], x[1], _CMP_ORD_Q),
			       _mm512_cmp_ps_mask(x[0], x[0], _CMP_ORD_Q));
}

WIDE_INLINE int64_t wide_encode_all(const struct wide_codes *c, uint8_t *code, const float *from,
				    float inverse, int64_t n, const bool is_signed)
{
	int64_t i = 0;

	for (; i + 64 <= n; i += 64) {
		__m512 x[4], middle[4];
		__m512i guess[4], k[2];

		WIDE_FOR x[j] = _mm512_mul_ps(_mm512_loadu_ps(from + i + 16 * j), _mm512_set1_ps(inverse));
		wide_guess(guess, c, x, is_signed);
		for (int j = 0; j < 2; j++)
			k[j] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(guess[2 * j])),
						  _mm512_cvtepi32_epi16(guess[2 * j + 1]), 1);
		for (int j = 0; j < 2; j++)
			wide_floats(middle + 2 * j, c->middle, k[j]);
		for (int j = 0; j < 2; j++)
			_mm256_storeu_si256(
				(__m256i *)(code + i + 32 * j),
				_mm512_maskz_cvtepi16_epi8(
					wide_number(x + 2 * j), /* NaN: code 0 */
					_mm512_mask_add_epi16(k[j], wide_above(x + 2 * j, middle + 2 * j),
							      k[j], _mm512_set1_epi16(1))));
	}
	return i;
}

static WIDE int64_t wide_encode(const struct wide_codes *c, uint8_t *code, const float *from, float inverse,
				int64_t n, bool is_signed)
{
	return is_signed ? wide_encode_all(c, code, from, inverse, n, true)
			 : wide_encode_all(c, code, from, inverse, n, false);
}
#else
static int64_t wide_decode(float *to, const struct wide_codes *c, const uint8_t *code, float s, int64_t n)
{
	return 0;
}

static int64_t wide_encode(const struct wide_codes *c, uint8_t *code, const float *from, float inverse,
			   int64_t n, bool is_signed)
{
	return 0;
}
#endif

/*
 * Everything of a map. For each upper 16 bits of a float, `from` has the smallest code of the floats that
 * begin with them. Such a float has this code or the next one, since the map's values are further apart than
 * floats with equal upper halves.
 */
struct codes {
	float value[256], middle[256]; /* middle[i]: midpoint of value[i] and value[i + 1] */
	uint8_t from[1 << 16];
	struct wide_codes wide;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
