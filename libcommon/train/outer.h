/*
 * --sync local, diloco and gossip: each data-parallel rank updates its own weights. After H steps they are
 * merged:
 *   local   w = mean of w_i (local SGD; Stich 2019)
 *   diloco  d = w_old - mean of w_i, w = w_old after a step of SGD with Nesterov momentum by d (Douillard
 *           et al. 2023, algorithm 1); rate 0.7, momentum 0.9. In fragments: each is merged every H steps, at
 *           different steps; d may be applied some steps later, and sent in 4 bits (Streaming DiLoCo;
 *           Douillard et al. 2025)
 * or after every step each rank averages its weights with those of its two neighbours on a ring:
 *   gossip  w_i = (w_{i-1} + w_i + w_{i+1}) / 3, of two ranks the mean of both (D-PSGD; Lian et al. 2017,
 *           with the update before the mean: Sayed 2014, adapt then combine)
 * Ranks also merge at the end, and before a checkpoint, where they average their optimizer states too: what
 * is written is the same on all ranks. Checkpoints hold the momentum of the outer step as outer/NAME.
 */
#ifndef DT_TRAIN_OUTER_H
#define DT_TRAIN_OUTER_H

#include "train/store.h"

struct outer {
	struct flat merged,
		momentum; /* diloco; p NULL: none. gossip: merged receives a neighbour's weights */
	int64_t since;	  /* steps since the start or a checkpoint; decides when a merge is due */
	bool one;	  /* all ranks have the same weights after this step */
	/* diloco's outer gradients in flight */
	char *wire;   /* the buffer they are sent from; NULL: the memory of the gradients */
	float *unit;  /* e3m0 on a CUDA device: those of one unit, on the host */
	int fragment; /* the fragment they are of; -1: none in flight */
	int64_t due;  /* the value of since at which they are applied */
	int arrive;   /* number of ranks whose outer gradients are not lost (--inject drop) */
	bool lost;    /* this rank's are lost */
	struct dt_comm_req *req;
};

int outer_bind(struct trainer *t, struct dt_err *err);
/* Log messages at the start of the run. */
void outer_announce(const struct trainer *t);
/* diloco: copies the weights that the run starts from into merged. */
int outer_begin(struct trainer *t, struct dt_err *err);
/* After a step: merges if a merge is due, before a checkpoint (save), and at the end. */
int outer_step(struct trainer *t, bool save, bool end, struct dt_err *err);

/*
 * outer_diloco.c: begin starts the all-reduce of a fragment's outer gradients (all: none may be lost). finish
 * waits for it and takes the outer step; the rank goes on from mix own + (1 - mix) merged weights.
 */
int outer_diloco_begin(struct trainer *t, int fragment, bool all, struct dt_err *err);
int outer_diloco_finish(struct trainer *t, double mix, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
