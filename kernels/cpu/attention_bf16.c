/*
 * The steps of attention between its products, where words are pairs of bf16 (tile.h): compiled for
 * processors with AVX512_BF16 only. Probabilities are rounded to bf16 before they are multiplied, so exp only
 * has a relative error of 4e-6. A row's bits depend on that row alone.
 */
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

void dt_attn_softmax_bf16(uint32_t *pw, int64_t ldp, const float *s, float *o, struct dt_attn_row *row,
			  int64_t rows, int64_t pad, int64_t key, float scale)
{
	for (int64_t i = 0; i < rows; i++)
		softmax_row(pw + i * ldp, s + i * DT_TILE, o + i * pad, &row[i], pad, key, scale);
}

/* Four rows of a band while it is computed: scores s, words pw, and the sums that row has after this tile. */
struct part {
	const struct dt_attn_row *row;
	const float *s;
	uint32_t *pw;
	float (*sum)[L];
	int64_t key;
	float scale;
};

/* c [8, 32] = q . k, and between these products the powers of four rows. */
DT_INLINE void block_between(float *c, const uint32_t *q, const uint32_t *k, int64_t words, struct part of)
{
	__m512 acc[8][2], p[4];

	DT_FOR (8, int r = 0; r < 8; r++)
		DT_FOR (2, int v = 0; v < 2; v++)
			acc[r][v] = _mm512_setzero_ps();
	for (int64_t i = 0; i < 4; i++) {
		_mm512_storeu_ps(of.sum[i],
				 powers(p, of.s + i * DT_TILE, of.row[i].sum, seen(of.row + i, of.key),
					of.scale, of.row[i].max * LOG2E));
		_mm512_storeu_si512(of.pw + i * DT_TILE, pairs_of(p[0], p[1]));
		_mm512_storeu_si512(of.pw + i * DT_TILE + L, pairs_of(p[2], p[3]));
		for (int64_t w = i * words / 4; w < (i + 1) * words / 4; w++) {
			const __m512bh k0 = (__m512bh)_mm512_loadu_si512(k + w * DT_TILE),
				       k1 = (__m512bh)_mm512_loadu_si512(k + w * DT_TILE + L);

			DT_FOR (8, int r = 0; r < 8; r++) {
				const __m512bh x = (__m512bh)_mm512_set1_epi32((int)q[r * words + w]);

				acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, k0);
				acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, k1);
			}
		}
	}
	DT_FOR (8, int r = 0; r < 8; r++)
		DT_FOR (2, int v = 0; v < 2; v++)
			_mm512_storeu_ps(c + r * DT_TILE + v * L, acc[r][v]);
}

bool dt_attn_between_bf16(float *next, const uint32_t *q, const uint32_t *k, int64_t words, uint32_t *pw,
			  const float *s, struct dt_attn_row *row, int64_t key, float scale)
{
	float sum[DT_BAND][L];
	__mmask16 fits = 0xffff;

	for (int64_t b = 0; b < 4; b++) /* quarters of the scores and of the rows */
		block_between(next + b % 2 * 8 * DT_TILE + b / 2 * 2 * L, q + b % 2 * 8 * words,
			      k + b / 2 * 2 * L, words,
			      (struct part){row + 4 * b, s + 4 * b * DT_TILE, pw + 4 * b * DT_TILE,
					    sum + 4 * b, key, scale});
	for (int64_t i = 0; i < DT_BAND; i++)
		fits &= _mm512_cmp_ps_mask(_mm512_loadu_ps(sum[i]), _mm512_set1_ps(0x1p64f), _CMP_LT_OQ);
	for (int64_t i = 0; fits == 0xffff && i < DT_BAND; i++)
		memcpy(row[i].sum, sum[i], sizeof sum[i]);
	return fits == 0xffff;
}

/* p and ds of row i and keys j .. j + 15 of a tile; 0 where the row does not see the key. */
struct slope {
	__m512 p, ds;
};

DT_INLINE struct slope slope_of(const struct dt_attn_slopes *w, int64_t i, int64_t j, uint64_t bits,
				const bool capped)
{
	const __mmask16 sees = (__mmask16)(bits >> j);
	const __m512 s = _mm512_loadu_ps(w->s + i * DT_TILE + j),
		     dp = _mm512_loadu_ps(w->dp + i * DT_TILE + j),
		     factor = _mm512_set1_ps((capped ? 1 : w->scale) * LOG2E);
	const __m512 p = exp2_quick(sees, _mm512_fmsub_ps(s, factor, _mm512_set1_ps(w->lse[i] * LOG2E)));
	__m512 ds = _mm512_mul_ps(_mm512_sub_ps(dp, _mm512_set1_ps(w->dot[i])), _mm512_set1_ps(w->scale));

	if (capped) {
		const __m512 t = _mm512_mul_ps(s, _mm512_set1_ps(1 / w->softcap));

		ds = _mm512_mul_ps(ds, _mm512_fnmadd_ps(t, t, _mm512_set1_ps(1)));
	}
	return (struct slope){p, _mm512_maskz_mul_ps(sees, p, ds)};
}

/* Interleaves a and b to bf16 pairs (a, b). */
DT_INLINE __m512i across(__m512 a, __m512 b)
{
	const __m512i turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
					      23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

	return _mm512_permutexvar_epi16(turn, pairs_of(a, b));
}

/* Processes rows i and i + 1; bits: the keys that each sees. */
DT_INLINE void two_rows(const struct dt_attn_slopes *w, int64_t i, uint64_t bits, uint64_t next,
			const bool capped)
{
	for (int64_t j = 0; j < DT_TILE; j += 2 * L) {
		const struct slope a = slope_of(w, i, j, bits, capped),
				   b = slope_of(w, i + 1, j, next, capped),
				   c = slope_of(w, i, j + L, bits, capped),
				   d = slope_of(w, i + 1, j + L, next, capped);
		uint32_t *p = w->p_cols + i / 2 * DT_TILE + j, *ds = w->ds_cols + i / 2 * DT_TILE + j;

		_mm512_storeu_si512(p, across(a.p, b.p));
		_mm512_storeu_si512(p + L, across(c.p, d.p));
		_mm512_storeu_si512(ds, across(a.ds, b.ds));
		_mm512_storeu_si512(ds + L, across(c.ds, d.ds));
		_mm512_storeu_si512(w->ds_rows + (i * DT_TILE + j) / 2, pairs_of(a.ds, c.ds));
		_mm512_storeu_si512(w->ds_rows + ((i + 1) * DT_TILE + j) / 2, pairs_of(b.ds, d.ds));
	}
}

void dt_attn_slopes_bf16(const struct dt_attn_slopes *w, const struct dt_attn_row *row, int64_t rows,
			 int64_t key)
{
	for (int64_t i = 0; i < DT_BAND; i += 2) {
		const uint64_t bits = i < rows ? seen(row + i, key) : 0,
			       next = i + 1 < rows ? seen(row + i + 1, key) : 0;

		if (w->softcap > 0)
			two_rows(w, i, bits, next, true);
		else
			two_rows(w, i, bits, next, false);
	}
}

/* Dot product of bf16 words: widens the even and the odd elements. */
DT_INLINE __m512 dot_pairs(__m512 sum, __m512i x, __m512i y)
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000u);

	sum = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(x, 16), (__m512)_mm512_slli_epi32(y, 16), sum);
	return _mm512_fmadd_ps((__m512)_mm512_and_si512(x, high), (__m512)_mm512_and_si512(y, high), sum);
}

/* o / sum of one row, rounded. */
DT_INLINE void finish_row(uint16_t *to, const float *o, float sum, int64_t d)
{
	const __m512 f = _mm512_set1_ps(sum > 0 ? 1 / sum : 1); /* a row that sees no key gives 0 */

	for (int64_t j = 0; j < d; j += L) {
		const __mmask16 there = (__mmask16)(d - j >= L ? 0xffff : (1 << (d - j)) - 1);
		const __m256i x = (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(o + j), f));

		_mm256_mask_storeu_epi16(to + j, there, x);
	}
}

void dt_attn_finish_bf16(void *const *where, const float *o, const struct dt_attn_row *row, int64_t rows,
			 int64_t d, int64_t pad)
{
	for (int64_t i = 0; i < rows; i++)
		finish_row(where[i], o + i * pad, _mm512_reduce_add_ps(_mm512_loadu_ps(row[i].sum)), d);
}

float dt_attn_dot_bf16(const uint16_t *x, const uint16_t *y, int64_t d)
{
	__m512 sum = _mm512_setzero_ps();

	for (int64_t i = 0; i < d; i += 2 * L) {
		const __mmask32 there = d - i >= 2 * L ? ~0u : (1u << (d - i)) - 1;

		sum = dot_pairs(sum, _mm512_maskz_loadu_epi16(there, x + i),
				_mm512_maskz_loadu_epi16(there, y + i));
	}
	return _mm512_reduce_add_ps(sum);
}
/* SPDX-License-Identifier: Apache-2.0 */
