/*
 * Blocks of 256 whose scales are searched for: each sub-block's scale (and minimum) is the weighted
 * least-squares fit to the best of about twenty roundings, then an integer that its neighbours do not beat. A
 * weight's error counts by importance [n], or with NULL more the larger it is. Deterministic, the same on
 * every processor. NaN and Inf count as 0. n is a multiple of 256; quant_formats.h has the layouts.
 */
#ifndef DT_KERNELS_QUANT_SEARCH_H
#define DT_KERNELS_QUANT_SEARCH_H

#include "kernels/dtype.h"

#include <stdint.h>
#include <string.h>

/* x as f16 at p, which needs no alignment. */
static inline void dt_put_half(uint8_t *p, float x)
{
	const uint16_t h = dt_f32_to_f16(x);

	memcpy(p, &h, sizeof(h));
}

void dt_quantize_q4_k(const float *src, int64_t n, const float *importance, uint8_t *dst);
void dt_quantize_q5_k(const float *src, int64_t n, const float *importance, uint8_t *dst);
void dt_quantize_q6_k(const float *src, int64_t n, const float *importance, uint8_t *dst);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
