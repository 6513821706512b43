/* Replies and events in llama.cpp's own format. */
#include "serve/api/native.h"

#include "serve/api/priv.h"

#include <stdlib.h>
#include <string.h>

static json_t *stops_json(const struct dt_ask *a)
{
	json_t *list = json_array();

	for (int i = 0; i < a->nstop; i++)
		json_array_append_new(list, dt_api_text(a->stop[i].s, a->stop[i].n));
	return list;
}

static json_t *settings_json(const struct dt_completion *c, const struct dt_serve_req *r)
{
	const struct dt_ask *a = r->ask;
	const struct dt_sampling *s = &a->sampling;

	return json_pack(
		"{s:I, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:i, s:i, s:b, s:b, s:i, s:o, s:o}",
		"seed", (json_int_t)s->seed, "temperature", s->temperature, "top_k", s->top_k, "top_p",
		s->top_p, "min_p", s->min_p, "repeat_penalty", s->repetition_penalty, "presence_penalty",
		s->presence_penalty, "frequency_penalty", s->frequency_penalty, "mirostat", s->mirostat,
		"mirostat_tau", s->tau, "mirostat_eta", s->eta, "n_predict", r->max_tokens, "max_tokens",
		r->max_tokens, "ignore_eos", a->ignore_eos, "stream", c->stream, "n_probs",
		a->logprobs > 0 ? a->logprobs : 0, "stop", stops_json(a), "samplers", dt_api_samplers(s));
}

static void set_times(json_t *v, const char *const name[4], int n, double seconds)
{
	json_object_set_new(v, name[0], json_integer(n));
	json_object_set_new(v, name[1], json_real(seconds * 1e3));
	json_object_set_new(v, name[2], json_real(n > 0 ? seconds * 1e3 / n : 0));
	json_object_set_new(v, name[3], json_real(seconds > 0 ? n / seconds : 0));
}

static json_t *timings_json(const struct dt_serve_req *r)
{
	static const char *const prompt[] = {"prompt_n", "prompt_ms", "prompt_per_token_ms",
					     "prompt_per_second"};
	static const char *const out[] = {"predicted_n", "predicted_ms", "predicted_per_token_ms",
					  "predicted_per_second"};
	json_t *v = json_pack("{s:i}", "cache_n", r->cached);

	set_times(v, prompt, r->nprompt - r->cached, r->t_first > r->t_start ? r->t_first - r->t_start : 0);
	set_times(v, out, r->nout, r->t_last - r->t_first);
	return v;
}

/* The text of the prompt's tokens. */
static json_t *prompt_json(const struct dt_completion *c, const struct dt_serve_req *r)
{
	char *s = NULL;
	size_t n = 0;
	json_t *v;

	if (dt_api_decode(c->tok, r->tokens, (size_t)r->nprompt, &s, &n) < 0)
		return NULL;
	v = dt_api_text(s, n);
	free(s);
	return v;
}

size_t dt_native_cost(const struct dt_completion *c, const struct dt_serve_req *r)
{
	size_t bytes = 0;

	for (int i = 0; i < r->nprompt; i++) {
		size_t n = 0;

		dt_tokenizer_piece(c->tok, r->tokens[i], true, &n);
		bytes += n;
	}
	for (int i = 0; i < r->ask->nstop; i++)
		bytes += r->ask->stop[i].n;
	return (c->fields ? 16 : 8) * bytes + 8192; /* a field and an object around it may both be listed */
}

/* The members that every reply and event has; tokens [from, to) and their text from byte `at` on. */
static json_t *part_json(const struct dt_completion *c, const struct dt_serve_req *r, size_t at, int from,
			 int to)
{
	const bool ids = c->ids || c->stream, last = r->finish != DT_FINISH_NONE && to == r->nout;
	json_t *text = dt_api_text(dt_detok_from(&r->detok, at), r->detok.ready - at);
	json_t *v =
		json_pack("{s:i, s:o, s:o, s:b, s:i, s:i, s:i}", "index", (int)(r - c->call->req), "content",
			  text, "tokens", dt_api_ids(dt_serve_req_out(r) + from, ids ? to - from : 0), "stop",
			  last, "id_slot", -1, "tokens_predicted", r->nout, "tokens_evaluated", r->nprompt);

	if (v && r->ask->logprobs > 0)
		json_object_set_new(v, "completion_probabilities", dt_api_probabilities(c, r, from, to));
	return v;
}

/* The members of a finished answer. */
static json_t *end_json(const struct dt_completion *c, const struct dt_serve_req *r)
{
	const bool word = r->finish == DT_FINISH_STOP && r->detok.stopped >= 0;
	const char *why = r->finish == DT_FINISH_LENGTH ? "limit" : word ? "word" : "eos";
	const bool full = r->nprompt + r->nout >= c->max_len && r->finish == DT_FINISH_LENGTH;

	return json_pack(
		"{s:s, s:o, s:o, s:b, s:b, s:s, s:o, s:i, s:o}", "model", c->model, "generation_settings",
		settings_json(c, r), "prompt", prompt_json(c, r), "has_new_line",
		memchr(dt_detok_from(&r->detok, 0), '\n', r->detok.n) != NULL, "truncated", full, "stop_type",
		why, "stopping_word",
		word ? dt_api_text(r->ask->stop[r->detok.stopped].s, r->ask->stop[r->detok.stopped].n)
		     : json_string(""),
		"tokens_cached", r->cached, "timings", timings_json(r));
}

/* Replaces a finished answer by the members that the request names; those that it has not are left out. */
static json_t *only_fields(const struct dt_completion *c, json_t *v)
{
	json_t *to, *name;
	size_t i;

	if (!c->fields)
		return v;
	to = json_object();
	json_array_foreach(c->fields, i, name)
	{
		const char *at = json_string_value(name), *end;
		json_t *member = v;

		for (; member && at; at = *end ? end + 1 : NULL) {
			end = strchrnul(at, '/');
			member = json_object_getn(member, at, (size_t)(end - at));
		}
		if (member)
			json_object_set(to, json_string_value(name), member);
	}
	json_decref(v);
	return to;
}

static json_t *whole(const struct dt_completion *c, const struct dt_serve_req *r, size_t at, int from)
{
	json_t *v = part_json(c, r, at, from, r->nout), *end = end_json(c, r);
	const int rc = v && end ? json_object_update(v, end) : -1;

	json_decref(end);
	if (rc == 0)
		return only_fields(c, v);
	json_decref(v);
	return NULL;
}

json_t *dt_native_json(const struct dt_completion *c, struct dt_api_error *e)
{
	json_t *list = json_array(), *v;

	for (int i = 0; i < c->call->n; i++) {
		if (dt_completion_failed(&c->call->req[i], e)) {
			json_decref(list);
			return NULL;
		}
		v = whole(c, &c->call->req[i], 0, 0);
		if (json_array_append_new(list, v) < 0) {
			json_decref(list);
			dt_api_fail(e, 500, "server_error", NULL, "out of memory");
			return NULL;
		}
	}
	if (c->call->n > 1)
		return list;
	v = json_incref(json_array_get(list, 0));
	json_decref(list);
	return v;
}

json_t *dt_native_event(const struct dt_completion *c, const struct dt_serve_req *r, size_t at, int from,
			int to)
{
	return r->finish == DT_FINISH_NONE || to < r->nout ? part_json(c, r, at, from, to)
							   : whole(c, r, at, from);
}
/* SPDX-License-Identifier: Apache-2.0 */
