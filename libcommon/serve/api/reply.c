#include "serve/api/native.h"
#include "serve/api/priv.h"

#include "base/base64.h"
#include "base/progress.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int dt_completion_failed(const struct dt_serve_req *r, struct dt_api_error *e)
{
	switch (r->finish) {
	case DT_FINISH_ABORT:
		dt_api_fail(e, 503, "server_error", "cancelled", "the request was cancelled");
		return 1;
	case DT_FINISH_TIMEOUT:
		dt_api_fail(e, 503, "server_error", "timeout",
			    "the request exceeded the server's time limit");
		return 1;
	case DT_FINISH_ERROR:
		dt_api_fail(e, 500, "server_error", NULL, "%s", r->err.msg);
		return 1;
	default:
		return 0;
	}
}

/* Upper bounds in bytes of a token's log-probability, of a float of an embedding, and of a token id. */
#define SCORE_BYTES	 400
#define CHAT_SCORE_BYTES 1200 /* with the token's bytes as an array */
#define FLOAT_BYTES	 80
#define BASE64_BYTES	 24
#define ID_BYTES	 80

static size_t scores_cost(const struct dt_completion *c, int n, int ntop)
{
	return (size_t)n * (2 + (size_t)ntop) * (c->chat || c->native ? CHAT_SCORE_BYTES : SCORE_BYTES);
}

/* Of the prompt's tokens that are listed without a log-probability. */
static size_t unscored_cost(const struct dt_completion *c, const struct dt_serve_req *r)
{
	return c->echo && r->ask->logprobs >= 0 ? (size_t)(r->ask->score_from + 1) * SCORE_BYTES : 0;
}

static size_t embedding_cost(const struct dt_completion *c, size_t hidden)
{
	return hidden * (c->base64 ? BASE64_BYTES : FLOAT_BYTES);
}

size_t dt_completion_cost(const struct dt_completion *c, size_t hidden)
{
	size_t cost = 4096;

	for (int i = 0; i < c->call->n; i++) {
		const struct dt_serve_req *r = &c->call->req[i];

		cost += c->native ? dt_native_cost(c, r) : 0;
		cost += c->ids ? (size_t)(r->nprompt + r->nout) * ID_BYTES : 0;
		cost += 1024 + 8 * r->detok.n + (c->echo ? 8 * c->prompt[i / c->n].n : 0);
		cost += scores_cost(c, r->scores.n, r->scores.ntop);
		cost += scores_cost(c, r->prompt_scores.n, r->prompt_scores.ntop) + unscored_cost(c, r);
		cost += r->pooled ? embedding_cost(c, hidden) : 0;
	}
	return cost;
}

size_t dt_completion_kept_cost(const struct dt_completion *c)
{
	size_t cost = 0;

	for (int i = 0; i < c->call->n && c->call->ask.logprobs >= 0; i++)
		cost += (size_t)c->call->req[i].max_tokens * (1 + (size_t)c->call->ask.logprobs) *
			sizeof(struct dt_logprob);
	return cost;
}

size_t dt_completion_event_cost(const struct dt_completion *c, const struct dt_serve_req *r, size_t at,
				int tokens)
{
	size_t cost = 2048 + 8 * (r->detok.ready - at); /* an event, the last one, and the usage */

	cost += r->ask->logprobs >= 0 ? scores_cost(c, tokens, r->scores.ntop) : 0;
	cost += c->native ? (size_t)tokens * ID_BYTES : 0;
	return cost + (c->native && r->finish != DT_FINISH_NONE ? dt_native_cost(c, r) : 0);
}

size_t dt_completion_known_cost(const struct dt_completion *c, size_t hidden)
{
	size_t cost = 0;

	for (int i = 0; i < c->call->n; i++) {
		const struct dt_serve_req *r = &c->call->req[i];
		int top = r->ask->prompt_logprobs >= 0 ? r->ask->prompt_logprobs : r->ask->logprobs;

		cost += r->ask->embed ? embedding_cost(c, hidden) : 0;
		if (r->ask->score_prompt)
			cost += scores_cost(c, r->nprompt - 1 - r->ask->score_from, top) +
				unscored_cost(c, r);
	}
	return cost;
}

size_t dt_completion_images_cost(const struct dt_completion *c, size_t tile, size_t rows)
{
	return c->call->images ? (size_t)c->call->images->n * (tile + rows) : 0;
}

json_t *dt_completion_usage(const struct dt_completion *c, bool cache)
{
	json_int_t prompt = 0, out = 0, cached = 0;
	json_t *v;

	for (int i = 0; i < c->nprompts; i++) {
		prompt += c->call->req[i * c->n].nprompt;
		cached += c->call->req[i * c->n].cached;
	}
	for (int i = 0; i < c->call->n; i++)
		out += c->call->req[i].nout;
	v = json_pack("{s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", out, "total_tokens",
		      prompt + out);
	if (v && cache)
		json_object_set_new(v, "prompt_tokens_details", json_pack("{s:I}", "cached_tokens", cached));
	return v;
}

json_t *dt_api_envelope(const struct dt_completion *c, bool chunk, json_t *choices)
{
	const char *object = !c->chat ? "text_completion"
			     : chunk  ? "chat.completion.chunk"
				      : "chat.completion";

	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", c->id, "object", object, "created",
			 (json_int_t)c->created, "model", c->model, "choices", choices);
}

json_t *dt_api_stop_reason(const struct dt_serve_req *r)
{
	if (r->detok.stopped >= 0)
		return json_stringn(r->ask->stop[r->detok.stopped].s, r->ask->stop[r->detok.stopped].n);
	return r->stop_id >= 0 ? json_integer(r->stop_id) : json_null();
}

json_t *dt_completion_text(const struct dt_completion *c, int i)
{
	const struct dt_serve_req *r = &c->call->req[i];
	const struct dt_text *p = &c->prompt[i / c->n];
	json_t *out = dt_api_text(r->detok.text, r->detok.ready), *both = NULL;
	size_t n = json_string_length(out);
	char *s;

	if (!c->echo || !out)
		return out;
	s = malloc(p->n + n + 1);
	if (s) {
		memcpy(s, p->s, p->n);
		memcpy(s + p->n, json_string_value(out), n);
		both = json_stringn_nocheck(s, p->n + n);
		free(s);
	}
	json_decref(out);
	return both;
}

void dt_api_calls(const struct dt_completion *c, int i, struct dt_tool_calls *ret)
{
	const struct dt_serve_req *r = &c->call->req[i];
	const char *s = dt_detok_from(&r->detok, 0);
	bool ended = r->finish != DT_FINISH_NONE;
	size_t n = r->detok.ready, from;

	if (c->tools == DT_TOOLS_HARMONY) {
		dt_tools_channels(true, c->inside, s, n, ended, ret);
		return;
	}
	ret->n = 0;
	ret->thought = NULL;
	ret->nthought = 0;
	from = c->thinks && !c->inside ? dt_tools_thought(s, n, ended, ret) : 0;
	if (c->tools)
		dt_tools_scan(c->tools, c->inside, s + from, n - from, ended, ret);
	else
		ret->content = n - from;
	ret->from = from;
	ret->content += from;
}

const char *dt_api_finish(const struct dt_completion *c, int i, const struct dt_tool_calls *calls)
{
	enum dt_finish f = c->call->req[i].finish;

	return calls->n > 0 && f == DT_FINISH_STOP ? "tool_calls" : dt_finish_name(f);
}

json_t *dt_api_call_json(const struct dt_completion *c, int i, int k, const struct dt_tool_call *call,
			 size_t from, size_t to)
{
	char id[64];

	if (from > 0) /* its other members were sent before */
		return json_pack("{s:i, s:{s:o}}", "index", k, "function", "arguments",
				 dt_api_text(call->args + from, to - from));
	snprintf(id, sizeof(id), "call_%s_%d_%d", strchr(c->id, '-') + 1, i, k);
	return json_pack("{s:i, s:s, s:s, s:{s:o, s:o}}", "index", k, "id", id, "type", "function",
			 "function", "name", dt_api_text(call->name, call->nname), "arguments",
			 dt_api_text(call->args, to));
}

static json_t *calls_json(const struct dt_completion *c, int i, const struct dt_tool_calls *calls)
{
	json_t *list = json_array();

	for (int k = 0; k < calls->n; k++) {
		json_t *v = dt_api_call_json(c, i, k, &calls->call[k], 0, calls->call[k].nargs);

		json_object_del(v, "index"); /* only used in streams */
		json_array_append_new(list, v);
	}
	return list;
}

void dt_completion_ids(const struct dt_completion *c, int i, json_t *to)
{
	const struct dt_serve_req *r = &c->call->req[i];

	if (!c->ids)
		return;
	json_object_set_new(to, "prompt_token_ids", dt_api_ids(r->tokens, r->nprompt));
	json_object_set_new(to, "token_ids", dt_api_ids(dt_serve_req_out(r), r->nout));
}

static json_t *whole_choice(const struct dt_completion *c, int i)
{
	const struct dt_serve_req *r = &c->call->req[i];
	const char *name = c->chat ? "message" : "text";
	struct dt_tool_calls calls;
	json_t *v;

	dt_api_calls(c, i, &calls);
	if (calls.n > 0 && calls.content == calls.from)
		v = json_null();
	else if (c->chat)
		v = dt_api_text(dt_detok_from(&r->detok, calls.from), calls.content - calls.from);
	else
		v = dt_completion_text(c, i);
	if (c->chat)
		v = json_pack("{s:s, s:o, s:n}", "role", "assistant", "content", v, "refusal");
	if (calls.thought)
		json_object_set_new(v, "reasoning_content", dt_api_text(calls.thought, calls.nthought));
	if (calls.n > 0)
		json_object_set_new(v, "tool_calls", calls_json(c, i, &calls));
	v = json_pack("{s:i, s:o, s:o, s:s, s:o}", "index", i, name, v, "logprobs",
		      dt_completion_logprobs(c, i), "finish_reason", dt_api_finish(c, i, &calls),
		      "stop_reason", dt_api_stop_reason(r));
	if (v)
		dt_completion_ids(c, i, v);
	if (v && r->ask->prompt_logprobs >= 0)
		json_object_set_new(v, "prompt_logprobs", dt_completion_prompt_logprobs(c, i));
	if (v && r->ask->prompt_temperature != 1) /* shows that it was applied */
		json_object_set_new(v, "prompt_logprobs_temperature", json_real(r->ask->prompt_temperature));
	return v;
}

json_t *dt_completion_json(const struct dt_completion *c, struct dt_api_error *e)
{
	json_t *choices = json_array(), *v;

	for (int i = 0; i < c->call->n; i++) {
		const struct dt_serve_req *r = &c->call->req[i];

		if (dt_completion_failed(r, e)) {
			json_decref(choices);
			return NULL;
		}
		json_array_append_new(choices, whole_choice(c, i));
	}
	v = dt_api_envelope(c, false, choices);
	if (!v || json_object_set_new(v, "usage", dt_completion_usage(c, true)) < 0) {
		json_decref(v);
		dt_api_fail(e, 500, "server_error", NULL, "out of memory");
		return NULL;
	}
	return v;
}

/* Little-endian floats in base64, which OpenAI's own client requests. */
static json_t *base64_floats(const float *x, size_t n)
{
	const size_t chars = dt_base64_chars(n * sizeof(*x));
	char *out = malloc(chars);
	json_t *v;

	if (out)
		dt_base64_encode(x, n * sizeof(*x), out);
	v = out ? json_stringn(out, chars) : NULL;
	free(out);
	return v;
}

static json_t *embedding(const struct dt_completion *c, int i, size_t n)
{
	float *x = c->call->req[i].pooled;
	double norm = 0;
	json_t *v;

	for (size_t k = 0; k < n; k++)
		norm += (double)x[k] * x[k];
	norm = sqrt(norm);
	for (size_t k = 0; k < n; k++)
		x[k] = norm > 0 ? (float)(x[k] / norm) : 0;
	if (c->base64)
		return base64_floats(x, n);
	v = json_array();
	for (size_t k = 0; k < n; k++)
		json_array_append_new(v, json_real((double)x[k]));
	return v;
}

json_t *dt_embedding_json(const struct dt_completion *c, size_t n, struct dt_api_error *e)
{
	json_t *data = json_array();
	json_int_t tokens = 0;

	for (int i = 0; i < c->call->n; i++) {
		if (dt_completion_failed(&c->call->req[i], e)) {
			json_decref(data);
			return NULL;
		}
		tokens += c->call->req[i].nprompt;
		json_array_append_new(data, json_pack("{s:s, s:i, s:o}", "object", "embedding", "index", i,
						      "embedding", embedding(c, i, n)));
	}
	return json_pack("{s:s, s:o, s:s, s:{s:I, s:I}}", "object", "list", "data", data, "model", c->model,
			 "usage", "prompt_tokens", tokens, "total_tokens", tokens);
}
/* SPDX-License-Identifier: Apache-2.0 */
