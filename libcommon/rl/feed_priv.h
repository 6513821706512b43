/* What feed.c, feed_file.c and feed_draw.c share. */
#ifndef DT_RL_FEED_PRIV_H
#define DT_RL_FEED_PRIV_H

#include "rl/feed.h"
#include "rl/pack.h"
#include "rl/policy.h"
#include "rl/returns.h"
#include "rl/reward.h"
#include "rl/sampler.h"
#include "rl/stats.h"

/* For objectives with a value head; else all NULL. */
struct feed_values {
	float *value, *logprob;	 /* [rows, seq] of the pack, under the model being trained */
	double *advantage, *ret; /* [tokens] of the answers in their order in the pack */
	double *reward;		 /* [2 tokens] scratch */
};

struct feed {
	struct dt_given given;
	struct dt_run_rl o;
	struct dt_policy policy;
	struct dt_given_site site;

	/* of a file */
	struct dt_group *pool; /* [npool] */
	int64_t npool;
	/* drawn from the weights */
	struct dt_rl_task task;
	struct feed_server *server;

	/* the step under way */
	struct dt_group *now;	/* [o.batch] drawn, or borrowed from the pool */
	int64_t nnow, refilled; /* of them, groups that took the place of others */
	bool warned,
		foreign; /* foreign: a file's answers were sampled from weights other than the initial ones */
	int64_t answers, most;	  /* of all groups; tokens that one may have in any step */
	struct dt_lesson *lesson; /* [answers] */
	struct dt_pack pack;
	struct feed_values values;
	float *reference; /* [rows, seq] of the pack: the reference's log-probabilities; NULL: no reference */
	struct dt_rl_stats stats;
	struct dt_ratio_stats ratios;
	double draw_s, score_s, sync_s;
	double staleness, most_stale; /* of the answers, in steps; NAN: not known */
	int64_t renewed;	      /* groups that newer weights went on with */
};

/*
 * feed_values.c: begin allocates for the pack; look takes the values and log-probabilities of a microbatch;
 * ready sums them over all ranks; teach computes advantages and returns
 */
int feed_values_begin(struct feed *f, struct dt_err *err);
void feed_values_look(struct feed *f, const struct dt_flight *flight, const float *logprob);
int feed_values_ready(struct feed *f, struct dt_err *err);
void feed_values_teach(struct feed *f);
void feed_values_release(struct feed *f);
/* feed_file.c */
int feed_file_open(struct feed *f, struct dt_err *err);
int feed_file_step(struct feed *f, int64_t step, struct dt_err *err);
void feed_file_close(struct feed *f);
/* feed_exchange.c: all-gathers the sampled groups in the order of prompts: to [--prompts]. failed < 0: this
 * rank has failed, and the call fails on all ranks */
int feed_exchange(struct feed *f, const struct dt_group *mine, int64_t n, int failed, struct dt_group *to,
		  struct dt_err *err);
/* feed_draw.c */
int feed_draw_open(struct feed *f, struct dt_err *err);
int feed_draw_step(struct feed *f, int64_t step, struct dt_err *err);
void feed_draw_close(struct feed *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
