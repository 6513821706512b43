/*
 * Draws groups of answers from a model in this process: the engine of dt-serve behind one call.
 *
 * Which number decides a token is a function of (seed, index of the prompt, number of the answer, position)
 * alone: not of the batch, of the order of prompts, or of how many processes share the work.
 */
#ifndef DT_RL_SAMPLER_H
#define DT_RL_SAMPLER_H

#include "rl/rollout.h"
#include "serve/api/served.h"

struct dt_sampler_opts {
	int group;	/* answers a prompt */
	int max_tokens; /* of an answer */
	double temperature;
	uint64_t seed;
	int piece; /* tokens after which newer weights are asked for; 0: answers are whole */
};

/* The seed of a prompt's draws; its answers are the streams of it. */
uint64_t dt_rl_seed(const struct dt_sampler_opts *o, int64_t index);

struct dt_completion;

struct dt_rl_sampler {
	struct dt_engine *engine; /* not owned */
	const struct dt_tokenizer *tok;
	struct dt_sampler_opts o;
};

/*
 * Answers of n groups whose prompt, prompt_ids and index are set. prompt_ids NULL: they are made from the
 * text as a completion's prompt is. -E2BIG: a prompt leaves no room for an answer.
 */
int dt_rl_sample(const struct dt_rl_sampler *s, struct dt_group *g, int64_t n, struct dt_err *err);

/*
 * The same in pieces of o.piece tokens (partial rollouts: Kimi k1.5, arXiv:2501.12599, section 2.6;
 * AReaL, arXiv:2505.24298, section 4.1). renew may open another engine in s between two pieces; it
 * returns 1 where the weights are others from then on. Answers then go on with these, over keys and
 * values of these: what was drawn stays, with the log-probability that it was drawn with, which is what
 * ratios are taken to. With the same weights the answers are those of dt_rl_sample.
 */
struct dt_rl_renew {
	int (*renew)(void *arg, struct dt_err *err);
	void *arg;
};
int dt_rl_sample_pieces(const struct dt_rl_sampler *s, struct dt_group *g, int64_t n,
			const struct dt_rl_renew *renew, struct dt_err *err);

/* sampler.c: prompts of the groups as ids; a call of n answers to ids, from answer number `first` on, of
 * which each has `from` tokens already; what its request number i drew, behind what a holds. */
int dt_rl_prompt_ids(const struct dt_rl_sampler *s, struct dt_group *g, struct dt_err *err);
struct dt_rl_ask {
	int64_t index; /* of the prompt */
	const int32_t *ids;
	int nids, first, n, from, tokens;
};
int dt_rl_ask(const struct dt_rl_sampler *s, const struct dt_rl_ask *k, struct dt_completion *ret,
	      struct dt_err *err);
int dt_rl_take(const struct dt_completion *c, int i, struct dt_answer *a, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
