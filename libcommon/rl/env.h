/*
 * Environments of agents, n of them side by side, each with a stream of random numbers of its own: what
 * happens in one is a function of (seed, its number, the actions in it) alone, however they are divided among
 * processes. An environment whose episode has ended begins the next at once.
 *
 *   cartpole       a pole on a cart, as Gymnasium's CartPole-v1 (Barto, Sutton & Anderson 1983)
 *   grid:N         a square of N x N cells; the agent goes to the goal: 1 there, -0.01 a step before
 *   twostep        two agents share a reward; the first one's first action chooses between two matrix games
 *                  (Rashid et al. 2018, QMIX, section 5)
 *
 * or a program on a pipe, which reads JSON lines and answers each with one, at once:
 *
 *   {"open": {"envs": 8, "first": 0, "seed": 1337}}
 *	 {"agents": 1, "observation": 4, "actions": 2}
 *   {"reset": [0, 3]}			   begin episodes in these
 *	 {"observations": [[..4 numbers..], [..]]}
 *   {"step": [0, 1, 1, 0, 0, 1, 0, 1]}	   an action an agent, environment after environment
 *	 {"observations": [[..] x 8], "rewards": [8 numbers], "terminated": [8 booleans], "truncated": [8]}
 *
 * observations have a row an agent. "truncated" may be left out. Numbers are finite.
 */
#ifndef DT_RL_ENV_H
#define DT_RL_ENV_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define DT_ENVS "cartpole, grid:N and twostep"

struct dt_env_spec {
	const char *name;    /* of DT_ENVS; NULL: command */
	const char *command; /* for /bin/sh; NULL: name */
	int n, first;	     /* environments; the number of the first one, of all of a job */
	uint64_t seed;
	double timeout; /* seconds for an answer of the command */
};

struct dt_env {
	int n, agents, observation, actions;
	float *now;	/* [n, agents, observation] current observations */
	float *next;	/* the same after the step, before a new episode has begun */
	double *reward; /* [n] of the step, for all agents together */
	bool *ended;	/* [n] the episode is terminated; */
	bool *cut;	/* [n] or truncated */
};

int dt_env_open(struct dt_env **ret, const struct dt_env_spec *s, struct dt_err *err);
void dt_env_close(struct dt_env *e); /* NULL is allowed */
/* action [n, agents] */
int dt_env_step(struct dt_env *e, const int32_t *action, struct dt_err *err);

enum { DT_ENV_PLACE = 10 };
/*
 * The state of environment i, as numbers from which another one of the same kind and seed continues in the
 * same way. false: it is a command's, whose state is not known. dt_env_go_on sets it.
 */
bool dt_env_place(const struct dt_env *e, int i, double *ret);
void dt_env_go_on(struct dt_env *e, int i, const double *place);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
