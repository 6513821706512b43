/*
 * Actor-critic loss of unrolls. The net's outputs are the logits of the actions and then a value. The loss is
 * averaged over all rows (a row is a step of an agent):
 *
 *   -w A log pi(a) + value_coef / 2 (V - R)^2 - entropy_coef H(pi)
 *
 * a2c: A and R by generalised advantages; lambda 1: the n-step return less V (Mnih et al. 2016); w = 1.
 * impala: A and R by V-trace with the ratios of pi to the actor's probabilities, w = min(rho, ratio).
 * After the last step, and after a step at which an episode is truncated, the next state's value is used.
 */
#ifndef DT_RL_CRITIC_H
#define DT_RL_CRITIC_H

#include "rl/returns.h"
#include "rl/unroll.h"

struct dt_critic_opts {
	bool vtrace;
	struct dt_returns returns;
	double value_coef, entropy_coef;
};

struct dt_critic_stats {
	double entropy, value_loss, ratio; /* means over rows */
};

struct dt_critic;

/* For n unrolls of that size at a time. */
int dt_critic_open(struct dt_critic **ret, struct dt_net *net, const struct dt_unroll_size *s, int n,
		   const struct dt_critic_opts *o, struct dt_err *err);
void dt_critic_close(struct dt_critic *c); /* NULL is allowed */
/* Computes the net's gradients of the loss of n unrolls. */
int dt_critic_learn(struct dt_critic *c, const struct dt_unroll *const *u, double *ret_loss,
		    struct dt_critic_stats *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
