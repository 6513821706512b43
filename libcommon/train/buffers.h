/*
 * Running statistics of batch norms. Every forward pass in training adds the statistics of its batches to
 * sums. Once a step the sums are averaged over all ranks, and running = 0.9 running + 0.1 mean. So running
 * statistics are the same on every rank, whatever number of ranks a norm spans.
 */
#ifndef DT_TRAIN_BUFFERS_H
#define DT_TRAIN_BUFFERS_H

#include "ckpt/ckpt.h"
#include "nn/exec.h"

struct trainer;

struct buffers {
	struct dt_comm *group; /* the ranks that a norm spans; NULL if that is one rank or all of dp */
	float *host; /* [2, elements] with a CUDA device: running statistics and sums, in host memory */
};

/* Makes the group of ranks that batch norms span; all ranks call it. Then tells the executor. */
int buffers_group(struct trainer *t, struct dt_err *err);
int buffers_bind(struct trainer *t, struct dt_err *err);
void buffers_release(struct trainer *t);
/* Initial values, or those of the weights that the run starts from. */
int buffers_init(struct trainer *t, struct dt_err *err);
/* Clears the sums, those of a skipped step included. */
void buffers_begin(struct trainer *t);
/* Updates the running statistics with those of the step. */
int buffers_update(struct trainer *t, struct dt_err *err);
/* The checkpoint's pieces "model/NAME", which the first rank writes; returns how many. */
int buffers_pieces(const struct trainer *t, struct dt_piece *ret);
int buffers_count(const struct trainer *t);
int buffers_load(struct trainer *t, struct dt_ckpt *ck, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
