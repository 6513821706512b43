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
#define table16(...) _mm256_broadcastsi128_si256(_mm_setr_epi8(__VA_ARGS__))
#define u8_to_ps(p)  _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
#define i8_to_ps(p)  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(p))))
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

/* Unpacks chunks 2 i and 2 i + 1 of a block to bytes. */
DT_INLINE void unpack(vi w[2], const enum dt_format f, const uint8_t *q, const int i)
{
	const vi low = V(set1_epi8)(15), two = V(set1_epi8)(0x30), one = V(set1_epi8)(0x10);
	vi t, h;

	if (f == DT_FMT_Q8_0) {
		w[0] = load_bits(q + 128 * i);
		w[1] = load_bits(q + 128 * i + 64);
		return;
	}
	t = load_bits(q + 64 * i);
	w[0] = bits_and(t, low);
	w[1] = bits_and(V(srli_epi16)(t, 4), low);
	if (f == DT_FMT_MXFP4) { /* dt_e2m1_twice + 12 */
		const vi table = table16(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);

		w[0] = V(shuffle_epi8)(table, w[0]);
		w[1] = V(shuffle_epi8)(table, w[1]);
	}
	if (f == DT_FMT_Q5_K) { /* bits 2 i and 2 i + 1 */
		h = load_bits(q + 256);
		w[0] = bits_or(
			w[0],
			bits_and(i < 2 ? V(slli_epi16)(h, 4 - 2 * i) : V(srli_epi16)(h, 2 * i - 4), one));
		w[1] = bits_or(
			w[1],
			bits_and(i < 2 ? V(slli_epi16)(h, 3 - 2 * i) : V(srli_epi16)(h, 2 * i - 3), one));
	}
	if (f == DT_FMT_Q6_K) {
		h = load_bits(q + 256 + i / 2 * 64);
		w[0] = bits_or(w[0], bits_and(i & 1 ? h : V(slli_epi16)(h, 4), two));
		w[1] = bits_or(w[1], bits_and(i & 1 ? V(srli_epi16)(h, 2) : V(slli_epi16)(h, 2), two));
	}
}

/* Scales of the halves of block b (equal except in Q6_K), and the minimum. */
DT_INLINE void scales(vf scale[2], vf *min, const enum dt_format f, const struct column *c, int64_t b)
{
	const uint8_t *s = c->scales + b * (f == DT_FMT_Q4_1 ? 64 : 32), *u = c->supers;

	if (dt_is_k_min(f)) {
		u += b / 8 * 64 + 2 * c->lane;
		scale[0] = scale[1] = V(mul_ps)(half_to_ps(u), u8_to_ps(s + c->lane));
		*min = V(mul_ps)(V(sub_ps)(V(setzero_ps)(), half_to_ps(u + 32)), u8_to_ps(s + 16 + c->lane));
	} else if (f == DT_FMT_Q6_K) {
		const vf d = half_to_ps(u + b / 8 * 32 + 2 * c->lane);

		scale[0] = V(mul_ps)(d, i8_to_ps(s + c->lane));
		scale[1] = V(mul_ps)(d, i8_to_ps(s + 16 + c->lane));
	} else if (f == DT_FMT_MXFP4) {
		scale[0] = scale[1] = bf16_to_ps(s + 2 * c->lane);
	} else {
		scale[0] = scale[1] = half_to_ps(s + 2 * c->lane);
		if (f == DT_FMT_Q4_1)
			*min = half_to_ps(s + 32 + 2 * c->lane);
	}
}

/* Calls fn(tile, ld, f, ...) with a constant f. */
#define QUANT_BY_FORMAT(fn, tile, ld, f, ...)                                                                \
	do {                                                                                                 \
		if (f == DT_FMT_Q8_0)                                                                        \
			fn(tile, ld, DT_FMT_Q8_0, __VA_ARGS__);                                              \
		else if (f == DT_FMT_Q4_0)                                                                   \
			fn(tile, ld, DT_FMT_Q4_0, __VA_ARGS__);                                              \
		else if (f == DT_FMT_Q4_1)                                                                   \
			fn(tile, ld, DT_FMT_Q4_1, __VA_ARGS__);                                              \
		else if (f == DT_FMT_Q4_K)                                                                   \
			fn(tile, ld, DT_FMT_Q4_K, __VA_ARGS__);                                              \
		else if (f == DT_FMT_Q5_K)                                                                   \
			fn(tile, ld, DT_FMT_Q5_K, __VA_ARGS__);                                              \
		else if (f == DT_FMT_MXFP4)                                                                  \
			fn(tile, ld, DT_FMT_MXFP4, __VA_ARGS__);                                             \
		else                                                                                         \
			fn(tile, ld, DT_FMT_Q6_K, __VA_ARGS__);                                              \
	} while (0)

/* The contribution of the weights' offset to a block's integer sum; to half of it in Q6_K. */
DT_INLINE int32_t offset_sum(const enum dt_format f, const struct dt_xblock *x, const int half)
{
	return f == DT_FMT_Q8_0	   ? x->start8
	       : f == DT_FMT_Q4_0  ? x->start4
	       : f == DT_FMT_MXFP4 ? x->start4 + x->start4 / 2
	       : f == DT_FMT_Q6_K  ? x->start6[half]
				   : 0;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
