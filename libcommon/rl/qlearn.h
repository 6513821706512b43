/*
 * Q-learning. A net's outputs are one advantage per action and then the value of the state, so that
 * q(a) = V + A(a) - mean A (Wang et al. 2016). The loss is the mean over transitions, each with its weight w,
 * of
 *
 *   w / 2 (reward + follows Q'(next) - Q(now, action))^2
 *
 * Q' uses the target weights, which are some updates old, for the actions that are best under the current
 * weights (double Q-learning: van Hasselt et al. 2016). Q is the mixer's function of the agents' values;
 * without a mixer each agent has a loss of its own.
 */
#ifndef DT_RL_QLEARN_H
#define DT_RL_QLEARN_H

#include "rl/mixer.h"
#include "rl/replay.h"

struct dt_qlearn_opts {
	enum dt_mixer mixer;
	int width;		/* of DT_MIX_NET */
	int64_t target_every;	/* updates; 0: the target is the weights themselves */
	struct dt_net_opts net; /* rule of updates, clipping and seed, for the mixer's net too */
};

struct dt_qlearn;

/* Of n transitions at a time; net outlives it. learns: else errors alone are found. */
int dt_qlearn_open(struct dt_qlearn **ret, struct dt_net *net, const struct dt_qlearn_opts *o, int n,
		   int agents, bool learns, struct dt_err *err);
void dt_qlearn_close(struct dt_qlearn *q); /* NULL is allowed */
/* The net that learns beside the agents': the mixer's; NULL: none. */
struct dt_net *dt_qlearn_mixer(const struct dt_qlearn *q);
/* The gradients become those of the loss; error [n]: sizes of errors (of agents' own, their mean). */
int dt_qlearn_learn(struct dt_qlearn *q, const struct dt_transition *t, const double *weight, double *error,
		    double *ret_loss, double *ret_mean, struct dt_err *err);
/* error [n] alone. */
int dt_qlearn_errors(struct dt_qlearn *q, const struct dt_transition *t, double *error, struct dt_err *err);
/* An update of all nets, and of the target weights where it is time. The norm is that of all gradients. */
int dt_qlearn_update(struct dt_qlearn *q, double *ret_norm, struct dt_err *err);
/* Sets the target weights to the current weights, as at the start. */
void dt_qlearn_follow(struct dt_qlearn *q);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
