/* Pieces of parameters, optimizer states and gradients that checkpoints hold. */
#ifndef DT_TRAIN_PIECES_H
#define DT_TRAIN_PIECES_H

#include "ckpt/ckpt.h"

struct trainer;

/*
 * What this rank writes: of every unit its equal part. *ret and *ret_wide (what states in blocks decode to,
 * NULL perhaps) are malloc'd.
 */
int pieces_mine(struct trainer *t, struct dt_piece **ret, int *ret_n, float **ret_wide, struct dt_err *err);
/* Reads what this rank holds of parameters and states. */
int pieces_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
