/*
 * --peer-copy 1: ZeRO states that outlive their rank. Rank r + 1 has the masters and states of rank r's
 * shares too, gets r's shares of the reduced gradients each step, and makes the same update of them.
 *
 * Why the gradients, and not the updated share: 4 bytes an element travel instead of 12, and a rank that has
 * its two shares of gradients needs nobody else to be a step further. Were states sent, a rank lost between
 * the first rank's update and the last's would leave shares of two steps, so that each rank would have to
 * keep the old states as well, its own and the copy's. The price is a second update of 1/dp of the
 * parameters, and 4 bytes more an element in memory.
 */
#ifndef DT_TRAIN_PEER_H
#define DT_TRAIN_PEER_H

#include "plan/states.h"
#include "train/loop.h"
#include "train/store.h"

struct trainer;
struct optim_list;

enum { PEER_STATES = 3 }; /* masters and two states */

extern const enum dt_buf_id peer_copies[PEER_STATES];

/* A rank of an epoch, and with how many it shared the states. */
struct peer_place {
	int64_t epoch, rank, size;
};

struct peer {
	struct peer_place place;   /* of this trainer */
	float *grads;		   /* flat: the shares of all trained units of the rank before */
	float *state[PEER_STATES]; /* likewise; NULL: the run has none */
	int64_t ready;		   /* the step whose gradients are whole, this rank's and the copy's; -1 */
	double norm;		   /* of the last update's gradients */
	struct step_result result; /* of the step under way, as far as it is known */
	bool late;		   /* the step before has no line of metrics yet: result's */
	bool whole;		   /* every rank has its copy */
};

void peer_bind(struct trainer *t);
/* The rank before, whose states are copied. */
struct dt_states peer_states(const struct trainer *t);
/* After the reduction: this rank's shares of the gradients to the next, those of the one before from it. */
int peer_grads(struct trainer *t, struct dt_err *err);
/* The update of elements [first, first + n) of local parameter i's unit, in the copy: optim_update_fn. */
int peer_update(struct trainer *t, int i, struct optim_list *l, int64_t first, int64_t n, void *arg,
		struct dt_err *err);
/* Every rank gets its copy anew. Where this returns 0 on one rank, all have theirs. */
int peer_fill(struct trainer *t, struct dt_err *err);

/* The rank of the new world that has share r of those of `of`; *ret_copy: as a copy. -1: nobody. */
int peer_holder(const struct peer_place *v, int size, const struct peer_place *of, int64_t r, bool *ret_copy);
/*
 * The shares of t from those of the old trainer, whose ranks had other shares: from their owners, or from
 * copies. v [size]: what each rank of the new world was among those that shared the states; those of another
 * epoch than the newest have nothing of them, nor has one that joins (old NULL). -EIO: a rank and the next
 * one are lost.
 */
int peer_hand_over(struct trainer *t, const struct trainer *old, const struct peer_place *v, int size,
		   struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
