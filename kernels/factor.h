/*
 * Adafactor's factored second moment of a matrix (Shazeer & Stern 2018, section 3): squared gradients are
 * kept as row sums and column sums only.
 *   factor_sums        rows[i] += sum over columns, cols[j] += sum over rows, of (scale g)^2 + 1e-30
 *   factor_direction   g = scale g / sqrt(r_i c_j / sum)
 * g f32 [n]: elements first .. first + n of a row-major matrix [rows, cols]; r f32 [rows], c f32 [cols]. Sums
 * are accumulated in f64, in an order fixed per device, whatever the number of threads.
 */
#ifndef DT_KERNELS_FACTOR_H
#define DT_KERNELS_FACTOR_H

#include "kernels/device.h"
#include "kernels/scratch.h"

struct dt_factor {
	int64_t rows, cols, first;
	float scale;
	double sum; /* of r where it is of the whole matrix, else of c: they are equal */
};

/* Scratch of factor_direction. */
DT_C size_t dt_factor_direction_scratch(const struct dt_scratch_on *on, int64_t cols);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
