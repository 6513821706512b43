/* Shared by pieces.c, which writes, and pieces_load.c alone. */
#ifndef DT_TRAIN_PIECES_PRIV_H
#define DT_TRAIN_PIECES_PRIV_H

#include "kernels/optim.h"
#include "train/pieces.h"

/* Kinds of values: the parameters, the optimizer's states, the outer momentum, the average, the gradients. */
enum {
	PIECES_MODEL,
	PIECES_OUTER = PIECES_MODEL + DT_OPTIM_STATES + 1,
	PIECES_EMA,
	PIECES_GRAD,
	PIECES_KINDS
};

/* Whether local parameter i has values of a kind. */
bool pieces_kind_has(const struct trainer *t, int kind, int i);
/* Whether values of a kind are in 8-bit blocks: decoded when written, encoded when read. */
bool pieces_in_blocks(const struct trainer *t, int kind);
/* Whether a kind has one value per row or per column of the parameter. */
bool pieces_by_line(const struct trainer *t, int kind);
/* The piece with such values, for this rank's box of local parameter i. */
struct dt_piece pieces_line(const struct trainer *t, int i, int kind);
/*
 * The part of parameter i in elements [lo, hi) of its unit, as at most 2 ndim + 1 pieces with their
 * addresses. wide: the address of the part's first value if values are decoded, else NULL.
 */
int pieces_of_range(const struct trainer *t, int i, int kind, int64_t lo, int64_t hi, const float *wide,
		    struct dt_piece *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
