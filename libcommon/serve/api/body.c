/* Structured keys of a body: model, stop strings, biases, response format, tools. */
#include "serve/api/priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STOP_BYTES 1024
#define MAX_BIAS       1024
#define MAX_STOP_IDS   256

struct listing {
	char text[300];
	size_t n;
	int more; /* names that do not fit */
};

static void add_name(void *arg, const struct dt_served_adapter *s)
{
	struct listing *l = arg;
	const int n = snprintf(NULL, 0, ", '%s'", s->name);

	if (l->more || l->n + (size_t)n >= sizeof(l->text))
		l->more++;
	else
		l->n += (size_t)snprintf(l->text + l->n, sizeof(l->text) - l->n, ", '%s'", s->name);
}

int dt_api_no_model(struct dt_api_error *e, const char *name, const char *base, struct dt_adapters *adapters)
{
	struct listing l = {0};
	char more[40] = "";

	if (adapters)
		dt_adapters_each(adapters, add_name, &l);
	if (l.more)
		snprintf(more, sizeof(more), " and %d more", l.more);
	dt_api_fail(e, 404, "invalid_request_error", "model_not_found",
		    "the model '%.100s' does not exist; this server has '%.100s'%s%s", name, base, l.text,
		    more);
	snprintf(e->param, sizeof(e->param), "model");
	return -EINVAL;
}

int dt_body_model(struct dt_body *b)
{
	const char *model = NULL;
	struct dt_err err;

	if (dt_json_str(b->o, "model", false, &model, &err) < 0)
		return dt_body_bad(b->e, "model", "%s", err.msg);
	if (!model || !strcmp(model, b->m->name))
		return 0;
	if (b->m->engine->adapters && (b->adapter = dt_adapters_find(b->m->engine->adapters, model)))
		return 0;
	return dt_api_no_model(b->e, model, b->m->name, b->m->engine->adapters);
}

/* Options of streams that are accepted if they are off. */
static int check_stream_options(struct dt_body *b, const json_t *o)
{
	static const char *const known[] = {"include_usage", "include_obfuscation", "continuous_usage_stats",
					    NULL};
	const json_t *v = json_object_get(o, "include_obfuscation");

	if (v && !json_is_null(v) && !json_is_false(v))
		return dt_body_bad(b->e, "stream_options",
				   "'stream_options.include_obfuscation' is not supported");
	return dt_body_only(b, "stream_options", o, known);
}

int dt_body_stream(struct dt_body *b, struct dt_completion *c)
{
	const json_t *so = json_object_get(b->o, "stream_options");
	struct dt_err err;

	c->stream = b->stream;
	if (c->stream && b->m->batch)
		return dt_body_bad(b->e, "stream", "a line of a batch cannot be streamed");
	if (!so || json_is_null(so))
		return 0;
	if (!json_is_object(so) || !c->stream)
		return dt_body_bad(b->e, "stream_options",
				   "'stream_options' must be an object and needs 'stream'");
	if (check_stream_options(b, so) < 0)
		return -EINVAL;
	if (dt_json_bool(so, "include_usage", false, &c->include_usage, &err) < 0 ||
	    dt_json_bool(so, "continuous_usage_stats", false, &c->usage_each, &err) < 0)
		return dt_body_bad(b->e, "stream_options", "%s", err.msg);
	if (c->usage_each && !c->include_usage)
		return dt_body_bad(b->e, "stream_options",
				   "'stream_options.continuous_usage_stats' needs 'include_usage'");
	return 0;
}

/* Hashes the salt to 64 bits (FNV-1a); prefixes are never shared between tenants, whatever the salt. */
int dt_body_salt(struct dt_body *b)
{
	const json_t *v = json_object_get(b->o, "cache_salt");
	const char *s = json_string_value(v);

	if (v && !json_is_null(v) && !s)
		return dt_body_bad(b->e, "cache_salt", "'cache_salt' is not a string");
	b->salt = s ? 14695981039346656037u : 0;
	for (size_t i = 0; i < json_string_length(v); i++)
		b->salt = (b->salt ^ (unsigned char)s[i]) * 1099511628211u;
	return 0;
}

int dt_body_id(struct dt_body *b, const char *key, const json_t *v, int32_t *ret)
{
	const json_int_t id = json_integer_value(v);

	if (!json_is_integer(v) || id < 0 || id >= b->m->engine->model.vocab)
		return dt_body_bad(b->e, key, "'%s' has an element that is not a token id below %d", key,
				   b->m->engine->model.vocab);
	*ret = (int32_t)id;
	return 0;
}

int dt_body_ids(struct dt_body *b, const char *key, const json_t *a, int32_t *ret)
{
	size_t i;
	json_t *v;

	json_array_foreach(a, i, v)
	{
		if (dt_body_id(b, key, v, &ret[i]) < 0)
			return -EINVAL;
	}
	return 0;
}

static int read_stops(struct dt_body *b, const struct dt_chat *chat)
{
	const json_t *v = json_object_get(b->o, "stop"), *ids = json_object_get(b->o, "stop_token_ids");
	size_t n = json_is_array(v) ? json_array_size(v) : json_is_string(v);
	size_t nids = json_array_size(ids);
	const struct dt_engine_params *m = b->m->engine;

	if (v && !json_is_null(v) && !json_is_array(v) && !json_is_string(v))
		return dt_body_bad(b->e, "stop", "'stop' is neither a string nor an array of strings");
	if (n > DT_STOP_MAX)
		return dt_body_bad(b->e, "stop", "'stop' has %zu strings, more than %d", n, DT_STOP_MAX);
	if (ids && !json_is_null(ids) && (!json_is_array(ids) || nids > MAX_STOP_IDS))
		return dt_body_bad(b->e, "stop_token_ids",
				   "'stop_token_ids' is not an array of at most %d ids", MAX_STOP_IDS);
	b->ask.stop = calloc(n + 1, sizeof(*b->ask.stop));
	b->ask.stop_ids = calloc(nids + 4, sizeof(*b->ask.stop_ids));
	if (!b->ask.stop || !b->ask.stop_ids)
		return dt_body_no_memory(b->e);
	for (size_t i = 0; i < n; i++) {
		const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
		struct dt_stop *d = &b->ask.stop[i];

		d->n = json_string_length(s);
		if (d->n == 0 || d->n > MAX_STOP_BYTES)
			return dt_body_bad(b->e, "stop",
					   "'stop' has an element that is not a string of 1 to %d bytes",
					   MAX_STOP_BYTES);
		d->s = malloc(d->n);
		if (!d->s)
			return dt_body_no_memory(b->e);
		memcpy(d->s, json_string_value(s), d->n);
		b->ask.nstop++;
	}
	if (nids > 0 && dt_body_ids(b, "stop_token_ids", ids, b->ask.stop_ids) < 0)
		return -EINVAL;
	b->ask.nstop_ids = b->ask.nasked = (int)nids;
	for (int i = 0; i < m->model.neos && !b->ask.ignore_eos; i++)
		b->ask.stop_ids[b->ask.nstop_ids++] = m->model.eos[i];
	for (int i = 0; chat && i < 2 && !b->ask.ignore_eos; i++)
		if ((i ? chat->call : chat->end) >= 0)
			b->ask.stop_ids[b->ask.nstop_ids++] = i ? chat->call : chat->end;
	return 0;
}

static int add_bias(struct dt_body *b, int32_t id, float bias)
{
	if (b->ask.sampling.nbias == MAX_BIAS)
		return dt_body_bad(b->e, "logit_bias", "'logit_bias' has more than %d tokens", MAX_BIAS);
	b->ask.bias[b->ask.sampling.nbias++] = (struct dt_bias){id, bias};
	return 0;
}

/* One of llama.cpp's pairs: a token id, or a text for all of its tokens, and a bias, or false: never. */
static int read_pair(struct dt_body *b, const json_t *pair)
{
	const json_t *what = json_array_get(pair, 0), *by = json_array_get(pair, 1);
	const double bias = json_is_false(by) ? -INFINITY : json_number_value(by);
	int32_t *ids = NULL;
	struct dt_err err;
	size_t n = 0;
	int rc = 0;

	if (json_array_size(pair) != 2 || (!json_is_integer(what) && !json_is_string(what)) ||
	    (!json_is_false(by) && !(json_is_number(by) && fabs(bias) <= 100)))
		return dt_body_bad(
			b->e, "logit_bias",
			"'logit_bias' has an element that is not a pair of a token id or text, and a "
			"number between -100 and 100 or false");
	if (json_is_integer(what) &&
	    (json_integer_value(what) < 0 || json_integer_value(what) >= b->m->engine->model.vocab))
		return dt_body_bad(b->e, "logit_bias",
				   "'logit_bias' has an element that is not a token id below %d",
				   b->m->engine->model.vocab);
	if (json_is_integer(what))
		return add_bias(b, (int32_t)json_integer_value(what), (float)bias);
	if (dt_tokenizer_encode(b->m->engine->tok, json_string_value(what), json_string_length(what), false,
				&ids, &n, &err) < 0)
		return dt_body_bad(b->e, "logit_bias", "%s", err.msg);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = add_bias(b, ids[i], (float)bias);
	free(ids);
	return rc;
}

static int read_bias(struct dt_body *b)
{
	json_t *o = json_object_get(b->o, "logit_bias"), *v;
	size_t n = json_is_array(o) ? MAX_BIAS : json_object_size(o), i;
	const char *key;

	if (!o || json_is_null(o))
		return 0;
	if ((!json_is_object(o) && !json_is_array(o)) || n > MAX_BIAS)
		return dt_body_bad(b->e, "logit_bias", "'logit_bias' is not an object of at most %d ids",
				   MAX_BIAS);
	b->ask.bias = calloc(n + 1, sizeof(*b->ask.bias));
	if (!b->ask.bias)
		return dt_body_no_memory(b->e);
	b->ask.sampling.bias = b->ask.bias;
	json_array_foreach(o, i, v)
	{
		if (read_pair(b, v) < 0)
			return -EINVAL;
	}
	json_object_foreach(o, key, v)
	{
		char *end;
		long id = strtol(key, &end, 10);

		if (!*key || *end || id < 0 || id >= b->m->engine->model.vocab)
			return dt_body_bad(b->e, "logit_bias",
					   "'logit_bias': '%.20s' is not a token id below %d", key,
					   b->m->engine->model.vocab);
		if (!json_is_number(v) || !(fabs(json_number_value(v)) <= 100))
			return dt_body_bad(b->e, "logit_bias",
					   "'logit_bias' of token %ld is not between -100 and 100", id);
		add_bias(b, (int32_t)id, (float)json_number_value(v));
	}
	return 0;
}

/* Sets the mask of tokens whose text contains one of DRY's sequence breakers. */
static int read_breakers(struct dt_body *b)
{
	static const char *const usual[] = {"\n", ":", "\"", "*"};
	const json_t *v = json_object_get(b->o, "dry_sequence_breakers");
	const struct dt_engine_params *m = b->m->engine;
	const bool own = v && !json_is_null(v);
	size_t n = own ? json_array_size(v) : 4;

	if (own && (!json_is_array(v) || n > DT_STOP_MAX))
		return dt_body_bad(b->e, "dry_sequence_breakers",
				   "'dry_sequence_breakers' is not an array of at most %d strings",
				   DT_STOP_MAX);
	if (b->ask.sampling.dry_multiplier == 0)
		return 0;
	b->ask.dry_break = calloc(((size_t)m->model.vocab + 31) / 32, sizeof(*b->ask.dry_break));
	if (!b->ask.dry_break)
		return dt_body_no_memory(b->e);
	b->ask.sampling.dry_break = b->ask.dry_break;
	for (size_t i = 0; i < n; i++) {
		const json_t *s = own ? json_array_get(v, i) : NULL;
		const char *text = own ? json_string_value(s) : usual[i];
		size_t len = own ? json_string_length(s) : 1;
		bool found = false;

		if (!text || len == 0 || len > MAX_STOP_BYTES)
			return dt_body_bad(
				b->e, "dry_sequence_breakers",
				"'dry_sequence_breakers' has an element that is not a string of 1 to %d "
				"bytes",
				MAX_STOP_BYTES);
		for (int32_t id = 0; id < m->model.vocab; id++) {
			size_t size = 0;
			const char *piece = dt_tokenizer_piece(m->tok, id, false, &size);

			if (!piece || !memmem(piece, size, text, len))
				continue;
			b->ask.dry_break[id / 32] |= 1u << id % 32;
			found = true;
		}
		if (own && !found)
			return dt_body_bad(b->e, "dry_sequence_breakers",
					   "'dry_sequence_breakers': no token of this model contains '%.40s'",
					   text);
	}
	return 0;
}

/* tool_choice: auto (no effect), none, required, or a tool by its name in *only. */
static int read_choice(struct dt_body *b, bool *none, bool *forced, const char **only)
{
	const json_t *v = json_object_get(b->o, "tool_choice");
	const char *word = json_string_value(v);

	if (!v || json_is_null(v) || (word && !strcmp(word, "auto")))
		return 0;
	*none = word && !strcmp(word, "none");
	*only = json_string_value(json_object_get(json_object_get(v, "function"), "name"));
	*forced = *only || (word && !strcmp(word, "required"));
	return *none || *forced
		       ? 0
		       : dt_body_bad(
				 b->e, "tool_choice",
				 "'tool_choice' must be none, auto, required, or {\"type\": \"function\", "
				 "\"function\": {\"name\"}}");
}

static int set_tools_grammar(struct dt_body *b, enum dt_tool_form form, const json_t *list, const char *only)
{
	json_t *key = json_pack("[i, O, s?, b]", form, list, only, b->parallel);
	int rc = dt_body_grammar(
		b, "tools",
		&(struct dt_wanted){
			.key = key, .form = form, .tools = list, .only = only, .parallel = b->parallel});

	json_decref(key);
	return rc;
}

int dt_body_tools(struct dt_body *b, const struct dt_chat *chat, struct dt_completion *c)
{
	const json_t *list = json_object_get(b->o, "tools");
	enum dt_tool_form form = dt_chat_tool_form(chat);
	bool none = false, forced = false;
	const struct dt_tools_opening *opening;
	const char *only = NULL;

	if (read_choice(b, &none, &forced, &only) < 0)
		return -EINVAL;
	if (list && !json_is_null(list) && !json_is_array(list))
		return dt_body_bad(b->e, "tools", "'tools' is not an array");
	if (none || json_array_size(list) == 0)
		return forced ? dt_body_bad(b->e, "tool_choice",
					    "'tool_choice' requires a call, but there are no 'tools'")
			      : 0;
	if (form == DT_TOOLS_NONE)
		return dt_body_bad(b->e, "tools", "the chat template of this model does not support tools");
	if (b->ask.grammar)
		return dt_body_bad(b->e, "response_format",
				   "'response_format' cannot be combined with 'tools'");
	if (set_tools_grammar(b, form, list, only) < 0)
		return -EINVAL;
	opening = dt_tools_opening(form);
	b->ask.trigger = forced ? NULL : opening->text;
	b->ask.first = b->goes_on ? NULL : opening->first; /* behind the prompt's text it is text */
	b->ask.once = opening->once;
	b->ask.skip_special = false; /* the opening of a call may be a special token */
	b->tools = (struct dt_chat_tools){.list = list, .open = forced};
	c->tools = form;
	c->inside = forced && *opening->text[0];
	return 0;
}

int dt_body_ask(struct dt_body *b, const struct dt_chat *chat)
{
	if (read_bias(b) < 0 || read_breakers(b) < 0 || read_stops(b, chat) < 0)
		return -EINVAL;
	return dt_body_samplers(b) < 0 ? -EINVAL : dt_body_format(b);
}
/* SPDX-License-Identifier: Apache-2.0 */
