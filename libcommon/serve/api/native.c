/*
 * llama.cpp's own format: the bodies of /completion and /infill, where they differ from those of completions,
 * and their replies.
 */
#include "serve/api/native.h"

#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void dt_native_defaults(struct dt_body *b)
{
	struct dt_sampling *s = &b->ask.sampling;

	b->n_predict = -1;
	s->temperature = 0.8;
	s->top_k = 40;
	s->top_p = 0.95;
	s->min_p = 0.05;
}

int dt_native_read(struct dt_body *b, struct dt_completion *c)
{
	const struct dt_sampling *s = &b->ask.sampling;
	const json_t *last = json_object_get(b->o, "repeat_last_n");
	const bool penalties =
		s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
	const json_t *seed = json_object_get(b->o, "seed");

	c->native = true;
	c->ids = b->ids;
	if (last && !json_is_null(last) && !json_is_integer(last))
		return dt_body_bad(b->e, "repeat_last_n", "'repeat_last_n' is not an integer");
	if (json_is_integer(last) && json_integer_value(last) != -1 && penalties)
		return dt_body_bad(
			b->e, "repeat_last_n",
			"'repeat_last_n' is only supported as -1 with a penalty: penalties count all "
			"tokens");
	if (json_is_integer(seed) && json_integer_value(seed) == -1)
		b->ask.sampling.seed = b->m->seed;
	if (b->n_probs > b->m->engine->model.vocab)
		return dt_body_bad(b->e, "n_probs", "'n_probs' exceeds the vocabulary size");
	b->ask.logprobs = b->n_probs > 0 ? b->n_probs : -1;
	return 0;
}

/* ---- /infill ---- */

static int read_text(struct dt_body *b, const char *key, const char **ret, size_t *n)
{
	const json_t *v = json_object_get(b->o, key);

	if (v && !json_is_null(v) && !json_is_string(v))
		return dt_body_bad(b->e, key, "'%s' is not a string", key);
	*ret = json_is_string(v) ? json_string_value(v) : "";
	*n = json_string_length(v);
	return 0;
}

/* The prompt goes on after the token that begins what is filled in. */
static int append(struct dt_body *b, struct dt_prompt *p, const char *text, size_t bytes)
{
	int32_t *more = NULL, *all;
	size_t n = 0;
	struct dt_err err;

	if (dt_tokenizer_encode(b->m->engine->tok, text, bytes, false, &more, &n, &err) < 0)
		return dt_body_bad(b->e, "prompt", "%s", err.msg);
	all = realloc(p->ids, (p->n + n + 1) * sizeof(*all));
	if (!all) {
		free(more);
		return dt_body_no_memory(b->e);
	}
	if (n > 0)
		memcpy(all + p->n, more, n * sizeof(*all));
	free(more);
	p->ids = all;
	p->n += n;
	return 0;
}

int dt_native_infill(struct dt_body *b)
{
	const json_t *extra = json_object_get(b->o, "input_extra");
	const json_t *suffix = json_object_get(b->o, "input_suffix");
	json_t *none = json_string("");
	const char *prefix = "", *after, *prompt = "";
	size_t nprefix = 0, nafter, nprompt = 0;
	int rc = -EINVAL;

	b->prompt = calloc(1, sizeof(*b->prompt));
	if (!b->prompt || !none)
		rc = dt_body_no_memory(b->e);
	else if (json_array_size(extra) > 0 || (extra && !json_is_null(extra) && !json_is_array(extra)))
		rc = dt_body_bad(b->e, "input_extra", "'input_extra' is only supported as an empty array");
	else if (read_text(b, "input_prefix", &prefix, &nprefix) == 0 &&
		 read_text(b, "input_suffix", &after, &nafter) == 0 &&
		 read_text(b, "prompt", &prompt, &nprompt) == 0)
		rc = 0;
	if (rc == 0) {
		b->nprompts = 1;
		b->prompt->text = (struct dt_text){malloc(nprefix + 1), nprefix};
		if (!b->prompt->text.s)
			rc = dt_body_no_memory(b->e);
		else
			memcpy(b->prompt->text.s, prefix, nprefix + 1);
	}
	if (rc == 0)
		rc = dt_body_infill(b, b->prompt, json_is_string(suffix) ? suffix : none);
	if (rc == 0)
		rc = append(b, b->prompt, prompt, nprompt);
	json_decref(none);
	return rc;
}

/* ---- replies ---- */

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
		"{s:I, s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:i, s:f, s:f, s:i, s:i, s:b, s:b, s:i, s:o}",
		"seed", (json_int_t)s->seed, "temperature", s->temperature, "top_k", s->top_k, "top_p",
		s->top_p, "min_p", s->min_p, "repeat_penalty", s->repetition_penalty, "presence_penalty",
		s->presence_penalty, "frequency_penalty", s->frequency_penalty, "mirostat", s->mirostat,
		"mirostat_tau", s->tau, "mirostat_eta", s->eta, "n_predict", r->max_tokens, "max_tokens",
		r->max_tokens, "ignore_eos", a->ignore_eos, "stream", c->stream, "n_probs",
		a->logprobs > 0 ? a->logprobs : 0, "stop", stops_json(a));
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

static json_t *ids_json(const int32_t *id, int n)
{
	json_t *list = json_array();

	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(id[i]));
	return list;
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
	return 8 * bytes + 8192;
}

/* The members that every reply and event has; tokens [from, to) and their text from byte `at` on. */
static json_t *part_json(const struct dt_completion *c, const struct dt_serve_req *r, size_t at, int from,
			 int to)
{
	const bool ids = c->ids || c->stream, last = r->finish != DT_FINISH_NONE && to == r->nout;
	json_t *text = dt_api_text(dt_detok_from(&r->detok, at), r->detok.ready - at);
	json_t *v =
		json_pack("{s:i, s:o, s:o, s:b, s:i, s:i, s:i}", "index", (int)(r - c->call->req), "content",
			  text, "tokens", ids_json(dt_serve_req_out(r) + from, ids ? to - from : 0), "stop",
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

static json_t *whole(const struct dt_completion *c, const struct dt_serve_req *r, size_t at, int from)
{
	json_t *v = part_json(c, r, at, from, r->nout), *end = end_json(c, r);
	const int rc = v && end ? json_object_update(v, end) : -1;

	json_decref(end);
	if (rc == 0)
		return v;
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
