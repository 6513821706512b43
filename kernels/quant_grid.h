/*
 * Blocks of quant_formats.h in two halves: scales, and the integers that are multiplied with them. Methods
 * that choose the integers by something else than the nearest one (GPTQ) take the scales from here.
 *
 * Element i of a block is step[i / 16] (code - zero) - min[i / 16], code in [0, levels); where codes stand
 * for other numbers, step values[code].
 */
#ifndef DT_KERNELS_QUANT_GRID_H
#define DT_KERNELS_QUANT_GRID_H

#include "kernels/quant_formats.h"

struct dt_grid {
	int block, levels, zero;
	const int8_t *values; /* [levels]; NULL: code - zero */
	float step[16], min[16];
};

/* The scales of a block. false: f has no blocks. */
bool dt_grid_of(enum dt_format f, const void *block, struct dt_grid *ret);
/* The code nearest to x of an element, and what it stands for. */
int dt_grid_nearest(const struct dt_grid *g, int i, float x);
float dt_grid_value(const struct dt_grid *g, int i, int code);
/* The sum of w[i] (error of i)^2 of a block of 32 finite numbers; code: the nearest ones. */
float dt_grid_error32(const struct dt_grid *g, const float *x, const float *w, uint8_t *code);
/* Puts the codes of a block [block] beside the scales that it has. */
void dt_grid_put(enum dt_format f, const uint8_t *code, void *block);

/*
 * As dt_quantize, but the scales are those of about twenty tried that leave the least sum of
 * importance[i] (error of i)^2; importance [n], not negative. Plain types: as dt_quantize. NaN and Inf of src
 * count as 0. Deterministic.
 */
void dt_quantize_weighted(enum dt_format f, const float *src, int64_t n, const float *importance, void *dst);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
