/*
 * Columns of a matrix: y[:, at .. at + n) = (add ? y : 0) + x[:, from .. from + n)
 *   y [rows, wide], x [rows, wide']: equally many rows, f32, bf16 or f16, each its own; added in f32, rounded
 *   once. Nothing else of y is touched. y and x do not overlap. Independent of the number of threads.
 */
#ifndef DT_KERNELS_COLUMNS_H
#define DT_KERNELS_COLUMNS_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
