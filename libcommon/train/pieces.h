/* Pieces of parameters, optimizer states and gradients that checkpoints hold. */
#ifndef DT_TRAIN_PIECES_H
#define DT_TRAIN_PIECES_H

#include "ckpt/ckpt.h"

struct trainer;

/*
 * The pieces that this rank writes: an equal part of every unit. *ret is malloc'd, and so is *ret_wide, which
 * holds the decoded values of states in 8-bit blocks (NULL: there are none).
 */
int pieces_mine(struct trainer *t, struct dt_piece **ret, int *ret_n, float **ret_wide, struct dt_err *err);
/* Reads this rank's parameters and states. */
int pieces_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
