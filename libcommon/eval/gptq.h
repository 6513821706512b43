/*
 * GPTQ (Frantar et al. 2023): the columns of a matrix are rounded one after the other, and the columns that
 * are not rounded yet compensate the error. For a product y = x w^T with H = the sum of x^T x over its
 * inputs, this is the least squares solution given the columns already rounded.
 */
#ifndef DT_EVAL_GPTQ_H
#define DT_EVAL_GPTQ_H

#include "base/err.h"
#include "kernels/quant_formats.h"

/*
 * u [k, k], upper triangular, with (H + damping mean(diag H) I)^-1 = u^T u; in fp64 inside. h [k, k] is
 * symmetric; column j of u is column order[j] of h (NULL: j). An input that is always 0 counts as one that
 * depends on no other. -EDOM: not positive definite; -ENOMEM.
 */
int dt_gptq_factor(const float *h, int64_t k, double damping, const int32_t *order, float *u,
		   struct dt_err *err);

struct dt_gptq {
	enum dt_format format; /* of blocks */
	int64_t k;	       /* a multiple of the block */
	const float *u;
	/* Columns in the order of rounding; NULL: as they stand. With it the scales of all blocks
	 * are those of w as it is, else those of a block as it has become when its first column comes. */
	const int32_t *order;
	const float
		*importance; /* [k] by which scales are chosen (kernels/quant_grid.h): the diagonal of H */
};
/* w [rows, k] to blocks at dst. Each row depends on itself alone; deterministic. -ENOMEM. */
int dt_gptq_round(const struct dt_gptq *g, const float *w, int64_t rows, void *dst, struct dt_err *err);

/* Columns by falling diagonal of h; equal ones as they stand. */
void dt_gptq_order(const float *h, int64_t k, int32_t *order);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
