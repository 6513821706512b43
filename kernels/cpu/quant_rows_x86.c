/*
 * Vector version of quant_rows.c, step by step: QUANT_LANES 16 (AVX-512 VNNI), sixteen blocks at a time, or 8
 * (AVX2), four at a time. QUANT_ROW_NAME is the function.
 */
#include "kernels/cpu/quant.h"
#include "kernels/int8.h"

#include <immintrin.h>

#if QUANT_LANES == 16
#define TOGETHER 16

DT_INLINE __m512 load_16(const void *x, enum dt_dtype type, int64_t i)
{
	if (type == DT_F32)
		return _mm512_loadu_ps((const float *)x + i);
	if (type == DT_F16)
		return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)((const uint16_t *)x + i)));
	return _mm512_castsi512_ps(_mm512_slli_epi32(
		_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)((const uint16_t *)x + i))), 16));
}

DT_INLINE __m512i larger_bits(const void *x, enum dt_dtype type, int64_t i)
{
	const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
	const __m512 v0 = load_16(x, type, i), v1 = load_16(x, type, i + 16);

	return _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v0), magnitude),
				_mm512_and_si512(_mm512_castps_si512(v1), magnitude));
}

/* Maxima of four blocks, `step` elements apart: each quarter of the result has the maxima of a quarter of the
 * elements, per block. */
DT_INLINE __m512i largest_4(const void *x, enum dt_dtype type, int64_t i, int64_t step)
{
	const __m512i a = larger_bits(x, type, i), b = larger_bits(x, type, i + step),
		      c = larger_bits(x, type, i + 2 * step), d = larger_bits(x, type, i + 3 * step);
	const __m512i ab = _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
	const __m512i cd = _mm512_max_epu32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));

	return _mm512_max_epu32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

/* The largest magnitude of each of sixteen blocks, as bits. */
DT_INLINE __m512i largest_16(const void *x, enum dt_dtype type, int64_t i, int64_t step)
{
	__m512i q[4], t[2];

	DT_FOR (4, int k = 0; k < 4; k++)
		q[k] = largest_4(x, type, i + 4 * k * step, step);
	DT_FOR (2, int k = 0; k < 2; k++)
		t[k] = _mm512_max_epu32(_mm512_shuffle_i32x4(q[2 * k], q[2 * k + 1], 0x88),
					_mm512_shuffle_i32x4(q[2 * k], q[2 * k + 1], 0xdd));
	return _mm512_max_epu32(_mm512_shuffle_i32x4(t[0], t[1], 0x88),
				_mm512_shuffle_i32x4(t[0], t[1], 0xdd));
}

/* Rounds a block, if keep is set; its sums of fours, those of the first half in the lower half. */
DT_INLINE __m256i round_block(int8_t *q, const void *x, enum dt_dtype type, int64_t i, bool keep,
			      float inverse)
{
	const __mmask16 k = keep ? 0xffff : 0;
	const __m512 by = _mm512_set1_ps(inverse);
	const __m128i lo =
		_mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_maskz_mul_ps(k, load_16(x, type, i), by)));
	const __m128i hi = _mm512_cvtepi32_epi8(
		_mm512_cvtps_epi32(_mm512_maskz_mul_ps(k, load_16(x, type, i + 16), by)));
	const __m256i both = _mm256_set_m128i(hi, lo);

	_mm256_storeu_si256((__m256i *)q, both);
	return _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), both);
}

/* Sums of eight blocks: quarters are first and second halves of even blocks, then of odd ones. */
DT_INLINE __m512i add_8(const __m256i *fours)
{
	__m512i v[4], t[2];

	DT_FOR (4, int i = 0; i < 4; i++)
		v[i] = _mm512_inserti64x4(_mm512_castsi256_si512(fours[2 * i]), fours[2 * i + 1], 1);
	t[0] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
	t[1] = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
	return _mm512_add_epi32(_mm512_unpacklo_epi64(t[0], t[1]), _mm512_unpackhi_epi64(t[0], t[1]));
}

/* The sums of the first (half 0) or second halves of sixteen blocks, in their order, from add_8's results. */
DT_INLINE __m512i in_order(__m512i low, __m512i high, int half)
{
	const __m512i order = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);

	return _mm512_permutex2var_epi32(low, _mm512_add_epi32(order, _mm512_set1_epi32(4 * half)), high);
}

DT_INLINE void describe(struct dt_xblock *xb, float scale, int32_t first, int32_t second)
{
	xb->scale = scale;
	xb->sum = scale * (float)(first + second);
	xb->start8 = -128 * (first + second);
	xb->start4 = -8 * (first + second);
	xb->start6[0] = -32 * first;
	xb->start6[1] = -32 * second;
}

/* Quarter q of v. The instruction takes a constant, which q is for clang only once loops are unrolled. */
DT_INLINE __m128i quarter(__m512i v, int q)
{
	switch (q) {
	case 0:
		return _mm512_castsi512_si128(v);
	case 1:
		return _mm512_extracti32x4_epi32(v, 1);
	case 2:
		return _mm512_extracti32x4_epi32(v, 2);
	default:
		return _mm512_extracti32x4_epi32(v, 3);
	}
}

/* Fills struct dt_xblock of sixteen blocks, given their scales and the sums of their fours. Each quarter of a
 * vector has four blocks, and is transposed. */
DT_INLINE void describe_16(struct dt_xblock *xb, __m512 scale, const __m256i *fours)
{
	const __m512i zero = _mm512_setzero_si512(), low = add_8(fours), high = add_8(fours + 8),
		      first = in_order(low, high, 0), second = in_order(low, high, 1),
		      sum = _mm512_add_epi32(first, second);
	const __m512i six[2] = {_mm512_sub_epi32(zero, _mm512_slli_epi32(first, 5)),
				_mm512_sub_epi32(zero, _mm512_slli_epi32(second, 5))};
	const __m512i pair[2] = {_mm512_unpacklo_epi32(six[0], six[1]),
				 _mm512_unpackhi_epi32(six[0], six[1])};
	const __m512i row[4] = {
		_mm512_castps_si512(scale),
		_mm512_castps_si512(_mm512_mul_ps(scale, _mm512_cvtepi32_ps(sum))),
		_mm512_sub_epi32(zero, _mm512_slli_epi32(sum, 7)),
		_mm512_sub_epi32(zero, _mm512_slli_epi32(sum, 3)),
	};
	const __m512i t[4] = {_mm512_unpacklo_epi32(row[0], row[1]), _mm512_unpacklo_epi32(row[2], row[3]),
			      _mm512_unpackhi_epi32(row[0], row[1]), _mm512_unpackhi_epi32(row[2], row[3])};

	DT_FOR (4, int b = 0; b < 4; b++) { /* and blocks b + 4, b + 8, b + 12 */
		const __m512i head = b % 2 ? _mm512_unpackhi_epi64(t[b / 2 * 2], t[b / 2 * 2 + 1])
					   : _mm512_unpacklo_epi64(t[b / 2 * 2], t[b / 2 * 2 + 1]);
		const __m512i tail = b % 2 ? _mm512_unpackhi_epi64(pair[b / 2], pair[b / 2]) : pair[b / 2];

		DT_FOR (4, int q = 0; q < 4; q++) {
			_mm_storeu_si128((__m128i *)&xb[4 * q + b].scale, quarter(head, q));
			_mm_storel_epi64((__m128i *)xb[4 * q + b].start6, quarter(tail, q));
		}
	}
}

/* Scales of sixteen blocks, with their inverses; returns the mask of blocks that are not set to 0. */
DT_INLINE unsigned scales_of(float inverse[16], float scale[16], const void *x, enum dt_dtype type, int64_t i,
			     int64_t step)
{
	const __m512 most = _mm512_set1_ps(127.f);
	const __m512i bits = largest_16(x, type, i, step);
	const __m512 largest = _mm512_castsi512_ps(bits);
	const __mmask16 zero = _mm512_cmplt_epu32_mask(bits, _mm512_set1_epi32(DT_X_ZERO));
	const __mmask16 bad = _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(0x7f800000));

	_mm512_store_ps(inverse, _mm512_div_ps(most, largest));
	_mm512_store_ps(scale, _mm512_mask_mov_ps(_mm512_maskz_div_ps((__mmask16)~zero, largest, most), bad,
						  _mm512_set1_ps(__builtin_nanf(""))));
	return ~(unsigned)(zero | bad);
}

DT_INLINE void row_together(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t i)
{
	_Alignas(64) float inverse[16], scale[16];
	const unsigned keep = scales_of(inverse, scale, x, type, i, DT_QK);
	__m256i fours[16];

	for (int b = 0; b < 16; b++)
		fours[b] = round_block(q + b * DT_QK, x, type, i + b * DT_QK, keep >> b & 1, inverse[b]);
	describe_16(xb, _mm512_load_ps(scale), fours);
}

/* One block of sixteen rows. */
DT_INLINE void tile_of(struct dt_xtile *t, const void *x, enum dt_dtype type, int64_t i, int64_t k)
{
	_Alignas(64) float inverse[16];
	const unsigned keep = scales_of(inverse, t->scale, x, type, i, k);
	__m256i fours[16];
	__m512i low, high, half[2], sum;

	for (int r = 0; r < 16; r++)
		fours[r] = round_block(t->q[r], x, type, i + r * k, keep >> r & 1, inverse[r]);
	low = add_8(fours);
	high = add_8(fours + 8);
	for (int h = 0; h < 2; h++) {
		half[h] = in_order(low, high, h);
		_mm512_store_ps(t->half[h], _mm512_cvtepi32_ps(half[h]));
	}
	sum = _mm512_add_epi32(half[0], half[1]);
	_mm512_store_ps(t->sum, _mm512_mul_ps(_mm512_load_ps(t->scale), _mm512_cvtepi32_ps(sum)));
	_mm512_store_si512(t->start8, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(sum, 7)));
}

DT_INLINE void tiles_of(struct dt_xtile *t, const void *x, enum dt_dtype type, int64_t blocks)
{
	for (int64_t b = 0; b < blocks; b++)
		tile_of(&t[b], x, type, b * DT_QK, blocks * DT_QK);
	if (blocks % 2)
		memset(&t[blocks], 0, sizeof *t);
}

DT_QUANT_TILE(dt_quant_tile_vnni)
{
	if (type == DT_BF16)
		tiles_of(t, x, DT_BF16, blocks);
	else if (type == DT_F16)
		tiles_of(t, x, DT_F16, blocks);
	else
		tiles_of(t, x, DT_F32, blocks);
}

DT_INLINE void row_1(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t i)
{
	const uint32_t max = _mm512_reduce_max_epu32(larger_bits(x, type, i));
	const bool zero = max < DT_X_ZERO, bad = max >= 0x7f800000u;
	float largest;
	__m256i sums;

	memcpy(&largest, &max, 4);
	sums = round_block(q, x, type, i, !zero && !bad, 127.f / largest);
	sums = _mm256_hadd_epi32(sums, sums);
	sums = _mm256_hadd_epi32(sums, sums);
	describe(xb,
		 zero  ? 0
		 : bad ? __builtin_nanf("")
		       : largest / 127.f,
		 _mm_cvtsi128_si32(_mm256_castsi256_si128(sums)),
		 _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)));
}
#else
#define TOGETHER 4

DT_INLINE __m256 load_8(const void *x, enum dt_dtype type, int64_t i)
{
	if (type == DT_F32)
		return _mm256_loadu_ps((const float *)x + i);
	if (type == DT_F16)
		return _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const uint16_t *)x + i)));
	return _mm256_castsi256_ps(_mm256_slli_epi32(
		_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)((const uint16_t *)x + i))), 16));
}

/* Largest magnitudes of a block, as bits; lane i covers elements i, i + 8, ... */
DT_INLINE __m256i largest_8(const void *x, enum dt_dtype type, int64_t i)
{
	const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
	__m256i most = _mm256_setzero_si256();

	DT_FOR (4, int j = 0; j < 4; j++)
		most = _mm256_max_epi32(
			most, _mm256_and_si256(_mm256_castps_si256(load_8(x, type, i + 8 * j)), magnitude));
	return most;
}

/* The largest magnitude of each of four blocks. */
DT_INLINE __m128i largest_4(const void *x, enum dt_dtype type, int64_t i)
{
	const __m256i a = largest_8(x, type, i), b = largest_8(x, type, i + DT_QK),
		      c = largest_8(x, type, i + 2 * DT_QK), d = largest_8(x, type, i + 3 * DT_QK);
	const __m256i ab = _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
	const __m256i cd = _mm256_max_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
	const __m256i all = _mm256_max_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));

	return _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

/* Rounds eight numbers to integers. keep: mask of those not set to 0. */
DT_INLINE __m256i rounded_8(const void *x, enum dt_dtype type, int64_t i, __m256 keep, __m256 inverse)
{
	return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_and_ps(load_8(x, type, i), keep), inverse));
}

/* Rounds a block; its sums of fours, those of the first half in the lower half. */
DT_INLINE __m256i round_block(int8_t *q, const void *x, enum dt_dtype type, int64_t i, float inverse)
{
	const __m256 by = _mm256_set1_ps(inverse), keep = _mm256_cmp_ps(by, _mm256_setzero_ps(), _CMP_NEQ_OQ);
	__m256i v[4];

	DT_FOR (4, int j = 0; j < 4; j++)
		v[j] = rounded_8(x, type, i + 8 * j, keep, by);
	v[0] = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
	/* Packing interleaves the fours of the lower and upper halves. */
	v[0] = _mm256_permutevar8x32_epi32(v[0], _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
	_mm256_storeu_si256((__m256i *)q, v[0]);
	return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v[0]), _mm256_set1_epi16(1));
}

/* Fills struct dt_xblock of four blocks. first, second: sums of their halves. */
DT_INLINE void describe_4(struct dt_xblock *xb, __m128 scale, __m128i first, __m128i second)
{
	const __m128i sum = _mm_add_epi32(first, second);
	const __m128i six[2] = {_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(first, 5)),
				_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(second, 5))};
	const __m128i pair[2] = {_mm_unpacklo_epi32(six[0], six[1]), _mm_unpackhi_epi32(six[0], six[1])};
	__m128 row[4] = {
		scale,
		_mm_mul_ps(scale, _mm_cvtepi32_ps(sum)),
		_mm_castsi128_ps(_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(sum, 7))),
		_mm_castsi128_ps(_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(sum, 3))),
	};

	_MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
	DT_FOR (4, int b = 0; b < 4; b++) {
		_mm_storeu_ps(&xb[b].scale, row[b]);
		_mm_storel_epi64((__m128i *)xb[b].start6,
				 b % 2 ? _mm_unpackhi_epi64(pair[b / 2], pair[b / 2]) : pair[b / 2]);
	}
}

DT_INLINE void row_together(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t i)
{
	uint32_t largest[4];
	float scale[4], inverse[4];
	__m256i fours[4], sums;

	_mm_storeu_si128((__m128i *)largest, largest_4(x, type, i));
	DT_FOR (4, int b = 0; b < 4; b++) {
		dt_int8_scale(largest[b], &scale[b], &inverse[b]);
		fours[b] = round_block(q + b * DT_QK, x, type, i + b * DT_QK, inverse[b]);
	}
	sums = _mm256_hadd_epi32(_mm256_hadd_epi32(fours[0], fours[1]),
				 _mm256_hadd_epi32(fours[2], fours[3]));
	describe_4(xb, _mm_loadu_ps(scale), _mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
}
#endif

DT_INLINE void row_of(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type, int64_t blocks)
{
	int64_t b = 0;

	for (; b + TOGETHER <= blocks; b += TOGETHER)
		row_together(q + b * DT_QK, xb + b, x, type, b * DT_QK);
#if QUANT_LANES == 16
	for (; b < blocks; b++)
		row_1(q + b * DT_QK, xb + b, x, type, b * DT_QK);
#else
	dt_quant_row_plain(q + b * DT_QK, xb + b, (const char *)x + b * DT_QK * dt_dtype_size(type), type,
			   blocks - b);
#endif
}

DT_QUANT_ROW(QUANT_ROW_NAME)
{
	if (type == DT_BF16)
		row_of(q, xb, x, DT_BF16, blocks);
	else if (type == DT_F16)
		row_of(q, xb, x, DT_F16, blocks);
	else
		row_of(q, xb, x, DT_F32, blocks);
}
/* SPDX-License-Identifier: Apache-2.0 */
