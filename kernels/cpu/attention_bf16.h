/*
 * The online softmax where words are pairs of bf16, for files compiled for AVX512_BF16. A row's bits depend
 * on that row alone.
 */
#ifndef DT_KERNELS_CPU_ATTENTION_BF16_H
#define DT_KERNELS_CPU_ATTENTION_BF16_H

#include "kernels/cpu/attention.h"

#include <immintrin.h>
#include <math.h>

#define L     16
#define LOG2E 1.44269504f

/* Bit mask of the keys of a tile that a row sees. */
DT_INLINE uint64_t seen(const struct dt_attn_row *row, int64_t key)
{
	const int64_t from = row->first - key, end = row->last + 1 - key;
	uint64_t bits = end >= DT_TILE ? ~0ull : end > 0 ? (1ull << end) - 1 : 0;

	if (from > 0)
		bits &= from < DT_TILE ? ~0ull << from : 0;
	return bits;
}

/* 1 + r (a + r (b + r (c + r d))) */
DT_INLINE __m512 polynomial(__m512 r, float a, float b, float c, float d)
{
	__m512 p = _mm512_fmadd_ps(_mm512_set1_ps(d), r, _mm512_set1_ps(c));

	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(b));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(a));
	return _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
}

/*
 * 2^t for t <= 127 where `sees` is set, else 0; the polynomial of dt_sigmoid2_power (vec.h). r is t minus the
 * nearest integer, by an instruction (VREDUCEPS) that costs half of VRNDSCALEPS. NaN for NaN; 0 for -Inf,
 * whose r is 0 (Intel SDM volume 2, VREDUCEPS and VSCALEFPS, tables of special values).
 */
DT_INLINE __m512 exp2_quick(__mmask16 sees, __m512 t)
{
	const __m512 r = _mm512_reduce_ps(t, 8), n = _mm512_sub_ps(t, r);

	return _mm512_maskz_scalef_ps(
		sees, polynomial(r, 0.693124175f, 0.240240991f, 0.0559064262f, 0.00958285294f), n);
}

DT_INLINE __m512i pairs_of(__m512 low, __m512 high)
{
	return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* For each of 16 columns, the largest score of a row among the keys it sees; -Inf: none. */
DT_INLINE __m512 largest(const float *s, uint64_t bits)
{
	const __m512 none = _mm512_set1_ps(-INFINITY);
	__m512 x[4];

	if (bits == ~0ull)
		DT_FOR (4, int v = 0; v < 4; v++)
			x[v] = _mm512_loadu_ps(s + v * L);
	else
		DT_FOR (4, int v = 0; v < 4; v++)
			x[v] = _mm512_mask_loadu_ps(none, (__mmask16)(bits >> v * L), s + v * L);
	return _mm512_max_ps(_mm512_max_ps(x[0], x[1]), _mm512_max_ps(x[2], x[3]));
}

/* Rescales the sums of a row to its new maximum. */
DT_INLINE void rescale(struct dt_attn_row *row, float *o, int64_t pad, float most, float by)
{
	const __m512 f = _mm512_set1_ps(by);

	for (int64_t j = 0; j < pad; j += L)
		_mm512_storeu_ps(o + j, _mm512_mul_ps(_mm512_loadu_ps(o + j), f));
	_mm512_storeu_ps(row->sum, _mm512_mul_ps(_mm512_loadu_ps(row->sum), f));
	row->max = most;
}

/*
 * 2^t where `sees` is set, else 0: relative error 3e-6. A minimax polynomial on [0, 1) of the fractional part
 * of t; VSCALEFPS takes the integer part itself. One instruction less than exp2_quick, with other bits. NaN
 * for NaN, 0 for -Inf.
 */
DT_INLINE __m512 exp2_floor(__mmask16 sees, __m512 t)
{
	const __m512 r = _mm512_reduce_ps(t, 9);

	return _mm512_maskz_scalef_ps(
		sees, polynomial(r, 0.693044841f, 0.241280198f, 0.0522424728f, 0.0134266838f), t);
}

/* The powers p [4] = 2^(scores - base) of a row, and its sums with them added. */
DT_INLINE __m512 powers(__m512 p[4], const float *s, const float *sum, uint64_t bits, float scale, float base)
{
	const __m512 factor = _mm512_set1_ps(scale * LOG2E), least = _mm512_set1_ps(base);

	DT_FOR (4, int v = 0; v < 4; v++)
		p[v] = exp2_floor((__mmask16)(bits >> v * L),
				  _mm512_fmsub_ps(_mm512_loadu_ps(s + v * L), factor, least));
	return _mm512_add_ps(_mm512_loadu_ps(sum),
			     _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3])));
}

/* Raises a row's maximum to the largest of these scores if that is larger. */
static __attribute__((noinline)) void rise(struct dt_attn_row *row, const float *s, float *o, int64_t pad,
					   uint64_t bits, float scale)
{
	const float was = row->max, most = scale * _mm512_reduce_max_ps(largest(s, bits));

	if (most > was)
		rescale(row, o, pad, most,
			was == -INFINITY
				? 0
				: _mm512_cvtss_f32(exp2_floor(1, _mm512_set1_ps((was - most) * LOG2E))));
}

/*
 * Turns a row's scores s into words of powers. A row keeps the maximum of the first tile it sees as long as
 * its sums stay below 2^64: o / sum is as exact with any such number in place of the maximum. Where attention
 * reads from L1, as in training, this takes 0.96 of the time of a maximum per tile (Zen 4).
 *
 * The limits with AMX, counted: 16 rows and 64 keys of 64 elements are 16 products of 16 cycles, and 64
 * vectors of scores. A vector takes as long as 10 instructions at two per cycle: scale, remainder, polynomial
 * (4), power, sum, and 2 for its half of VCVTNE2PS2BF16. That is 320 cycles; maxima would take another 130.
 * Measured on a Xeon, interleaving products with the vectors of a row or two is no faster than doing one
 * after the other: after an AMX instruction vectors run at half rate for 300 ns.
 */
DT_INLINE void softmax_row(uint32_t *pw, const float *s, float *o, struct dt_attn_row *row, int64_t pad,
			   int64_t key, float scale)
{
	const uint64_t bits = seen(row, key);
	__m512 p[4], sum;

	if (row->max == -INFINITY)
		rise(row, s, o, pad, bits, scale);
	sum = powers(p, s, row->sum, bits, scale, row->max * LOG2E);
	/* If the maximum is still -Inf the sum is NaN. A row with NaN takes this branch in every tile. */
	if (_mm512_cmp_ps_mask(sum, _mm512_set1_ps(0x1p64f), _CMP_LT_OQ) != 0xffff) {
		rise(row, s, o, pad, bits, scale);
		sum = powers(p, s, row->sum, bits, scale, row->max == -INFINITY ? 0 : row->max * LOG2E);
	}
	_mm512_storeu_ps(row->sum, sum);
	_mm512_storeu_si512(pw, pairs_of(p[0], p[1]));
	_mm512_storeu_si512(pw + L, pairs_of(p[2], p[3]));
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
