/*
 * Rollouts: prompts with a group of answers each, the ids that were drawn, how likely the sampler held each,
 * and what a reward said. A line of JSON is one group, so that no group is ever torn apart:
 *
 *   {"rollout": 1, "index": 0, "step": 120, "weights": "8f...", "temperature": 1, "max_tokens": 64,
 *    "prompt": "3142>", "prompt_ids": [...], "item": {...}, "answers": [{"ids": [...], "logprobs": [...],
 *    "text": "1234", "finish": "stop", "reward": 1.0}, ...]}
 *
 * logprobs: log softmax of the model's logits at each drawn id, the end of text included. That is the
 * sampler's own distribution at temperature 1 without truncation, which is how answers are drawn for
 * training. step and weights: of the checkpoint that drew them, the first with `renewed` later ones. A
 * reward of null: there was none to be had; reward_error says why.
 */
#ifndef DT_RL_ROLLOUT_H
#define DT_RL_ROLLOUT_H

#include "base/json.h"

#define DT_ROLLOUT_ANSWERS 4096	     /* of a group, at most */
#define DT_ROLLOUT_TOKENS  (1 << 20) /* of a prompt, and of an answer */

struct dt_answer {
	int32_t *ids;	/* [n] */
	float *logprob; /* [n]; NULL: not known */
	int n;
	char *text;	  /* NUL-terminated */
	char finish[12];  /* "stop", "length" ... */
	double reward;	  /* NAN: none */
	const char *fail; /* why there is none, static; NULL */
};

struct dt_group {
	int64_t index; /* of its prompt */
	int64_t step;  /* of the weights; -1: not known */
	char weights[20];
	int64_t renewed; /* how often newer weights came while the answers were drawn; step: of the oldest */
	double temperature;
	int64_t max_tokens; /* that an answer may have; 0: not known */
	char *prompt;
	int32_t *prompt_ids; /* [nprompt] */
	int nprompt;
	json_t *item; /* the line that the prompt came in; NULL: none */
	struct dt_answer *answer;
	int n;
};

void dt_group_release(struct dt_group *g);
/* A new object; NULL: out of memory. */
json_t *dt_group_json(const struct dt_group *g);
/* Reads what dt_group_json writes; vocab > 0: ids are below it. -EINVAL; the caller releases g then too. */
int dt_group_parse(const json_t *o, int64_t vocab, struct dt_group *g, struct dt_err *err);

/* n groups as lines of text, to be freed; -ENOMEM. */
int dt_groups_text(const struct dt_group *g, int64_t n, char **ret, size_t *ret_n);
/* Reads the line at *at and moves there behind it, as dt_group_parse. */
int dt_groups_next(const char **at, int64_t vocab, struct dt_group *g, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
