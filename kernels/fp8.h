/*
 * Products of 8-bit floats, for training: E4M3 in forward, E5M2 for gradients, which need the wider exponent
 * (Micikevicius et al. 2022, "FP8 formats for deep learning", section 3). A tensor has one scale, computed
 * from its current contents: there is no amax history, so a resumed run is the same to the bit.
 *
 * fp8_quantize: x [rows, cols], f32, bf16 or f16, to 8 bits
 *   *scale = s, the smallest power of two >= 2^-100 with max |x| <= s times the largest value of y's type
 *   y [rows, cols] = x / s, rounded to nearest even; yt [cols, rows] the same, transposed. Either may be
 *   absent; they have one type. scale: f32 [1], device memory. NaN or Inf in x makes s, and so the whole
 *   product, NaN: saturation does not hide it, and the trainer's check finds it.
 *   With a power of two, values above 2^-13 of the largest round to the same result at any scale. So only the
 *   smallest values change when other shards of the tensor or other samples share it. The cost is at most one
 *   bit at the bottom of the range; x / s and the products of such values are exact in bf16 and f32.
 *
 * fp8_matmul: c[m, n] = (accumulate ? c : 0) + sa sb (a b^T) + bias
 *   a [m, k] and b [n, k] are contiguous along k (what tensor cores need for 8 bits), each E4M3 or E5M2, not
 *   both E5M2. c f32, bf16 or f16; bias [n] of c's type, or absent; c overlaps nothing. Sums over k are f32;
 *   for two E4M3 operands (the forward product) the card's tensor cores may keep fewer bits, as in
 *   Transformer Engine. Rounded to c's type once.
 *   With y = x w^T:  forward a = x, b = w;  dx = dy w: a = dy, b = w transposed;  dw = dy^T x: a = dy
 *   transposed, b = x transposed.
 * -ENOTSUP: the card has no such products (dt_dev_multiplies).
 *
 * Any size works; a card reaches its full rate where dt_fp8_fits. Determinism as in matmul.h.
 */
#ifndef DT_KERNELS_FP8_H
#define DT_KERNELS_FP8_H

#include "kernels/device.h"
#include "kernels/matmul.h"

static inline bool dt_is_fp8(enum dt_dtype t)
{
	return t == DT_E4M3 || t == DT_E5M2;
}

/* Whether the three products of a linear meet cuBLASLt's requirement that 8-bit rows are multiples of 16
 * bytes: `tokens` rows, `in` and `out` columns. */
static inline bool dt_fp8_fits(int64_t tokens, int64_t in, int64_t out)
{
	return tokens > 0 && in > 0 && out > 0 && tokens % 16 == 0 && in % 16 == 0 && out % 16 == 0;
}

/* The scale from amax, the bits of max |x| (as integers they are in the order of the floats, NaN last). */
static inline DT_HOST_DEVICE float dt_fp8_scale(uint32_t amax, enum dt_dtype t)
{
	/* The largest values are 1.75 2^8 and 1.75 2^15: a mantissa above 1.75 takes the next power of
	 * two. */
	int e = (int)((amax + 0x1fffffu) >> 23) - 127 - (t == DT_E4M3 ? 8 : 15);
	uint32_t u;
	float f;

	e = e < -100 ? -100 : e;
	u = amax >= 0x7f800000u ? 0x7fc00000u : (uint32_t)(e + 127) << 23;
	memcpy(&f, &u, 4);
	return f;
}

/* CPU: bytes in which a thread turns a block of codes. */
enum { DT_FP8_BLOCK = 9 << 14 };

/* CPU: fp8_matmul's copies of a, of b, and of an f16 c with its bias; wide: in f32, not bf16. */
struct dt_fp8_room {
	size_t a, b, c;
	bool wide;
};
static inline struct dt_fp8_room dt_fp8_room(const struct dt_product *p, bool bias_f32)
{
	/* bf16 holds the operands exactly, but its product takes no other bias type and does not output
	 * f16 */
	const bool half = p->out == DT_F16, wide = half || (p->bias && bias_f32);
	const size_t each = wide ? 4 : 2;

	return (struct dt_fp8_room){((size_t)(p->m * p->k) * each + 63) / 64 * 64,
				    ((size_t)(p->n * p->k) * each + 63) / 64 * 64,
				    half ? (size_t)(p->m * p->n + p->n) * 4 : 0, wide};
}

/* Scratch of fp8_quantize (turned: with yt), and of fp8_matmul; p's in is not read. bias_f32: bias is f32. */
DT_C size_t dt_fp8_quantize_scratch(const struct dt_scratch_on *on, bool turned);
DT_C void dt_fp8_matmul_scratch(const struct dt_scratch_on *on, const struct dt_product *p, bool bias_f32,
				struct dt_scratch *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
