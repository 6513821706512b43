/*
 * --ema D: an average of the weights, a = d a + (1 - d) w after every update, with d = min(D, (1 + t) /
 * (10 + t)) at update t (0-based), so that the initial weights are soon forgotten. Evaluation uses the
 * average in place of the weights. Checkpoints hold it as ema/NAME.
 */
#ifndef DT_TRAIN_EMA_H
#define DT_TRAIN_EMA_H

#include "train/store.h"

struct ema {
	struct flat flat; /* p NULL: none */
	bool loaded;	  /* read from a checkpoint */
};

void ema_bind(struct trainer *t);
/* Starts the average as a copy of the weights, unless a checkpoint held one. */
int ema_begin(struct trainer *t, struct dt_err *err);
/* After an update. */
int ema_step(struct trainer *t, struct dt_err *err);
/* Swaps weights and average, after trainer_before_update; overwrites the gradients. */
int ema_swap(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
