/*
 * Uniform noise for NEFTune (Jain et al. 2023): y[i][j] += width[i] (2 u - 1), y [rows, n] f32, bf16 or f16.
 * u, on [0, 1), is 24 bits of number token[i] n + j of a Philox stream. The noise is rounded to y's type, the
 * sum is f32 and rounded again. A row's noise depends only on its token number, not on layout or threads.
 */
#ifndef DT_KERNELS_NOISE_H
#define DT_KERNELS_NOISE_H

#include "kernels/device.h"
#include "kernels/philox.h"

struct dt_noise {
	struct dt_philox_stream stream;
	const float *width;   /* [rows] half the width of the range, host memory */
	const int64_t *token; /* [rows] token numbers, >= 0, host memory */
};

/* A number of the stream, on [-1, 1). */
static inline DT_HOST_DEVICE float dt_noise_of(uint32_t drawn)
{
	return 2 * ((float)(drawn >> 8) * 0x1p-24f) - 1;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
