/*
 * --sync local, diloco and gossip: data-parallel ranks update weights of their own. After H steps these
 * become one:
 *   local   w = mean of w_i (local SGD; Stich 2019)
 *   diloco  d = w_old - mean of w_i, w = w_old after a step of SGD with Nesterov momentum by d (Douillard
 *           et al. 2023, algorithm 1); rate 0.7, momentum 0.9. In fragments, each H steps at a time of its
 *           own; d may be used steps later, and in 4 bits (Streaming DiLoCo; Douillard et al. 2025)
 * or after every step each rank takes the mean of its weights and those of its two neighbours on a ring:
 *   gossip  w_i = (w_{i-1} + w_i + w_{i+1}) / 3, of two ranks the mean of both (D-PSGD; Lian et al. 2017,
 *           with the update before the mean: Sayed 2014, adapt then combine)
 * A merge is also made before a checkpoint, where ranks average their optimizer states too, and at the end:
 * what is written is alike on all ranks. The momentum of the outer step is in checkpoints as outer/NAME.
 */
#ifndef DT_TRAIN_OUTER_H
#define DT_TRAIN_OUTER_H

#include "train/store.h"

struct outer {
	struct flat merged, momentum; /* diloco; p NULL: none. gossip: merged has a neighbour's weights */
	int64_t since; /* steps since a checkpoint, or the start: what turns are counted from */
	bool one;      /* the weights of all ranks are one after this step */
	/* diloco's outer gradients on their way */
	char *wire;   /* what they are sent from; NULL: the gradients' memory */
	float *unit;  /* of a card and e3m0: a unit's on the host */
	int fragment; /* whose; -1: nobody's */
	int64_t due;  /* when they are used: a value of since */
	int arrive;   /* ranks whose are not lost; lost: this one's are */
	bool lost;
	struct dt_comm_req *req;
};

int outer_bind(struct trainer *t, struct dt_err *err);
/* What the start of the run says of it. */
void outer_announce(const struct trainer *t);
/* Weights are those that the run starts from. */
int outer_begin(struct trainer *t, struct dt_err *err);
/* After a step: merges where one is due, where a checkpoint is (save), or at the end. */
int outer_step(struct trainer *t, bool save, bool end, struct dt_err *err);

/*
 * outer_diloco.c: the outer gradients of a fragment begin to come together (all: none may be lost); what has
 * come is used, mix is the share of a rank's own weights in those that it goes on from.
 */
int outer_diloco_begin(struct trainer *t, int fragment, bool all, struct dt_err *err);
int outer_diloco_finish(struct trainer *t, double mix, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
