/*
 * bf16 rows two elements at a time: the low half of a 32-bit word is element 2 j, the high half 2 j + 1. A
 * loop over words has lanes of a single width, so it vectorises on every instruction set without
 * permutations, and a row is read and written once, without an f32 copy.
 */
#ifndef DT_KERNELS_CPU_PAIR_H
#define DT_KERNELS_CPU_PAIR_H

#include "kernels/cpu/cpu.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first of two elements is the low half");

typedef uint32_t __attribute__((may_alias, aligned(2))) dt_pair;

struct dt_two {
	float lo, hi;
};

DT_INLINE float dt_bits_f32(uint32_t u)
{
	float f;

	memcpy(&f, &u, 4);
	return f;
}

DT_INLINE uint32_t dt_f32_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

DT_INLINE struct dt_two dt_pair_get(uint32_t u)
{
	return (struct dt_two){dt_bits_f32(u << 16), dt_bits_f32(u & 0xffff0000u)};
}

/* f rounded to bf16 (nearest even), in the high half. NaN stays NaN if its low half is 0. */
DT_INLINE uint32_t dt_pair_round(float f)
{
	uint32_t u = dt_f32_bits(f);

	return u + 0x7fffu + (u >> 16 & 1);
}

/* Like dt_f32_to_bf16, except for NaNs with bits in the low half: arithmetic on bf16 does not produce any. */
DT_INLINE uint32_t dt_pair_of(float lo, float hi)
{
	return dt_pair_round(lo) >> 16 | (dt_pair_round(hi) & 0xffff0000u);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
