/*
 * Copies or adds a range of columns: y[:, at .. at + n) = (add ? y : 0) + x[:, from .. from + n)
 *   y [rows, wide], x [rows, wide']: equal numbers of rows; each f32, bf16 or f16; added in f32, rounded
 *   once. The rest of y is not touched. y and x do not overlap. Independent of the number of threads.
 */
#ifndef DT_KERNELS_COLUMNS_H
#define DT_KERNELS_COLUMNS_H

#include "kernels/matmul.h"

/*
 * Matrix product on column ranges of y [rows, wide] and h [rows, wide'], without copying them out: LoRA
 * adapters of fused linears. b [n, r] belongs to columns at .. at + n of y and from .. from + r of h, which
 * are Y and H below.
 */
struct dt_columns_product {
	enum {
		DT_COLUMNS_Y, /* Y += H b^T */
		DT_COLUMNS_H, /* H = Y b */
		DT_COLUMNS_B  /* b = (accumulate ? b : 0) + Y^T H; b is f32 or of the others' type */
	} of;
	struct dt_tensor y, h, b;
	int64_t at, from;
	bool accumulate;
};

/*
 * Accumulates in f32, rounds once. -ENOTSUP: the device multiplies whole matrices only (matmul.h), or is as
 * fast on copies of the columns. -EINVAL: shapes or types disagree. -ENOMEM.
 */
int dt_dev_columns_matmul(struct dt_dev *dev, const struct dt_columns_product *p);

/* Scratch of such a product as a matmul of Y, H and b alone; false: -ENOTSUP. */
DT_C bool dt_columns_matmul_scratch(const struct dt_scratch_on *on, const struct dt_product *p,
				    struct dt_scratch *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
