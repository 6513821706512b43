/* What env.c, env_kinds.c and env_pipe.c share. */
#ifndef DT_RL_ENV_PRIV_H
#define DT_RL_ENV_PRIV_H

#include "base/rng.h"
#include "rl/env.h"

#define ENV_STATE 8 /* numbers that an environment of this library is, at most */

struct env_kind {
	const char *name;
	int agents, observation, actions;
	int limit;    /* steps of an episode; then it is cut. 0: size times four */
	int size_max; /* 0: it has no size */
	/* draws: numbers of r from `at` on */
	void (*reset)(double *s, int size, const struct dt_rng *r, uint64_t at);
	/* Whether the episode is over. */
	bool (*step)(double *s, int size, const int32_t *action, double *reward);
	void (*observe)(const double *s, int size, float *ret);
};

/* The kinds of this library; NULL past the last. */
const struct env_kind *env_kind_at(int i);

/* env_pipe.c */
struct env_pipe;
int env_pipe_open(struct env_pipe **ret, struct dt_env *e, const struct dt_env_spec *s, struct dt_err *err);
void env_pipe_close(struct env_pipe *p);
/* Begins episodes in those of which[n]; fills their part of now. */
int env_pipe_reset(struct env_pipe *p, struct dt_env *e, const bool *which, struct dt_err *err);
/* Fills next, reward, ended and cut. */
int env_pipe_step(struct env_pipe *p, struct dt_env *e, const int32_t *action, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
