/*
 * The steps of attention between its products, where words are pairs of bf16 (tile.h): compiled for
 * processors with AVX512_BF16 only. Probabilities are rounded to bf16 before they are multiplied, so exp only
 * has a relative error of 4e-6. A row's bits depend on that row alone.
 */
#include "kernels/cpu/attention_bf16.h"

void dt_attn_softmax_bf16(uint32_t *pw, const float *s, float *o, struct dt_attn_row *row, int64_t rows,
			  int64_t pad, int64_t key, float scale)
{
	for (int64_t i = 0; i < rows; i++)
		softmax_row(pw + i * DT_TILE / 2, s + i * DT_TILE, o + i * pad, &row[i], pad, key, scale);
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
