/*
 * A server with OpenAI's API that returns token ids (return_token_ids, as in vLLM). Unanswered requests are
 * repeated: samples depend only on the seed, so only time is lost if a server dies and restarts.
 */
#include "rl/drawer.h"

#include "bench/load/asks.h"

#include <errno.h>
#include <stdlib.h>

struct remote {
	struct dt_drawer drawer;
	struct dt_sampler_opts o;
	struct dt_asks *asks;
	struct dt_group *g; /* of the current call */
};

static json_t *body(void *arg, int64_t i, const char *model)
{
	const struct remote *r = arg;

	return json_pack("{s:s, s:s, s:i, s:i, s:i, s:f, s:I, s:b}", "model", model, "prompt", r->g[i].prompt,
			 "n", r->o.group, "max_tokens", r->o.max_tokens, "logprobs", 0, "temperature",
			 r->o.temperature, "seed", (json_int_t)dt_rl_seed(&r->o, r->g[i].index),
			 "return_token_ids", true);
}

/* The choice of this index: a server may list them as they end. Without numbers they are in order. */
static const json_t *choice(const json_t *list, size_t index)
{
	bool numbered = false;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *at = json_object_get(json_array_get(list, i), "index");

		numbered |= json_is_integer(at);
		if (json_is_integer(at) && json_integer_value(at) == (json_int_t)index)
			return json_array_get(list, i);
	}
	return numbered ? NULL : json_array_get(list, index);
}

/* Parses a reply like a line of rollouts. */
static int take_choices(const struct remote *r, const json_t *reply, struct dt_group *g, struct dt_err *err)
{
	const json_t *list = json_object_get(reply, "choices");
	json_t *answers = json_array(), *line;
	struct dt_group got = {0};
	int rc;

	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *c = choice(list, i);

		if (!c) {
			json_decref(answers);
			return dt_err_set(err, -EIO, "'%s': no choice has the index %zu",
					  dt_asks_url(r->asks), i);
		}
		json_array_append_new(
			answers,
			json_pack("{s:O?, s:O?, s:O?, s:O?}", "ids", json_object_get(c, "token_ids"),
				  "logprobs",
				  json_object_get(json_object_get(c, "logprobs"), "token_logprobs"), "text",
				  json_object_get(c, "text"), "finish", json_object_get(c, "finish_reason")));
	}
	line = json_pack("{s:i, s:o, s:O?}", "rollout", 1, "answers", answers, "prompt_ids",
			 json_object_get(json_array_get(list, 0), "prompt_token_ids"));
	rc = dt_group_parse(line, 0, &got, err);
	json_decref(line);
	if (rc == 0 && got.n != r->o.group)
		rc = dt_err_set(err, -EIO, "the server returned %d answers instead of %d", got.n, r->o.group);
	for (int i = 0; i < got.n && rc == 0; i++)
		if (!got.answer[i].logprob)
			rc = dt_err_set(err, -EIO, "the server returned an answer without log-probabilities");
	if (rc < 0) {
		dt_group_release(&got);
		return dt_err_prefix(err, "'%s'", dt_asks_url(r->asks));
	}
	g->answer = got.answer;
	g->n = got.n;
	g->prompt_ids = got.prompt_ids;
	g->nprompt = got.nprompt;
	g->temperature = r->o.temperature;
	g->max_tokens = r->o.max_tokens;
	got.answer = NULL;
	got.prompt_ids = NULL;
	dt_group_release(&got);
	return 0;
}

static int take(void *arg, int64_t i, const json_t *reply, struct dt_err *err)
{
	const struct remote *r = arg;

	return take_choices(r, reply, &r->g[i], err);
}

static int draw(struct dt_drawer *d, struct dt_group *g, int64_t n, struct dt_err *err)
{
	struct remote *r = (struct remote *)d;

	r->g = g;
	return dt_asks_run(r->asks, &(struct dt_asks_list){body, take, r}, n, err);
}

static void remote_close(struct dt_drawer *d)
{
	struct remote *r = (struct remote *)d;

	dt_asks_close(r->asks);
	free(r);
}

int dt_drawer_remote(const char *url, const struct dt_drawer_opts *o, struct dt_drawer **ret,
		     struct dt_err *err)
{
	const struct dt_asks_opts asks = {o->served, o->key, o->parallel, .most_reply = 256u << 20};
	struct remote *r = calloc(1, sizeof(*r));
	int rc = r ? dt_asks_open(url, &asks, &r->asks, err)
		   : dt_err_sys(err, -ENOMEM, "cannot ask '%s'", url);

	if (rc < 0) {
		free(r);
		return rc;
	}
	r->drawer = (struct dt_drawer){draw, remote_close};
	r->o = o->sample;
	*ret = &r->drawer;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
