/*
 * LoRA for serving, with a different adapter per row: y += s (x a^T) b^T (Hu et al. 2021).
 *   x [m, k], y [m, n]: each f32, bf16 or f16. y does not overlap x.
 *   Rows first .. first + n of a part use that part's lanes; rows in no part are left bit for bit. Parts
 *   ascend and do not overlap. Lane i of a part adds to columns at .. at + cols of y; a [rank, k] and
 *   b [cols, rank] are of p's type, f32 or bf16; a NULL: the lane adds nothing. On a card a is row-major and
 *   b column-major. On the CPU both are in panels of 16 rows (the last has the remainder), each column-major
 *   (dt_lora_panel_at).
 *   h = s x a^T in f32 is kept in room f32 [m, p->rank], the lanes side by side; then y + h b is summed in
 *   f32 and rounded once. With gain f32 [cols] the result is gain (y + h b) + shift, shift f32 [cols] or
 *   NULL: DoRA magnitudes (dora.h), where shift = (1 - gain) bias keeps the bias as it is.
 * A row's bits depend only on its row of x and its lanes, not on m, the parts or the threads. Lanes of one
 * part do not overlap in columns. Tables of p are host memory, those of a lane device memory. On a card a and
 * b are aligned to 16 bytes, and at and cols of all lanes are too, even of those that add nothing.
 *
 * lora_add     adds to the contents of y.
 * packed_lora  y = x w^T + bias (quant.h) plus the above: y is rounded once, and a row in no part has the
 *              bits of packed_matmul. gate: 0, or 1 + the activation of packed_gated, which then halves the
 *              columns. gain does not apply to the bias, and shift is not read. -ENOTSUP: on a card, or as
 *              packed_gated. -EINVAL also: a lane's columns are not whole calls of dt_packed_append.
 * -EINVAL: shapes or types disagree, parts or lanes go past y, a rank past the room, or bad alignment.
 */
#ifndef DT_KERNELS_LORA_H
#define DT_KERNELS_LORA_H

#include "kernels/device.h"

#define DT_LORA_LANES 3 /* lanes of a part: the linears of a fused product */

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
	int64_t rank; /* columns of room: the ranks of all lanes of a part */
	const struct dt_lora_part *part;
	int64_t n; /* number of parts */
};

#define DT_LORA_PANEL 16

/*
 * Index of element k of row i of a matrix [rows, cols] in the panel layout. In a full column of bf16, rows i
 * and i + 8 share a 32-bit word.
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
