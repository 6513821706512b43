/*
 * Blocks of quant_formats.h taken apart: the scales, and the integers that they multiply. Methods that do not
 * round each integer to the nearest (GPTQ) take the scales from here.
 *
 * Element i of a block is step[i / 16] (code - zero) - min[i / 16], code in [0, levels). In formats with a
 * table of values it is step values[code].
 */
#ifndef DT_KERNELS_QUANT_GRID_H
#define DT_KERNELS_QUANT_GRID_H

#include "kernels/quant_formats.h"

struct dt_grid {
	int block, levels, zero;
	const int8_t *values; /* [levels]; NULL: code - zero */
	float step[16], min[16];
};

/* Reads the scales of a block. false: f is not a block format. */
bool dt_grid_of(enum dt_format f, const void *block, struct dt_grid *ret);
/* The code nearest to x for element i of a block, and the value of a code. */
int dt_grid_nearest(const struct dt_grid *g, int i, float x);
float dt_grid_value(const struct dt_grid *g, int i, int code);
/* Sum of w[i] (error of element i)^2 over a block of 32 finite numbers, with the nearest codes, stored in
 * code. */
float dt_grid_error32(const struct dt_grid *g, const float *x, const float *w, uint8_t *code);
/* Writes codes into a block [block] that already has its scales. */
void dt_grid_put(enum dt_format f, const uint8_t *code, void *block);

/*
 * Like dt_quantize, but tries about twenty scales per block and takes the one with the smallest sum of
 * importance[i] (error of i)^2; importance [n] >= 0. Plain types: as dt_quantize. NaN and Inf in src count as
 * 0. Deterministic.
 */
void dt_quantize_weighted(enum dt_format f, const float *src, int64_t n, const float *importance, void *dst);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
