#include "rl/sampler.h"

#include "base/json.h"
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

int dt_rl_prompt_ids(const struct dt_rl_sampler *s, struct dt_group *g, struct dt_err *err)
{
	size_t n = 0;
	int rc = g->prompt_ids ? 0
			       : dt_api_encode(s->tok, g->prompt, strlen(g->prompt), false, &g->prompt_ids,
					       &n, err);

	if (rc == 0 && n > 0)
		g->nprompt = (int)n;
	if (rc == 0 && g->nprompt == 0)
		rc = dt_err_set(err, -EINVAL, "prompt %lld has no tokens", (long long)g->index);
	return rc;
}

int dt_rl_ask(const struct dt_rl_sampler *s, const struct dt_rl_ask *k, struct dt_completion *ret,
	      struct dt_err *err)
{
	const struct dt_engine_params *p = dt_engine_params(s->engine);
	const struct dt_api_model api = {.engine = p, .name = "", .batch = true};
	const int room = p->max_len - k->nids;
	json_t *ids = json_array(), *body;
	struct dt_api_error e;
	int rc = 0;

	if (room < 1) {
		json_decref(ids);
		return dt_err_set(
			err, -E2BIG,
			"prompt %lld has %d tokens, which leaves no room for an answer: the limit is %d",
			(long long)k->index, k->nids, p->max_len);
	}
	for (int i = 0; i < k->nids; i++)
		json_array_append_new(ids, json_integer(k->ids[i]));
	body = json_pack("{s:o, s:i, s:i, s:i, s:f}", "prompt", ids, "n", k->n, "max_tokens",
			 room < k->tokens ? room : k->tokens, "logprobs", 0, "temperature", s->o.temperature);
	if (dt_completion_parse(body, &api, ret, &e) < 0)
		rc = dt_err_set(err, -EINVAL, "prompt %lld: %s", (long long)k->index, e.msg);
	json_decref(body);
	if (rc < 0)
		return rc;
	ret->call->ask.sampling.seed = dt_rl_seed(&s->o, k->index);
	ret->call->ask.sampling.stream = (uint32_t)k->first;
	ret->call->ask.sampling.from = (uint32_t)k->from;
	return dt_engine_submit(s->engine, ret->call, err);
}

static int add_tokens(struct dt_answer *a, const struct dt_serve_req *r, struct dt_err *err)
{
	const size_t n = (size_t)(a->n + r->nout) + 1;
	int32_t *ids = realloc(a->ids, n * sizeof(*ids));
	float *logprob;

	a->ids = ids ? ids : a->ids;
	logprob = ids ? realloc(a->logprob, n * sizeof(*logprob)) : NULL;
	a->logprob = logprob ? logprob : a->logprob;
	if (!logprob || r->scores.n != r->nout)
		return dt_err_sys(err, -ENOMEM, "cannot keep an answer");
	memcpy(a->ids + a->n, dt_serve_req_out(r), (size_t)r->nout * sizeof(*a->ids));
	for (int k = 0; k < r->nout; k++)
		a->logprob[a->n + k] = r->scores.chosen[k].logprob;
	a->n += r->nout;
	return 0;
}

int dt_rl_take(const struct dt_completion *c, int i, struct dt_answer *a, struct dt_err *err)
{
	const struct dt_serve_req *r = &c->call->req[i];
	struct dt_api_error e;
	json_t *text;
	char *more, *both = NULL;

	if (dt_completion_failed(r, &e))
		return dt_err_set(err, -EIO, "%s", e.msg);
	a->reward = (double)NAN;
	snprintf(a->finish, sizeof(a->finish), "%s", dt_finish_name(r->finish));
	text = dt_completion_text(c, i);
	more = text ? dt_json_text(json_string_value(text), json_string_length(text)) : NULL;
	if (!more || asprintf(&both, "%s%s", a->text ? a->text : "", more) < 0)
		both = NULL;
	json_decref(text);
	free(more);
	free(a->text);
	a->text = both;
	return both ? add_tokens(a, r, err) : dt_err_sys(err, -ENOMEM, "cannot keep an answer");
}

/* Submits a request for a group of answers to one prompt. */
static int ask(const struct dt_rl_sampler *s, const struct dt_group *g, struct dt_completion *ret,
	       struct dt_err *err)
{
	const struct dt_rl_ask k = {.index = g->index,
				    .ids = g->prompt_ids,
				    .nids = g->nprompt,
				    .n = s->o.group,
				    .tokens = s->o.max_tokens};

	return dt_rl_ask(s, &k, ret, err);
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
	g->max_tokens = s->o.max_tokens;
	for (int i = 0; i < g->n && rc == 0; i++)
		rc = dt_rl_take(c, i, &g->answer[i], err);
	return rc;
}

int dt_rl_sample(const struct dt_rl_sampler *s, struct dt_group *g, int64_t n, struct dt_err *err)
{
	const struct dt_engine_params *p = dt_engine_params(s->engine);
	const int64_t most = (p->max_seqs + p->queue) / s->o.group; /* prompts in the engine at a time */
	struct dt_completion *c = calloc((size_t)n + 1, sizeof(*c));
	int64_t sent = 0, got = 0;
	int rc = c ? 0 : dt_err_sys(err, -ENOMEM, "cannot ask for answers");

	while (rc == 0 && got < n) {
		for (; rc == 0 && sent < n && sent - got < most; sent++) {
			rc = dt_rl_prompt_ids(s, &g[sent], err);
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
