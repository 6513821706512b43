/*
 * Reinforcement learning in environments: this process is the learner, actors are processes of their own.
 *
 *   a2c      all actors act with the same weights, and wait for the next ones
 *   a3c      each actor computes a gradient from its unroll; the learner applies gradients as they arrive
 *   impala   actors act with the newest weights available; the learner corrects for older ones by V-trace
 *   dqn      likewise; actors explore, and push transitions with their errors into a replay, from which the
 *            learner samples by priority (Horgan et al. 2018, Ape-X); each agent learns by itself
 *   vdn      dqn on the sum of the agents' values
 *   qmix     dqn on a monotonic function of the agents' values, which is learnt too
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
	bool waits;	/* an update waits for all actors, and they wait for it */
	bool gradients; /* actors compute the gradients */
	bool vtrace;
	bool values; /* the net's outputs are action values, learnt from a replay */
	enum dt_mixer mixer;
};

extern const struct dt_control_rule dt_control_rules[DT_CONTROL_N];

/* Options of the value-based rules (dqn, vdn, qmix). */
struct dt_control_values {
	int64_t capacity, begin; /* size of the replay; transitions in it before the first update */
	double priority, importance;
	int batch, ahead;     /* transitions per update; n of n-step returns */
	double ratio;	      /* how often each step is learnt from, on average */
	int64_t target_every; /* updates */
	double explore,
		spread; /* environment e of n explores with probability explore^(1 + spread e / (n - 1)) */
	int width;	/* of the mixer */
};

enum {
	DT_CONTROL_GREEDY_PERCENT = 1
}; /* environments that explore at most this often, or the least, count for the score; all if none explores */

enum { DT_CONTROL_SCORES = 100 }; /* the score is the mean over the last so many episodes */

struct dt_control_line {
	int64_t update, frames, episodes, restarts;
	double score; /* mean of the last episodes; NAN: none has ended */
	double loss, grad_norm;
	double entropy, value_loss, ratio; /* policy-based rules; else NAN */
	double value;			   /* value-based rules: mean value of the actions taken; else NAN */
	int64_t kept;			   /* transitions in the replay */
	double lag;			   /* mean number of updates by which the actors' weights are old */
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
	const char *save;   /* write a checkpoint at the end, and when stopped; NULL: none */
	int64_t save_every; /* write one every so many updates as well; 0: none */
	bool overwrite;	    /* remove another run's checkpoints from save */
	const char *resume; /* the checkpoint, or "auto": the newest of save, if any; NULL: a new run */
	int64_t frames;	    /* at most */
	double until;	    /* NAN: none; the mean score over DT_CONTROL_SCORES episodes that is enough */
	int64_t every;	    /* updates between lines */
	int (*report)(void *arg, const struct dt_control_line *l, struct dt_err *err);
	/* An actor is started anew, with the reason; NULL: nobody asks. */
	void (*anew)(void *arg, int number, const char *why);
	/* What the user should know of resuming, one line; NULL: nobody asks. */
	void (*say)(void *arg, const char *text);
	void *arg;
	volatile sig_atomic_t *stop; /* NULL: nobody stops it */
};

/* Refuses frames that end before values have learnt anything, `done` of them being those of a run before. */
int dt_control_check_frames(const struct dt_control *o, int64_t done, struct dt_err *err);

/*
 * last: the last line. Returns 1 if the score reached `until`, 0 if not, -EINTR if it was stopped. It writes
 * a checkpoint in each case, and also when a line cannot be printed or the actors give up.
 *
 * A checkpoint holds weights, optimizer states, scores, and the state of each environment of this library. So
 * a2c, and a3c with one actor, resume bit for bit. The replay and unrolls in progress are not saved.
 */
int dt_control_run(struct dt_control *c, struct dt_control_line *last, struct dt_err *err);

/* Mean score of n episodes, the most likely action each time, in environments of a seed of their own. */
int dt_control_play(const struct dt_control *c, struct dt_net *net, int64_t episodes, double *ret,
		    struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
