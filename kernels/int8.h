/* Rounding of numbers that share a scale to integers: q = round(x inverse), x is about q scale. */
#ifndef DT_KERNELS_INT8_H
#define DT_KERNELS_INT8_H

#include "kernels/dtype.h"

#define DT_X_ZERO 0x0d800000u /* bits of 2^-100: if all numbers are below it, they count as zero */

/* max: dt_magnitude of the number that maps to `most`. Sets inverse to 0 if all integers are 0; NaN or Inf
 * make the scale NaN. */
static inline DT_HOST_DEVICE void dt_int_scale(uint32_t max, float most, float *scale, float *inverse)
{
	const uint32_t nan = 0x7fc00000u;
	float x;

	memcpy(&x, max >= 0x7f800000u ? &nan : &max, 4);
	*inverse = max < DT_X_ZERO || max >= 0x7f800000u ? 0 : most / x;
	*scale = max < DT_X_ZERO ? 0 : x / most;
}

static inline DT_HOST_DEVICE void dt_int8_scale(uint32_t max, float *scale, float *inverse)
{
	dt_int_scale(max, 127.f, scale, inverse);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
