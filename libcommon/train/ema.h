/*
 * --ema D: an average of the weights, a = d a + (1 - d) w after every update, with d = min(D, (1 + t) /
 * (10 + t)) at update t (0-based), so that the weights a run starts from are soon forgotten. It is evaluated
 * in the place of the weights, and in checkpoints as ema/NAME.
 */
#ifndef DT_TRAIN_EMA_H
#define DT_TRAIN_EMA_H

#include "train/store.h"

struct ema {
	struct flat flat; /* p NULL: none */
	bool loaded;	  /* from a checkpoint */
};

void ema_bind(struct trainer *t);
/* The average of a run that starts is its weights; that of one that goes on may be in the checkpoint. */
int ema_begin(struct trainer *t, struct dt_err *err);
/* After an update. */
int ema_step(struct trainer *t, struct dt_err *err);
/* Weights and average change places, after trainer_before_update; the gradients are lost. */
int ema_swap(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
