/*
 * Adafactor's view of a matrix (Shazeer & Stern 2018, section 3): squares of gradients by row and column
 *   alone. factor_sums        rows[i] += sum over columns, cols[j] += sum over rows, of (scale g)^2 + 1e-30
 *   factor_direction   g = scale g / sqrt(r_i c_j / sum)
 * g f32 [n]: elements first .. first + n of a matrix [rows, cols] that lies row after row; r f32 [rows], c
 * f32 [cols]; sums are added in f64, in an order of the device's: independent of the number of threads.
 */
#ifndef DT_KERNELS_FACTOR_H
#define DT_KERNELS_FACTOR_H

#include "kernels/device.h"

struct dt_factor {
	int64_t rows, cols, first;
	float scale;
	double sum; /* of r where it is of the whole matrix, else of c: they are equal */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
