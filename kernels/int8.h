/* How numbers that share a scale are rounded to int8: x inverse to the nearest integer, which times scale is
 * x. */
#ifndef DT_KERNELS_INT8_H
#define DT_KERNELS_INT8_H

#include "kernels/dtype.h"

#define DT_X_ZERO 0x0d800000u /* 2^-100 as bits: numbers that are all below it are zero */

/* max: dt_magnitude of the largest. inverse 0: all integers are; NaN and Inf make the scale NaN. */
static inline DT_HOST_DEVICE void dt_int8_scale(uint32_t max, float *scale, float *inverse)
{
	const uint32_t nan = 0x7fc00000u;
	float most;

	memcpy(&most, max >= 0x7f800000u ? &nan : &max, 4);
	*inverse = max < DT_X_ZERO || max >= 0x7f800000u ? 0 : 127.f / most;
	*scale = max < DT_X_ZERO ? 0 : most / 127.f;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
