/*
 * Loads panels of quant.h into vector registers, for each instruction set: QUANT_LANES 16 (AVX-512), 8 (AVX2)
 * or 4 (NEON).
 */
#ifndef DT_KERNELS_CPU_QUANT_LANES_H
#define DT_KERNELS_CPU_QUANT_LANES_H

#include "kernels/cpu/quant.h"

#if QUANT_LANES == 4
#include "kernels/cpu/quant_neon.h"
#else
#include <immintrin.h>
#endif

#if QUANT_LANES == 16
typedef __m512i vi;
typedef __m512 vf;
#define V(op)	       _mm512_##op
#define bits_and(a, b) _mm512_and_si512(a, b)
#define bits_or(a, b)  _mm512_or_si512(a, b)
#define load_bits(p)   _mm512_loadu_si512(p)
#define half_to_ps(p)  _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(p)))
#define bf16_to_ps(p)                                                                                        \
	_mm512_castsi512_ps(                                                                                 \
		_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p))), 16))
#define table16(...) _mm512_broadcast_i32x4(_mm_setr_epi8(__VA_ARGS__))
#define u8_to_ps(p)  _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p))))
#define i8_to_ps(p)  _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(p))))
/* The low and the high four bits of bytes. */
#define u8_to_i32(p)  _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p)))
#define low_to_ps(p)  _mm512_cvtepi32_ps(_mm512_and_si512(u8_to_i32(p), _mm512_set1_epi32(15)))
#define high_to_ps(p) _mm512_cvtepi32_ps(_mm512_srli_epi32(u8_to_i32(p), 4))
#elif QUANT_LANES == 8
typedef __m256i vi;
typedef __m256 vf;
#define V(op)	       _mm256_##op
#define bits_and(a, b) _mm256_and_si256(a, b)
#define bits_or(a, b)  _mm256_or_si256(a, b)
#define load_bits(p)   _mm256_loadu_si256((const __m256i *)(p))
#define half_to_ps(p)  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)))
#define bf16_to_ps(p)                                                                                        \
	_mm256_castsi256_ps(                                                                                 \
		_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p))), 16))
#define table16(...)  _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))
#define u8_to_ps(p)   _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#define i8_to_ps(p)   _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#define u8_to_i32(p)  _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p)))
#define low_to_ps(p)  _mm256_cvtepi32_ps(_mm256_and_si256(u8_to_i32(p), _mm256_set1_epi32(15)))
#define high_to_ps(p) _mm256_cvtepi32_ps(_mm256_srli_epi32(u8_to_i32(p), 4))
#endif

/* One vector of outputs: the planes of its panel, and the first of its rows among the panel's 16. */
struct column {
	const uint8_t *quants, *scales, *supers;
	int lane;
};

DT_INLINE struct column column(const enum dt_format f, const uint8_t *panel, int64_t blocks, int lane)
{
	const struct dt_quant_shape *s = dt_quant_shape(f);
	const uint8_t *scales = panel + blocks * s->quants;

	return (struct column){panel + 4 * lane, scales, scales + blocks * s->scales, lane};
}

/* v shifted left by `by` bits, or right by -by. */
DT_INLINE vi shifted(vi v, const int by)
{
	return by > 0 ? V(slli_epi16)(v, by) : by < 0 ? V(srli_epi16)(v, -by) : v;
}

/* Adds the bits `mask` of two chunks, which are from bit `first` and bit `second` of h on, at bit `at`. */
DT_INLINE void add_bits(vi w[2], vi h, const int mask, const int first, const int second, const int at)
{
	const vi only = V(set1_epi8)((char)(mask << at));

	w[0] = bits_or(w[0], bits_and(shifted(h, at - first), only));
	w[1] = bits_or(w[1], bits_and(shifted(h, at - second), only));
}

/* The values of codes with the format's offset, 128 but for MXFP4's 12, as signed bytes. */
DT_INLINE vi table_of(const enum dt_format f)
{
	switch (f) {
	case DT_FMT_MXFP4:
		return table16(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
	case DT_FMT_IQ4_XS:
		return table16(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15);
	case DT_FMT_IQ3_S:
		return table16(-127, -125, -123, -121, -119, -117, -115, -113, 127, 125, 123, 121, 119, 117,
			       115, 113);
	case DT_FMT_IQ3_XXS:
		return table16(-124, -116, -108, -100, -92, -84, -76, -66, 124, 116, 108, 100, 92, 84, 76,
			       66);
	default: /* iq2 */
		return table16(-120, -103, -85, -128, 120, 103, 85, -128, 0, 0, 0, 0, 0, 0, 0, 0);
	}
}

/* Unpacks chunks 2 i and 2 i + 1 of a block to bytes. */
DT_INLINE void unpack(vi w[2], const enum dt_format f, const uint8_t *q, const int i)
{
	const int bits = dt_panel_bits(f), high = bits & 4;

	if (bits == 8) {
		w[0] = load_bits(q + 128 * i);
		w[1] = load_bits(q + 128 * i + 64);
		return;
	}
	w[0] = w[1] = V(set1_epi8)(0);
	if (bits & 4)
		add_bits(w, load_bits(q + 64 * i), 15, 0, 4, 0);
	if (bits & 2)
		add_bits(w, load_bits(q + 64 * high + i / 2 * 64), 3, i % 2 * 4, i % 2 * 4 + 2, high);
	if (bits & 1)
		add_bits(w, load_bits(q + 64 * (bits - 1)), 1, 2 * i, 2 * i + 1, bits - 1);
	if (dt_panel_table(f)) {
		w[0] = V(shuffle_epi8)(table_of(f), w[0]);
		w[1] = V(shuffle_epi8)(table_of(f), w[1]);
	}
}

/* Factors of a block's integers, those of its halves or, where these are joined, their integer factors. */
struct factors {
	vf scale[2], min[2];
	vf d, dmin; /* of joined halves */
};

/* Factors of block b. */
DT_INLINE void factors_of(struct factors *to, const enum dt_format f, const struct column *c, int64_t b)
{
	const uint8_t *s = c->scales + b * (dt_panel_half_min(f) ? 64
					    : dt_panel_signed(f) ? 16
								 : 32),
		      *u = c->supers + b / 8 * (dt_is_k_min(f) || dt_panel_joined(f) ? 64 : 32) + 2 * c->lane;

	if (dt_is_k_min(f)) {
		to->scale[0] = to->scale[1] = V(mul_ps)(half_to_ps(u), u8_to_ps(s + c->lane));
		to->min[0] =
			V(mul_ps)(V(sub_ps)(V(setzero_ps)(), half_to_ps(u + 32)), u8_to_ps(s + 16 + c->lane));
	} else if (dt_panel_joined(f)) {
		to->d = half_to_ps(u);
		to->dmin = V(sub_ps)(V(setzero_ps)(), half_to_ps(u + 32));
		DT_FOR (2, int h = 0; h < 2; h++) {
			to->scale[h] = low_to_ps(s + 16 * h + c->lane);
			to->min[h] = high_to_ps(s + 16 * h + c->lane);
		}
	} else if (dt_panel_halves(f)) {
		const vf d = V(mul_ps)(half_to_ps(u), V(set1_ps)(dt_panel_factor(f)));

		to->scale[0] = V(mul_ps)(d, i8_to_ps(s + c->lane));
		to->scale[1] = V(mul_ps)(d, i8_to_ps(s + 16 + c->lane));
	} else if (dt_panel_signed(f)) {
		const vf d = V(mul_ps)(half_to_ps(u), V(set1_ps)(dt_panel_factor(f)));

		to->scale[0] = to->scale[1] = V(mul_ps)(d, i8_to_ps(s + c->lane));
	} else if (f == DT_FMT_MXFP4) {
		to->scale[0] = to->scale[1] = bf16_to_ps(s + 2 * c->lane);
	} else {
		to->scale[0] = to->scale[1] = half_to_ps(s + 2 * c->lane);
		if (dt_panel_half_min(f))
			to->min[0] = half_to_ps(s + 32 + 2 * c->lane);
	}
}

/*
 * A function per format, mul_q8_0 and so on, each of QUANT_PANELS(format), which the file defines; and case
 * labels that call them. gcc's register allocator divides a function into regions by at most 100 of its loops
 * (ira-max-loops-num); one function of all formats has more, and pointers then live on the stack.
 */
#define QUANT_FUNCTION(NAME, name)                                                                           \
	static __attribute__((noinline)) DT_QUANT_MUL(mul_##name)                                            \
	{                                                                                                    \
		(void)f;                                                                                     \
		(void)xb;                                                                                    \
		QUANT_PANELS(DT_FMT_##NAME);                                                                 \
	}
#define QUANT_CASE(NAME, name)                                                                               \
	case DT_FMT_##NAME:                                                                                  \
		mul_##name(tile, ld, f, w, panel_bytes, panels, next, xq, xb, m, blocks);                    \
		break;

/* What the weights' offset adds to a block's integer sum, or to half of it if halves have factors. */
DT_INLINE int32_t offset_sum(const enum dt_format f, const struct dt_xblock *x, const int half)
{
	return dt_panel_wide(f) && dt_panel_halves(f) ? 4 * x->start6[half]
	       : dt_panel_wide(f)		      ? x->start8
	       : f == DT_FMT_Q4_0		      ? x->start4
	       : f == DT_FMT_MXFP4		      ? x->start4 + x->start4 / 2
	       : f == DT_FMT_Q6_K		      ? x->start6[half]
	       : f == DT_FMT_Q3_K		      ? x->start6[half] / 8
						      : 0;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
