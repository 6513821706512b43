/*
 * Products of 8-bit floats, for training: E4M3 for what goes forward, E5M2 for gradients, which need the
 * exponents (Micikevicius et al. 2022, "FP8 formats for deep learning", section 3). A tensor has one scale,
 * found from what is in it now: there is no history to keep, so a resumed run is the same to the bit.
 *
 * fp8_quantize: x [rows, cols], f32, bf16 or f16, in 8 bits
 *   *scale = s, the least power of two, from 2^-100 on, with max |x| <= s times the largest of y's type
 *   y [rows, cols] = x / s, rounded to nearest even; yt [cols, rows] the same, transposed. One of the two may
 *   be absent; they share a type. scale: f32 [1], in memory of the device. A NaN or infinity in x makes s and
 *   so all of a product NaN: it is not hidden by the largest number, and the trainer finds it where it looks.
 *   A power of two because what is above 2^-13 of the largest then rounds to the same value whatever the
 *   scale: with other shards of a tensor, or other samples beside it, only the smallest numbers differ. It
 *   costs at most the last bit of the range below, and x / s and products of such numbers are exact in bf16
 *   and f32.
 *
 * fp8_matmul: c[m, n] = (accumulate ? c : 0) + sa sb (a b^T) + bias
 *   a [m, k] and b [n, k] have k running fastest (what tensor cores want of 8 bits), E4M3 or E5M2 each, not
 *   both E5M2. c f32, bf16 or f16; bias [n] of c's type, or absent; c overlaps nothing. Sums over k are f32;
 *   of two E4M3 operands (the forward product) the card's tensor cores may keep fewer bits, as Transformer
 *   Engine has them do. Rounded to c's type once.
 *   With y = x w^T:  forward a = x, b = w;  dx = dy w: a = dy, b = w transposed;  dw = dy^T x: a = dy
 *   transposed, b = x transposed.
 * -ENOTSUP: the card has no such products (dt_dev_multiplies).
 *
 * Any size works; a card is at its rate where dt_fp8_fits. Determinism as in matmul.h.
 */
#ifndef DT_KERNELS_FP8_H
#define DT_KERNELS_FP8_H

#include "kernels/device.h"

static inline bool dt_is_fp8(enum dt_dtype t)
{
	return t == DT_E4M3 || t == DT_E5M2;
}

/* Whether all three products of a linear divide into the 16 bytes that cuBLASLt asks of every row of 8 bits:
 * tokens rows, in and out columns. */
static inline bool dt_fp8_fits(int64_t tokens, int64_t in, int64_t out)
{
	return tokens > 0 && in > 0 && out > 0 && tokens % 16 == 0 && in % 16 == 0 && out % 16 == 0;
}

/* The scale, from the bits of max |x|: bits of floats without a sign are in the order of the floats, NaN
 * last. */
static inline DT_HOST_DEVICE float dt_fp8_scale(uint32_t amax, enum dt_dtype t)
{
	/* The largest are 1.75 2^8 and 1.75 2^15: a mantissa above 1.75 takes the next power. */
	int e = (int)((amax + 0x1fffffu) >> 23) - 127 - (t == DT_E4M3 ? 8 : 15);
	uint32_t u;
	float f;

	e = e < -100 ? -100 : e;
	u = amax >= 0x7f800000u ? 0x7fc00000u : (uint32_t)(e + 127) << 23;
	memcpy(&f, &u, 4);
	return f;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
