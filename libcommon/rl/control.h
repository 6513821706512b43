/*
 * Learning in environments: actors in processes of their own, this one the learner.
 *
 *   a2c      all actors go on by the same weights, and wait for the next
 *   a3c      each actor makes a gradient of what it has done; the learner takes steps by them as they come
 *   impala   actors go on by the newest weights there are; the learner corrects for older ones by V-trace
 *   dqn      actors go on likewise, explore, and push what they have done with its errors into a replay, of
 *            which the learner draws by priority (Horgan et al. 2018, Ape-X); agents learn each by themselves
 *   vdn      dqn of the sum of the agents' values
 *   qmix     dqn of a monotonic function of them, which is learnt too
 */
#ifndef DT_RL_CONTROL_H
#define DT_RL_CONTROL_H

#include "rl/critic.h"
#include "rl/mixer.h"

#include <signal.h>

enum dt_control_kind {
	DT_CONTROL_A2C,
	DT_CONTROL_A3C,
	DT_CONTROL_IMPALA,
	DT_CONTROL_DQN,
	DT_CONTROL_VDN,
	DT_CONTROL_QMIX,
	DT_CONTROL_N
};
#define DT_CONTROL_CHOICES "a2c|a3c|impala|dqn|vdn|qmix"

/* What sets one apart from the others; the loop is the same. */
struct dt_control_rule {
	bool waits;	/* for all actors before an update, and they for it */
	bool gradients; /* actors make them */
	bool vtrace;
	bool values; /* outputs are values, learnt from a replay */
	enum dt_mixer mixer;
};

extern const struct dt_control_rule dt_control_rules[DT_CONTROL_N];

/* Of the rules with values. */
struct dt_control_values {
	int64_t capacity, begin; /* transitions kept; so many before the first update */
	double priority, importance;
	int batch, ahead;     /* transitions of an update; steps that one goes */
	double ratio;	      /* how often a step is learnt from */
	int64_t target_every; /* updates */
	double explore,
		spread; /* environment e of n explores with probability explore^(1 + spread e / (n - 1)) */
	int width;	/* of the mixer */
};

enum {
	DT_CONTROL_GREEDY_PERCENT = 1
}; /* who explores less often counts for the score; all where nobody does */

enum { DT_CONTROL_SCORES = 100 }; /* the mean is over so many episodes, the last ones */

struct dt_control_line {
	int64_t update, frames, episodes, restarts;
	double score; /* mean of the last episodes; NAN: none has ended */
	double loss, grad_norm;
	double entropy, value_loss, ratio; /* of a policy; else NAN */
	double value;			   /* mean of actions that were taken; NAN: of a policy */
	int64_t kept;			   /* transitions of the replay */
	double lag; /* updates between the weights an actor had and those that learn, mean */
	double seconds;
};

struct dt_control {
	enum dt_control_kind kind;
	struct dt_env_spec env; /* n: of all actors together */
	int actors, steps;	/* steps of an unroll */
	int agent_id; /* rows say which agent it is: 1, 0; -1: as resume has it, or where there are several */
	struct dt_net_opts net;	      /* observation and outputs are filled in */
	struct dt_critic_opts critic; /* its discount is that of the values too */
	struct dt_control_values values;
	const char *save;   /* a checkpoint at the end, also where it is stopped; NULL: none */
	int64_t save_every; /* and every so many updates; 0: no more */
	bool overwrite;	    /* save may hold the checkpoints of another run, which go */
	const char *resume; /* go on from one; NULL: begin */
	int64_t frames;	    /* at most */
	double until;	    /* NAN: none; the mean score over DT_CONTROL_SCORES episodes that is enough */
	int64_t every;	    /* updates between lines */
	int (*report)(void *arg, const struct dt_control_line *l, struct dt_err *err);
	/* An actor is started anew, with the reason; NULL: nobody asks. */
	void (*anew)(void *arg, int number, const char *why);
	void *arg;
	volatile sig_atomic_t *stop; /* NULL: nobody stops it */
};

/* Refuses frames that end before values have learnt anything, `done` of them being those of a run before. */
int dt_control_check_frames(const struct dt_control *o, int64_t done, struct dt_err *err);

/*
 * last: the last line. 1: the score is enough, 0: it is not; -EINTR: it was stopped. A checkpoint is written
 * in each case, and also where a line cannot be reported or actors do not go on.
 *
 * What is kept is enough for a2c, and a3c with one actor, to go on as if they had not ended, to the bit:
 * weights, states of the rule, scores, and where each environment of this library is. A replay is not kept,
 * nor what actors are at.
 */
int dt_control_run(struct dt_control *c, struct dt_control_line *last, struct dt_err *err);

/* Mean score of n episodes, the most likely action each time, in environments of a seed of their own. */
int dt_control_play(const struct dt_control *c, struct dt_net *net, int64_t episodes, double *ret,
		    struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
