/*
 * Fixed-point sums that do not depend on their order, and stochastic rounding.
 *
 *   fixed_add     sum [n] i64 += x [n] f32 in units of 2^-50, to nearest even, where |x| < 2^12. Other
 *                 elements, NaN included, add nothing and set *ret_out (host memory) to 1; otherwise it is
 *                 0. Sums of up to 2^12 calls fit, and integers add up to the same bits in any order. Waits
 *                 for the card.
 *   fixed_join    sum [n] i64 += other [n] i64
 *   fixed_get     y [n] f32 = sum [n] i64 times 2^-50, rounded to f64 and then to f32
 *   round_random  y [n] bf16 = x [n] f32 rounded up or down with probability proportional to its distance
 *                 (Gupta et al. 2015, Deep Learning with Limited Numerical Precision, section 3): adds the
 *                 lower 16 bits of x and number first + i of a Philox stream; the carry decides. NaN and Inf
 *                 stay.
 *
 * The same bits on every device. Elements are independent; no two tensors may overlap.
 */
#ifndef DT_KERNELS_FIXED_H
#define DT_KERNELS_FIXED_H

#include "kernels/device.h"
#include "kernels/philox.h"

#define DT_FIXED_UNIT  0x1p-50
#define DT_FIXED_LIMIT 0x1p12f

struct dt_round {
	struct dt_philox_stream stream;
	uint64_t first;
};

/* x rounded stochastically by 16 bits of draw. */
static inline DT_HOST_DEVICE uint16_t dt_round_one(float x, uint32_t draw)
{
	uint32_t u;

	memcpy(&u, &x, 4);
	return (u & 0x7f800000u) == 0x7f800000u ? dt_f32_to_bf16(x) : (uint16_t)((u + (draw & 0xffff)) >> 16);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
