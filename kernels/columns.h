/*
 * Columns of a matrix: y[:, at .. at + n) = (add ? y : 0) + x[:, from .. from + n)
 *   y [rows, wide], x [rows, wide']: equally many rows, f32, bf16 or f16, each its own; added in f32, rounded
 *   once. Nothing else of y is touched. y and x do not overlap. Independent of the number of threads.
 */
#ifndef DT_KERNELS_COLUMNS_H
#define DT_KERNELS_COLUMNS_H

#include "kernels/device.h"

/*
 * A product with columns of y [rows, wide] and of h [rows, wide'] where they lie: adapters of joined linears.
 * b [n, r] stands for columns at .. at + n of y and from .. from + r of h.
 */
struct dt_columns_product {
	enum {
		DT_COLUMNS_Y, /* y's += h's b^T */
		DT_COLUMNS_H, /* h's = y's b */
		DT_COLUMNS_B  /* b = (accumulate ? b : 0) + y's^T h's; b is f32 or of the others' type */
	} of;
	struct dt_tensor y, h, b;
	int64_t at, from;
	bool accumulate;
};

/*
 * Accumulated in f32, rounded once. -ENOTSUP: the device has whole matrices only (matmul.h), or is as fast
 * with copies of the columns. -EINVAL: shapes or types disagree. -ENOMEM.
 */
int dt_dev_columns_matmul(struct dt_dev *dev, const struct dt_columns_product *p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
