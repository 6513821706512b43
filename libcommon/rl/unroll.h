/*
 * An actor's trajectories: `steps` steps of `envs` environments, ordered by environment, so that concatenated
 * unrolls do not depend on how environments are divided among actors. It is one block of memory, which is
 * sent through a socket as it is.
 */
#ifndef DT_RL_UNROLL_H
#define DT_RL_UNROLL_H

#include "rl/env.h"
#include "rl/net.h"

enum dt_ending { DT_GOES_ON, DT_ENDED, DT_CUT };

/*
 * Per environment: steps for which the actor has sampled (0: not known), rewards so far, and its
 * dt_env_place.
 */
enum { DT_ACTOR_PLACE = 2 + DT_ENV_PLACE };

struct dt_unroll_size {
	int envs, steps, agents, observation;
};

struct dt_unroll {
	struct dt_unroll_size size;
	char *memory; /* of what follows */
	size_t bytes;
	double *reward; /* [envs, steps] for all agents together */
	double *score;	/* [envs, steps] the sum of rewards of the episode that ends there; NAN: none does */
	float *now, *next; /* [envs, steps, agents, observation] before and behind the step */
	float *said;	 /* [envs, steps, agents] log-probability of the action; 0 where outputs are values */
	float *value;	 /* [envs, steps, agents] of the state, as the actor's weights have it */
	int32_t *action; /* [envs, steps, agents] */
	double *place;	 /* [envs, DT_ACTOR_PLACE] where the actor stands behind the last step */
	uint8_t *over;	 /* [envs, steps] enum dt_ending */
};

int dt_unroll_open(struct dt_unroll *u, const struct dt_unroll_size *s, struct dt_err *err);
void dt_unroll_release(struct dt_unroll *u);

/* Numbers of such a row. */
int dt_actor_row(const struct dt_env *e, bool ids);

/* A policy at work in environments. */
struct dt_actor_opts {
	/* A row is what the agent observes and then which one it is: a 1 among as many zeros as others. */
	bool ids;
	bool best; /* the most likely action; nothing is drawn */
	/*
	 * [envs] outputs are values (rl/qlearn.h): any action with this probability, else the best. NULL:
	 * outputs are logits, and actions are drawn.
	 */
	const double *explore;
	uint64_t seed;
	int first;	     /* number of the first environment */
	const double *place; /* [envs, DT_ACTOR_PLACE] go on from there; NULL: begin */
};

struct dt_actor;

/* env and net stay the caller's and outlive it. */
int dt_actor_open(struct dt_actor **ret, struct dt_env *env, struct dt_net *net,
		  const struct dt_actor_opts *o, struct dt_err *err);
void dt_actor_close(struct dt_actor *a); /* NULL is allowed */
/* Goes on from where it is. */
int dt_actor_run(struct dt_actor *a, struct dt_unroll *u, struct dt_err *err);

/* log of the sum of exponentials of n numbers. */
double dt_log_sum(const float *y, int n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
