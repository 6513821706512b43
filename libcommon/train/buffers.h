/*
 * Running statistics of batch norms. Every training pass adds its batches' to sums; once a step those of
 * all ranks become one mean, and running = 0.9 running + 0.1 of that: the same on every rank, whatever a
 * norm spans.
 */
#ifndef DT_TRAIN_BUFFERS_H
#define DT_TRAIN_BUFFERS_H

#include "ckpt/ckpt.h"
#include "nn/exec.h"

struct trainer;

struct buffers {
	struct dt_comm *group; /* ranks that a norm spans where those are not all; NULL */
	float *host; /* [2, elements] running ones and sums of a run on a card: the host works with them */
};

/* Makes the group of ranks that batch norms span; all ranks call it. Then tells the executor. */
int buffers_group(struct trainer *t, struct dt_err *err);
int buffers_bind(struct trainer *t, struct dt_err *err);
void buffers_release(struct trainer *t);
/* Elements of all buffers; 0 where the model has none. */
int64_t buffers_numel(const struct trainer *t);
/* Initial values, or those of the weights that the run starts from. */
int buffers_init(struct trainer *t, struct dt_err *err);
/* Sums begin anew; a step that is left out leaves none. */
void buffers_begin(struct trainer *t);
/* The step's statistics into the running ones. */
int buffers_update(struct trainer *t, struct dt_err *err);
/* As tensors "model/NAME" of a checkpoint, written by the first rank; returns how many. */
int buffers_pieces(const struct trainer *t, struct dt_piece *ret);
int buffers_count(const struct trainer *t);
int buffers_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
