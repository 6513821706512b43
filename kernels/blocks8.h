/*
 * Optimizer states in 8 bits (Dettmers et al. 2022): blocks of DT_STATE_BLOCK values, each value a code of
 * its share of the block's scale. The codes are bitsandbytes' dynamic map, signed and unsigned. The scale
 * is the value of the largest magnitude, with its sign, where bitsandbytes has the magnitude: that value
 * then has the code of 1, so that what was decoded encodes to the same codes and scale again.
 *
 * In memory: the scales, f32, then a byte a value (dt_optim_state_bytes).
 */
#ifndef DT_KERNELS_BLOCKS8_H
#define DT_KERNELS_BLOCKS8_H

#include "kernels/optim.h"

/* The sorted values of the 256 codes. */
const float *dt_blocks8_map(bool is_signed);

/* Values [first, first + n) of the `all` values at state. */
void dt_blocks8_decode(float *to, const void *state, int64_t all, int64_t first, int64_t n, bool is_signed);
/* Likewise; first is a multiple of DT_STATE_BLOCK, and so is n, or first + n is all. */
void dt_blocks8_encode(void *state, int64_t all, int64_t first, const float *from, int64_t n, bool is_signed);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
