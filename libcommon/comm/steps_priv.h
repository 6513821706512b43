/* Shared by steps.c and steps_trees.c: moves of one rank in one round are appended to m. */
#ifndef DT_COMM_STEPS_PRIV_H
#define DT_COMM_STEPS_PRIV_H

#include "comm/steps.h"

static inline int dt_comm_log2_down(int p)
{
	return 31 - __builtin_clz((unsigned)p);
}

/* Whether the first half of the rounds is towards the root. */
static inline bool dt_comm_steps_inward(const struct dt_comm_steps *s)
{
	return s->kind != DT_COMM_BROADCAST;
}

/* steps_trees.c */
/* n elements from element at on, to or from a peer. */
void dt_comm_moves_add(struct dt_comm_moves *m, enum dt_comm_move_kind kind, int peer, size_t at, size_t n);

/* Each as dt_comm_steps_round, for one algorithm. */
void dt_comm_doubling_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m);
void dt_comm_tree_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m);
void dt_comm_chain_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m);
void dt_comm_two_trees_round(const struct dt_comm_steps *s, int rank, int round, struct dt_comm_moves *m);
/* Edges from the deepest leaf of p places to the root of an in-order tree. */
int dt_comm_in_order_depth(int p);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
