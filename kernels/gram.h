/*
 * A polynomial of a matrix's product with its own transpose, and transposition: the steps that make a matrix
 * orthogonal (train/whole_step.h).
 *   gram        c = alpha a a^T + beta b + diagonal I
 *               a [m, k]; b [m, m], symmetric, or absent; c [m, m], exactly symmetric; one type, f32 or bf16.
 *               Products accumulate in f32; c is rounded once, on a card in bf16 twice (product, sum). c, a
 *               and b do not overlap. The CPU computes blocks of DT_GRAM_ROWS rows up to the diagonal and
 *               mirrors them, if there is more than one. Determinism: matmul's (matmul.h).
 *   transpose   y = x^T   x [m, n], y [n, m]; each f32 or bf16; rounded to nearest even. No overlap.
 */
#ifndef DT_KERNELS_GRAM_H
#define DT_KERNELS_GRAM_H

#include "kernels/matmul.h"

#define DT_GRAM_ROWS 256

/* Bytes of a block's product. */
static inline size_t dt_gram_bytes(int64_t m)
{
	return (size_t)(m < DT_GRAM_ROWS ? m : DT_GRAM_ROWS) * (size_t)m * sizeof(float);
}

DT_C void dt_gram_scratch(const struct dt_scratch_on *on, int64_t m, int64_t k, enum dt_dtype t,
			  struct dt_scratch *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
