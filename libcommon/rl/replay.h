/*
 * Experience replay with priorities (Schaul et al. 2016; Horgan et al. 2018, Ape-X): the newest transitions,
 * each sampled with probability p_i^a / sum of p^a, where p is the magnitude of its error when last computed.
 * Importance weights (N P(i))^-b, divided by the largest of the batch, correct the bias.
 *
 * A transition goes n steps ahead, fewer where the episode ends or is cut, or the unroll ends:
 *
 *   now, action -> reward = r_t + discount r_{t+1} + .. , then the value of next times follows = discount^m
 *
 * follows is 0 behind the end of an episode; behind a cut it is not.
 */
#ifndef DT_RL_REPLAY_H
#define DT_RL_REPLAY_H

#include "rl/unroll.h"

struct dt_transition {
	const float *now, *next; /* [agents, observation] */
	const int32_t *action;	 /* [agents] */
	double reward, follows;
};

/* The transition of n steps from step t of environment e on; it points into u. */
struct dt_transition dt_unroll_ahead(const struct dt_unroll *u, int e, int t, int n, double discount);

struct dt_replay_opts {
	int64_t capacity;	     /* transitions */
	double priority, importance; /* a and b above */
	uint64_t seed;
};

struct dt_replay;

int dt_replay_open(struct dt_replay **ret, const struct dt_replay_opts *o, int agents, int observation,
		   struct dt_err *err);
void dt_replay_close(struct dt_replay *r); /* NULL is allowed */
/* Adds a transition, in place of the oldest if the replay is full. error: its magnitude, from the actor. */
void dt_replay_push(struct dt_replay *r, const struct dt_transition *t, double error);
int64_t dt_replay_kept(const struct dt_replay *r);
/*
 * n transitions, which stay where they are until the next push, their numbers and weights: one of each nth
 * part of the sum of priorities. The draws are a function of the seed and of how many there were before.
 */
void dt_replay_draw(struct dt_replay *r, int n, struct dt_transition *ret, int64_t *number, double *weight);
/* Sets the magnitude of the error of transition `number`. */
void dt_replay_judge(struct dt_replay *r, int64_t number, double error);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
