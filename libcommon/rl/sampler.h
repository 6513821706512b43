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
};

/* The seed of a prompt's draws; its answers are the streams of it. */
uint64_t dt_rl_seed(const struct dt_sampler_opts *o, int64_t index);

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

#endif
/* SPDX-License-Identifier: Apache-2.0 */
