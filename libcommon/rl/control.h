/*
 * Learning in environments: actors in processes of their own, this one the learner.
 *
 *   a2c      all actors go on by the same weights, and wait for the next
 *   a3c      each actor makes a gradient of what it has done; the learner takes steps by them as they come
 *   impala   actors go on by the newest weights there are; the learner corrects for older ones by V-trace
 */
#ifndef DT_RL_CONTROL_H
#define DT_RL_CONTROL_H

#include "rl/critic.h"

#include <signal.h>

enum dt_control_kind { DT_CONTROL_A2C, DT_CONTROL_A3C, DT_CONTROL_IMPALA };
#define DT_CONTROL_CHOICES "a2c|a3c|impala"

enum { DT_CONTROL_SCORES = 100 }; /* the mean is over so many episodes, the last ones */

struct dt_control_line {
	int64_t update, frames, episodes, restarts;
	double score; /* mean of the last episodes; NAN: none has ended */
	double loss, grad_norm, entropy, value_loss, ratio;
	double lag; /* updates between the weights an actor had and those that learn, mean */
	double seconds;
};

struct dt_control {
	enum dt_control_kind kind;
	struct dt_env_spec env; /* n: of all actors together */
	int actors, steps;	/* steps of an unroll */
	struct dt_net_opts net; /* observation and outputs are filled in */
	struct dt_critic_opts critic;
	int64_t frames; /* at most */
	double until;	/* NAN: none; the mean score over DT_CONTROL_SCORES episodes that is enough */
	int64_t every;	/* updates between lines */
	int (*report)(void *arg, const struct dt_control_line *l, struct dt_err *err);
	void *arg;
	volatile sig_atomic_t *stop; /* NULL: nobody stops it */
};

/*
 * *ret_net has learnt, also where it was stopped (-EINTR); last: the last line. 1: the score is enough, 0: it
 * is not.
 */
int dt_control_run(struct dt_control *c, struct dt_net **ret_net, struct dt_control_line *last,
		   struct dt_err *err);

/* Mean score of n episodes, the most likely action each time, in environments of a seed of their own. */
int dt_control_play(const struct dt_control *c, struct dt_net *net, int64_t episodes, double *ret,
		    struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
