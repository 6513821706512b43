#include "rl/sampler.h"

#include "serve/api/openai.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t dt_rl_seed(const struct dt_sampler_opts *o, int64_t index)
{
	uint64_t x = o->seed + 0x9e3779b97f4a7c15u * ((uint64_t)index + 1); /* splitmix64 */

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static int make_ids(const struct dt_rl_sampler *s, struct dt_group *g, struct dt_err *err)
{
	size_t n = 0;
	int rc = g->prompt_ids ? 0
			       : dt_api_encode(s->tok, g->prompt, strlen(g->prompt), &g->prompt_ids, &n, err);

	if (rc == 0 && n > 0)
		g->nprompt = (int)n;
	if (rc == 0 && g->nprompt == 0)
		rc = dt_err_set(err, -EINVAL, "prompt %lld has no tokens", (long long)g->index);
	return rc;
}

/* A call of group answers to one prompt, with the engine. */
static int ask(const struct dt_rl_sampler *s, struct dt_group *g, struct dt_completion *ret,
	       struct dt_err *err)
{
	const struct dt_engine_params *p = dt_engine_params(s->engine);
	const struct dt_api_model api = {.engine = p, .name = "", .batch = true};
	int room = p->max_len - g->nprompt, tokens = room < s->o.max_tokens ? room : s->o.max_tokens, rc = 0;
	json_t *ids = json_array(), *body;
	struct dt_api_error e;

	if (room < 1) {
		json_decref(ids);
		return dt_err_set(err, -E2BIG,
				  "prompt %lld has %d tokens, which leaves no room for an answer in %d",
				  (long long)g->index, g->nprompt, p->max_len);
	}
	for (int i = 0; i < g->nprompt; i++)
		json_array_append_new(ids, json_integer(g->prompt_ids[i]));
	body = json_pack("{s:o, s:i, s:i, s:i, s:f}", "prompt", ids, "n", s->o.group, "max_tokens", tokens,
			 "logprobs", 0, "temperature", s->o.temperature);
	if (dt_completion_parse(body, &api, ret, &e) < 0)
		rc = dt_err_set(err, -EINVAL, "prompt %lld: %s", (long long)g->index, e.msg);
	json_decref(body);
	if (rc < 0)
		return rc;
	ret->call->ask.sampling.seed = dt_rl_seed(&s->o, g->index);
	return dt_engine_submit(s->engine, ret->call, err);
}

/* What request number i of a call that is done has drawn. */
static int take_answer(const struct dt_completion *c, int i, struct dt_answer *a, struct dt_err *err)
{
	const struct dt_serve_req *r = &c->call->req[i];
	const size_t n = (size_t)r->nout;
	struct dt_api_error e;
	json_t *text;

	if (dt_completion_failed(r, &e))
		return dt_err_set(err, -EIO, "%s", e.msg);
	text = dt_completion_text(c, i);
	*a = (struct dt_answer){.ids = malloc((n + 1) * sizeof(*a->ids)),
				.logprob = malloc((n + 1) * sizeof(*a->logprob)),
				.n = r->nout,
				.text = strdup(text ? json_string_value(text) : ""),
				.reward = (double)NAN};
	json_decref(text);
	if (!a->ids || !a->logprob || !a->text || r->scores.n != r->nout)
		return dt_err_sys(err, -ENOMEM, "cannot keep an answer");
	memcpy(a->ids, dt_serve_req_out(r), n * sizeof(*a->ids));
	for (size_t k = 0; k < n; k++)
		a->logprob[k] = r->scores.chosen[k].logprob;
	snprintf(a->finish, sizeof(a->finish), "%s", dt_finish_name(r->finish));
	return 0;
}

static int take(const struct dt_rl_sampler *s, const struct dt_completion *c, struct dt_group *g,
		struct dt_err *err)
{
	int rc = 0;

	dt_call_wait_done(c->call);
	g->answer = calloc((size_t)s->o.group, sizeof(*g->answer));
	if (!g->answer)
		return dt_err_sys(err, -ENOMEM, "cannot keep answers");
	g->n = s->o.group;
	g->temperature = s->o.temperature;
	for (int i = 0; i < g->n && rc == 0; i++)
		rc = take_answer(c, i, &g->answer[i], err);
	return rc;
}

int dt_rl_sample(const struct dt_rl_sampler *s, struct dt_group *g, int64_t n, struct dt_err *err)
{
	const struct dt_engine_params *p = dt_engine_params(s->engine);
	const int64_t most = (p->max_seqs + p->queue) / s->o.group; /* prompts with the engine at a time */
	struct dt_completion *c = calloc((size_t)n + 1, sizeof(*c));
	int64_t sent = 0, got = 0;
	int rc = c ? 0 : dt_err_sys(err, -ENOMEM, "cannot ask for answers");

	while (rc == 0 && got < n) {
		for (; rc == 0 && sent < n && sent - got < most; sent++) {
			rc = make_ids(s, &g[sent], err);
			if (rc == 0)
				rc = ask(s, &g[sent], &c[sent], err);
			if (rc < 0)
				break;
		}
		if (rc < 0)
			break;
		rc = take(s, &c[got], &g[got], err);
		dt_completion_release(&c[got++]);
	}
	for (; c && got <= sent && got < n; got++) { /* after a failure */
		if (c[got].call)
			dt_engine_cancel(s->engine, c[got].call);
		dt_completion_release(&c[got]);
	}
	free(c);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
