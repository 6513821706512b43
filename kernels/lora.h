/*
 * Low-rank products of rows that have an adapter each, for serving: y += s (x a^T) b^T (Hu et al. 2021).
 *   x [m, k], y [m, n]: f32, bf16 or f16, each its own. y does not overlap x.
 *   Rows first .. first + n of a part meet that part's lanes; rows of no part are left as they are, to the
 *   bit. Parts ascend and do not overlap. Lane i of a part adds to columns at .. at + cols of y, where
 *   a [rank, k] and b [cols, rank] are of p's type, f32 or bf16; a NULL: it adds nothing. On a card a lies
 *   row by row, and b column by column. The processor has both in panels of 16 rows, the last one of what is
 *   left, each column by column (dt_lora_panel_at).
 *   h = s x a^T in f32, kept in room f32 [m, p->rank], where lanes stand side by side; then y + h b is
 *   summed in f32 and rounded once. With gain f32 [cols] it is gain (y + h b) + shift, shift f32 [cols] or
 *   NULL: rows of a weight that have magnitudes (dora.h), where (1 - gain) bias leaves the bias as it is.
 * A row's bits depend on its own row of x and its own lanes only, not on m, the parts or the threads. Lanes
 * of one part do not overlap in columns. Tables of p are the host's memory, those of a lane the device's: on
 * a card a and b are aligned to 16 bytes, and at and cols are also those of lanes that add nothing.
 *
 * lora_add     to what y has.
 * packed_lora  y = x w^T + bias (quant.h), with that added before it is rounded: y is rounded once, and a row
 *              of no part has the bits of packed_matmul. gate: 0, or 1 + the function of packed_gated, which
 *              then makes half as many columns of these. gain does not meet the bias, and shift is not read.
 *              -ENOTSUP: on a card, or packed_gated's. -EINVAL also: a lane is none of the rows that calls
 *              of dt_packed_append have made.
 * -EINVAL: shapes or types disagree, parts or lanes go past y, a rank past the room, or no such alignment.
 */
#ifndef DT_KERNELS_LORA_H
#define DT_KERNELS_LORA_H

#include "kernels/device.h"

#define DT_LORA_LANES 3 /* joined linears of a product */

struct dt_lora_lane {
	const void *a, *b;
	int64_t rank, at, cols;
	float scale;
	const float *gain, *shift; /* NULL: none */
};

struct dt_lora_part {
	int64_t first, n; /* rows */
	struct dt_lora_lane lane[DT_LORA_LANES];
};

struct dt_lora_batch {
	enum dt_dtype type;
	int64_t rank; /* room of a row: of all lanes of a part */
	const struct dt_lora_part *part;
	int64_t n; /* parts */
};

#define DT_LORA_PANEL 16

/*
 * Where element k of row i of a matrix [rows, cols] lies among those in panels. In a column of bf16 that is
 * whole, rows i and i + 8 share a word.
 */
static inline int64_t dt_lora_panel_at(enum dt_dtype type, int64_t i, int64_t rows, int64_t k, int64_t cols)
{
	const int64_t at = i % DT_LORA_PANEL, first = i - at,
		      wide = rows - first < DT_LORA_PANEL ? rows - first : DT_LORA_PANEL;
	const bool pairs = type == DT_BF16 && wide == DT_LORA_PANEL;

	return first * cols + k * wide + (pairs ? at % 8 * 2 + at / 8 : at);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
