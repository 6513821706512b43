#include "kernels/blocks8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * For each upper 16 bits of a float: the smallest code of the floats that begin with them. Such a float has
 * this code or the next one, since the map's values are further apart than floats with equal upper halves.
 */
struct codes {
	float value[256], middle[256]; /* middle[i]: midpoint of value[i] and value[i + 1] */
	uint8_t from[(1 << 16) + 3];   /* padded, as the gather reads 32-bit words */
};

static struct codes codes[2];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_value(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

/* Seven decades up to 1; each has twice as many values as the decade below it. */
static void make_values(float *v, bool is_signed)
{
	int n = 0;

	for (int i = 0; i < 7; i++) {
		const int steps = 1 << (is_signed ? i : i + 1);
		const double decade = pow(10, i - 6);

		for (int k = 0; k < steps; k++) {
			const double x = 0.1 + 0.9 * (k + 0.5) / steps;

			v[n++] = (float)(x * decade);
			if (is_signed)
				v[n++] = (float)(-x * decade);
		}
	}
	v[n++] = 0;
	v[n++] = 1;
	qsort(v, 256, sizeof(*v), by_value);
}

static void make_codes(struct codes *c, bool is_signed)
{
	make_values(c->value, is_signed);
	for (int i = 0; i < 256; i++)
		c->middle[i] = i < 255 ? 0.5f * (c->value[i] + c->value[i + 1]) : INFINITY;
	for (uint32_t key = 0; key < 1 << 16; key++) {
		const uint32_t bits =
			key << 16 | (key & 0x8000 ? 0xffff : 0); /* the lowest of these floats */
		float low;
		int i = 0;

		memcpy(&low, &bits, sizeof(low));
		while (i < 255 && low > c->middle[i])
			i++;
		c->from[key] = (uint8_t)i;
	}
}

static void make(void)
{
	make_codes(&codes[0], false);
	make_codes(&codes[1], true);
}

static const struct codes *get(bool is_signed)
{
	pthread_once(&once, make);
	return &codes[is_signed];
}

const float *dt_blocks8_map(bool is_signed)
{
	return get(is_signed)->value;
}

static int64_t blocks(int64_t n)
{
	return (n + DT_STATE_BLOCK - 1) / DT_STATE_BLOCK;
}

/*
 * AVX-512 versions of the loops in dt_blocks8_decode and encode, for the first n / 16 * 16 values; they
 * return that number. The table is held in 16 registers: a gather takes as long as the permutations, and
 * encoding needs one gather already.
 */
#ifdef __x86_64__
#include <immintrin.h>

#define WIDE __attribute__((target("arch=x86-64-v4")))

static inline __attribute__((always_inline)) WIDE __m512 look_up(const __m512 table[16], __m512i code)
{
	const __mmask16 odd = _mm512_test_epi32_mask(code, _mm512_set1_epi32(32)),
			second = _mm512_test_epi32_mask(code, _mm512_set1_epi32(64)),
			upper = _mm512_test_epi32_mask(code, _mm512_set1_epi32(128));
	__m512 v[8];

	for (int i = 0; i < 8; i++)
		v[i] = _mm512_permutex2var_ps(table[2 * i], code, table[2 * i + 1]);
	for (int i = 0; i < 8; i += 2)
		v[i] = _mm512_mask_blend_ps(odd, v[i], v[i + 1]);
	for (int i = 0; i < 8; i += 4)
		v[i] = _mm512_mask_blend_ps(second, v[i], v[i + 2]);
	return _mm512_mask_blend_ps(upper, v[0], v[4]);
}

static inline __attribute__((always_inline)) WIDE void load_table(__m512 table[16], const float *from)
{
	for (int i = 0; i < 16; i++)
		table[i] = _mm512_loadu_ps(from + 16 * i);
}

static WIDE int64_t decode_wide(float *to, const struct codes *c, const uint8_t *code, float s, int64_t n)
{
	const __m512 scale = _mm512_set1_ps(s);
	__m512 table[16];
	int64_t i = 0;

	load_table(table, c->value);
	for (; i + 16 <= n; i += 16) {
		const __m512i k = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(code + i)));

		_mm512_storeu_ps(to + i, _mm512_mul_ps(look_up(table, k), scale));
	}
	return i;
}

static WIDE int64_t encode_wide(const struct codes *c, uint8_t *code, const float *from, float inverse,
				int64_t n)
{
	const __m512 scale = _mm512_set1_ps(inverse);
	__m512 table[16];
	int64_t i = 0;

	load_table(table, c->middle);
	for (; i + 16 <= n; i += 16) {
		const __m512 x = _mm512_mul_ps(_mm512_loadu_ps(from + i), scale);
		const __m512i key = _mm512_srli_epi32(_mm512_castps_si512(x), 16),
			      k = _mm512_and_si512(_mm512_i32gather_epi32(key, c->from, 1),
						   _mm512_set1_epi32(255));
		const __mmask16 next = _mm512_cmp_ps_mask(x, look_up(table, k), _CMP_GT_OQ);

		_mm_storeu_si128((__m128i *)(code + i), _mm512_cvtepi32_epi8(_mm512_mask_add_epi32(
								k, next, k, _mm512_set1_epi32(1))));
	}
	return i;
}
#else
static int64_t decode_wide(float *to, const struct codes *c, const uint8_t *code, float s, int64_t n)
{
	return 0;
}

static int64_t encode_wide(const struct codes *c, uint8_t *code, const float *from, float inverse, int64_t n)
{
	return 0;
}
#endif

void dt_blocks8_decode(float *to, const void *state, int64_t all, int64_t first, int64_t n, bool is_signed)
{
	const struct codes *c = get(is_signed);
	const float *scale = state;
	const uint8_t *code = (const uint8_t *)(scale + blocks(all));

	for (int64_t i = 0, end; i < n; i = end) {
		const int64_t block = (first + i) / DT_STATE_BLOCK;
		const float s = scale[block];

		end = (block + 1) * DT_STATE_BLOCK - first;
		end = end < n ? end : n;
		if (dt_isa()->avx512)
			i += decode_wide(to + i, c, code + first + i, s, end - i);
		for (int64_t k = i; k < end; k++)
			to[k] = c->value[code[first + k]] * s;
	}
}

/* The first value of largest magnitude. */
static DT_SIMD float largest_of(const float *x, int64_t n)
{
	float high = 0, low = 0;

#pragma omp simd reduction(max : high) reduction(min : low)
	for (int64_t i = 0; i < n; i++) {
		high = x[i] > high ? x[i] : high;
		low = x[i] < low ? x[i] : low;
	}
	if (high != -low || high == 0)
		return high > -low ? high : low;
	for (int64_t i = 0;; i++)
		if (x[i] == high || x[i] == low)
			return x[i];
}

static void encode(const struct codes *c, float *scale, uint8_t *code, const float *from, int64_t n)
{
	const float most = largest_of(from, n);
	const float inverse = fabsf(most) > 1e-37f ? 1 / most : 0;

	*scale = inverse != 0 ? most : 0;
	for (int64_t i = dt_isa()->avx512 ? encode_wide(c, code, from, inverse, n) : 0; i < n; i++) {
		const float x = from[i] * inverse;
		uint32_t bits;
		int k;

		memcpy(&bits, &x, sizeof(bits));
		k = c->from[bits >> 16];
		code[i] =
			(uint8_t)(k + (x > c->middle[k])); /* arithmetic, as a branch would be mispredicted */
	}
}

void dt_blocks8_encode(void *state, int64_t all, int64_t first, const float *from, int64_t n, bool is_signed)
{
	const struct codes *c = get(is_signed);
	float *scale = state;
	uint8_t *code = (uint8_t *)(scale + blocks(all));

	for (int64_t i = 0; i < n; i += DT_STATE_BLOCK)
		encode(c, &scale[(first + i) / DT_STATE_BLOCK], code + first + i, from + i,
		       n - i < DT_STATE_BLOCK ? n - i : DT_STATE_BLOCK);
}
/* SPDX-License-Identifier: Apache-2.0 */
