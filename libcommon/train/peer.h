/*
 * --peer-copy 1: ZeRO states that survive the loss of their rank. Rank r + 1 also holds a copy of rank r's
 * shard of the masters and optimizer states. It receives r's shard of the reduced gradients each step and
 * applies the same update to the copy.
 *
 * Gradients are sent, and not the updated shard, because that is 4 bytes an element instead of 12, and
 * because a rank that has both shards of gradients can complete the step without any other rank. If states
 * were sent, a rank lost between the first rank's update and the last's would leave shards of two different
 * steps, so each rank would have to keep the old states as well, its own and the copy's. The price is a
 * second update of 1/dp of the parameters, and 4 bytes more an element in memory.
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

/* A rank in an epoch of an elastic run, and the number of ranks that the states were sharded over. */
struct peer_place {
	int64_t epoch, rank, size;
};

struct peer {
	struct peer_place place;   /* of this trainer */
	float *grads;		   /* gradients of the previous rank's shard, all trained units */
	float *state[PEER_STATES]; /* the copy of its masters and states; NULL: the run has no such state */
	int64_t ready;		   /* the last step with complete gradients, own and the copy's; -1: none */
	double norm;		   /* gradient norm of the last update */
	struct step_result result; /* of the step under way, as far as it is known */
	bool whole;		   /* every rank has its copy */
};

void peer_bind(struct trainer *t);
/* Describes the states of the previous rank, which are copied. */
struct dt_states peer_states(const struct trainer *t);
/*
 * After the reduction: sends this rank's shard of the gradients to the next rank, receives the previous
 * one's.
 */
int peer_grads(struct trainer *t, struct dt_err *err);
/* An optim_update_fn: updates elements [first, first + n) of local parameter i's unit in the copy. */
int peer_update(struct trainer *t, int i, struct optim_list *l, int64_t first, int64_t n, void *arg,
		struct dt_err *err);
/* Sends all copies anew. If it returns 0 on one rank, all ranks have their copy. */
int peer_fill(struct trainer *t, struct dt_err *err);

/*
 * The rank of the new world that holds shard r of the world described by `of`; *ret_copy: as a copy. -1:
 * none.
 */
int peer_holder(const struct peer_place *v, int size, const struct peer_place *of, int64_t r, bool *ret_copy);
/*
 * Fills the shards of t from those of the old world, which were cut differently; each comes from its owner
 * or, if that is lost, from the copy. v [size]: the place of each rank of the new world in the old one. Ranks
 * of an epoch other than the newest hold nothing of it, nor does one that joins (old NULL). -EIO: a rank and
 * the next one, which had its copy, are lost.
 */
int peer_hand_over(struct trainer *t, const struct trainer *old, const struct peer_place *v, int size,
		   struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
