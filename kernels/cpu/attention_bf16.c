/*
 * What attention does between its products, where words are pairs of bf16 (tile.h): compiled for processors
 * with AVX512_BF16 only. Probabilities are rounded to bf16 before they are multiplied, so exp has a relative
 * error of 4e-6 here. A row's bits depend on that row alone.
 */
#include "kernels/cpu/attention.h"

#include <immintrin.h>
#include <math.h>

#define L     16
#define LOG2E 1.44269504f

/* The keys of a tile that a row sees, one bit each. */
DT_INLINE uint64_t seen(const struct dt_attn_row *row, int64_t key)
{
	const int64_t from = row->first - key, end = row->last + 1 - key;
	uint64_t bits = end >= DT_TILE ? ~0ull : end > 0 ? (1ull << end) - 1 : 0;

	if (from > 0)
		bits &= from < DT_TILE ? ~0ull << from : 0;
	return bits;
}

/*
 * 2^t of t <= 127 where `sees` has a bit, else 0; polynomial of dt_sigmoid2_power (vec.h). NaN for NaN; 0 for
 * -Inf, whose r is NaN: scalef says so of n = -Inf (Intel SDM volume 2, VSCALEFPS, table of special values).
 */
DT_INLINE __m512 exp2_quick(__mmask16 sees, __m512 t)
{
	const __m512 n = _mm512_roundscale_ps(t, 8), r = _mm512_sub_ps(t, n);
	__m512 p;

	p = _mm512_fmadd_ps(_mm512_set1_ps(0.00958285294f), r, _mm512_set1_ps(0.0559064262f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240240991f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693124175f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
	return _mm512_maskz_scalef_ps(sees, p, n);
}

DT_INLINE __m512i pairs_of(__m512 low, __m512 high)
{
	return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* The largest of each of 16 columns of a row of scores that the row sees; -Inf: none. */
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

/* The largest of each of four vectors. */
DT_INLINE __m128 largest4(__m512 a, __m512 b, __m512 c, __m512 d)
{
	const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b)),
		     cd = _mm512_max_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
	const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
	const __m512 all = _mm512_max_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
					 _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
	const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));

	return _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* Of up to 16 rows: their maxima so far, what they become, and what is summed is multiplied by. */
struct maxima {
	float most[L], base[L], shrink[L]; /* base: of exponents of two, not -Inf */
	__mmask16 risen;
};

DT_INLINE void find_maxima(struct maxima *m, const float *s, const struct dt_attn_row *row, int64_t rows,
			   int64_t key, float scale)
{
	const __m512 none = _mm512_set1_ps(-INFINITY), log2e = _mm512_set1_ps(LOG2E);
	float last[L] = {0};
	__m512 was, most, base;

	for (int64_t i = 0; i < rows; i += 4) {
		__m512 x[4];

		DT_FOR (4, int k = 0; k < 4; k++) {
			const int64_t at = dt_min64(i + k, rows - 1);

			x[k] = largest(s + at * DT_TILE, seen(row + at, key));
			last[i + k] = row[at].max;
		}
		_mm_storeu_ps(m->most + i, largest4(x[0], x[1], x[2], x[3]));
	}
	was = _mm512_loadu_ps(last);
	most = _mm512_max_ps(_mm512_mul_ps(_mm512_loadu_ps(m->most), _mm512_set1_ps(scale)), was);
	m->risen = _mm512_cmp_ps_mask(most, was, _CMP_NEQ_UQ);
	/* A row that has seen no key yet: exp of -Inf, not of -Inf + Inf. */
	base = _mm512_mask_mov_ps(most, _mm512_cmp_ps_mask(most, none, _CMP_EQ_OQ), _mm512_setzero_ps());
	_mm512_storeu_ps(m->most, most);
	_mm512_storeu_ps(m->base, _mm512_mul_ps(base, log2e));
	/* of a row that has seen none before: zero, as its sums are */
	_mm512_storeu_ps(m->shrink, exp2_quick(_mm512_cmp_ps_mask(was, none, _CMP_NEQ_UQ),
					       _mm512_mul_ps(_mm512_sub_ps(was, base), log2e)));
}

/* The sums of a row come under its new maximum. */
DT_INLINE void rescale(struct dt_attn_row *row, float *o, int64_t pad, float most, float by)
{
	const __m512 f = _mm512_set1_ps(by);

	for (int64_t j = 0; j < pad; j += L)
		_mm512_storeu_ps(o + j, _mm512_mul_ps(_mm512_loadu_ps(o + j), f));
	_mm512_storeu_ps(row->sum, _mm512_mul_ps(_mm512_loadu_ps(row->sum), f));
	row->max = most;
}

void dt_attn_softmax_bf16(uint32_t *pw, const float *s, float *o, struct dt_attn_row *row, int64_t rows,
			  int64_t pad, int64_t key, float scale)
{
	const __m512 factor = _mm512_set1_ps(scale * LOG2E);
	struct maxima m;

	for (int64_t i = 0; i < rows; i++) {
		const uint64_t bits = seen(row + i, key);
		__m512 base, sum, p[4];

		if (i % L == 0)
			find_maxima(&m, s + i * DT_TILE, row + i, dt_min64(L, rows - i), key, scale);
		if (m.risen >> i % L & 1)
			rescale(row + i, o + i * pad, pad, m.most[i % L], m.shrink[i % L]);
		base = _mm512_set1_ps(m.base[i % L]);
		DT_FOR (4, int v = 0; v < 4; v++) {
			const __m512 x = _mm512_loadu_ps(s + i * DT_TILE + v * L);

			p[v] = exp2_quick((__mmask16)(bits >> v * L), _mm512_fmsub_ps(x, factor, base));
		}
		sum = _mm512_add_ps(_mm512_add_ps(p[0], p[1]), _mm512_add_ps(p[2], p[3]));
		_mm512_storeu_ps(row[i].sum, _mm512_add_ps(_mm512_loadu_ps(row[i].sum), sum));
		_mm512_storeu_si512(pw + i * DT_TILE / 2, pairs_of(p[0], p[1]));
		_mm512_storeu_si512(pw + i * DT_TILE / 2 + L, pairs_of(p[2], p[3]));
	}
}

/* p and ds of row i and keys j .. j + 15 of a tile; zero where the row does not see the key. */
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

/* Pairs (a, b): halves of each in turn. */
DT_INLINE __m512i across(__m512 a, __m512 b)
{
	const __m512i turn = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8,
					      23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);

	return _mm512_permutexvar_epi16(turn, pairs_of(a, b));
}

/* Rows i and i + 1; bits: the keys that each sees. */
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

/* Widens the even and the odd elements of words. */
DT_INLINE __m512 dot_pairs(__m512 sum, __m512i x, __m512i y)
{
	const __m512i high = _mm512_set1_epi32((int)0xffff0000u);

	sum = _mm512_fmadd_ps((__m512)_mm512_slli_epi32(x, 16), (__m512)_mm512_slli_epi32(y, 16), sum);
	return _mm512_fmadd_ps((__m512)_mm512_and_si512(x, high), (__m512)_mm512_and_si512(y, high), sum);
}

/* o / sum of one row, rounded. */
DT_INLINE void finish_row(uint16_t *to, const float *o, float sum, int64_t d)
{
	const __m512 f = _mm512_set1_ps(sum > 0 ? 1 / sum : 1); /* a row that sees no key is 0 */

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
