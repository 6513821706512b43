/*
 * NEON (128-bit) implementation of the vector operations of quant_lanes.h; V(op) uses x86's names. All arm64
 * processors have these, and fused multiply-adds.
 */
#ifndef DT_KERNELS_CPU_QUANT_NEON_H
#define DT_KERNELS_CPU_QUANT_NEON_H

#include "kernels/cpu/cpu.h"

#include <arm_neon.h>

typedef int32x4_t vi;
typedef float32x4_t vf;
#define V(op)		      neon_##op
#define neon_set1_epi8(x)     vreinterpretq_s32_s8(vdupq_n_s8(x))
#define neon_set1_epi32(x)    vdupq_n_s32(x)
#define neon_srli_epi16(a, n) ((vi)(vreinterpretq_u16_s32(a) >> (n)))
#define neon_slli_epi16(a, n) ((vi)(vreinterpretq_u16_s32(a) << (n)))
#define neon_shuffle_epi8(table, i)                                                                          \
	vreinterpretq_s32_s8(vqtbl1q_s8(vreinterpretq_s8_s32(table), vreinterpretq_u8_s32(i)))
#define neon_cvtepi32_ps(a)    vcvtq_f32_s32(a)
#define neon_set1_ps(x)	       vdupq_n_f32(x)
#define neon_setzero_ps()      vdupq_n_f32(0)
#define neon_mul_ps(a, b)      vmulq_f32(a, b)
#define neon_sub_ps(a, b)      vsubq_f32(a, b)
#define neon_fmadd_ps(a, b, c) vfmaq_f32(c, a, b)
#define neon_storeu_ps(p, a)   vst1q_f32(p, a)
#define bits_and(a, b)	       vandq_s32(a, b)
#define bits_or(a, b)	       vorrq_s32(a, b)
#define load_bits(p)	       vreinterpretq_s32_u8(vld1q_u8(p))
#define half_to_ps(p)	       vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)))
#define bf16_to_ps(p)	       vreinterpretq_f32_u32(vshll_n_u16(vreinterpret_u16_u8(vld1_u8(p)), 16))
#define table16(...)	       vreinterpretq_s32_s8((int8x16_t){__VA_ARGS__})

/* Four bytes, duplicated. */
DT_INLINE uint32x2_t neon_word(const uint8_t *p)
{
	uint32_t word;

	memcpy(&word, p, 4);
	return vdup_n_u32(word);
}

DT_INLINE vf u8_to_ps(const uint8_t *p)
{
	return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(neon_word(p))))));
}

DT_INLINE vf i8_to_ps(const uint8_t *p)
{
	return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_u32(neon_word(p))))));
}

/* The low and the high four bits of four bytes. */
DT_INLINE vf low_to_ps(const uint8_t *p)
{
	const uint8x8_t v = vand_u8(vreinterpret_u8_u32(neon_word(p)), vdup_n_u8(15));

	return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(v))));
}

DT_INLINE vf high_to_ps(const uint8_t *p)
{
	const uint8x8_t v = vshr_n_u8(vreinterpret_u8_u32(neon_word(p)), 4);

	return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(v))));
}

/* acc += w . x in groups of four signed bytes; x has no -128, so that pairs fit 16 bits. */
DT_INLINE vi neon_dot(vi acc, int8x16_t w, int8x16_t x)
{
#ifdef __ARM_FEATURE_DOTPROD
	return vdotq_s32(acc, w, x);
#else
	return vpadalq_s16(acc, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(x)), vmull_high_s8(w, x)));
#endif
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
