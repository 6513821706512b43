/*
 * Learning of values: outputs of a net are an advantage an action and then the value of the state, so that
 * q(a) = V + A(a) - mean A (Wang et al. 2016). Of each transition, with its weight w, the mean of
 *
 *   w / 2 (reward + follows Q'(next) - Q(now, action))^2
 *
 * Q' is by target weights, those of some updates before, of the actions that the weights that learn hold to
 * be the best (van Hasselt et al. 2016). Q is what a mixer makes of the agents' values; without one, each
 * agent has a loss of its own.
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
/* The target weights become those that learn, as behind a new start. */
void dt_qlearn_follow(struct dt_qlearn *q);

/* q(a) of one row of outputs. */
double dt_q_value(const float *y, int actions, int a);
int dt_q_best(const float *y, int actions);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
