/*
 * 8-bit optimizer states (Dettmers et al. 2022): blocks of DT_STATE_BLOCK values; each value is stored as the
 * 8-bit code of value / scale of its block. The codes are bitsandbytes' dynamic map, signed and unsigned. The
 * scale is the value of largest magnitude, including its sign, where bitsandbytes stores the magnitude: that
 * value always gets the code of 1, so decoding and encoding again gives the same codes and scale.
 *
 * Memory layout: all f32 scales, then one byte per value (dt_optim_state_bytes).
 */
#ifndef DT_KERNELS_BLOCKS8_H
#define DT_KERNELS_BLOCKS8_H

#include "kernels/optim.h"

/* The values of the 256 codes, ascending. */
const float *dt_blocks8_map(bool is_signed);

/* Decodes values [first, first + n) of a state of `all` values. */
void dt_blocks8_decode(float *to, const void *state, int64_t all, int64_t first, int64_t n, bool is_signed);
/* Encodes the same range. first must be a multiple of DT_STATE_BLOCK; so must n, unless first + n == all. */
void dt_blocks8_encode(void *state, int64_t all, int64_t first, const float *from, int64_t n, bool is_signed);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
