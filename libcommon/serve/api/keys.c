/*
 * The keys of a body, one row each: in which bodies it is allowed, how it is parsed, and into which field. A
 * new sampling option needs a row here and a field in struct dt_ask.
 */
#include "base/utf8.h"
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum key_type {
	OWN,  /* parsed elsewhere: body.c, openai.c */
	BOOL, /* bool */
	INT,  /* int within min and max */
	LONG, /* int64_t, any */
	REAL, /* double within min and max */
	IDLE, /* not supported: only values without effect are accepted */
};

struct key {
	const char *name;
	unsigned where;
	enum key_type type;
	size_t at; /* offset in struct dt_body */
	double min, max;
	const char *idle[2]; /* IDLE: values without effect, as JSON; null always is one */
	bool any;	     /* IDLE: no value has an effect */
};

#define LINES  (DT_BODY_LINE | DT_BODY_CHAT_LINE)
#define NATIVE (DT_BODY_NATIVE | DT_BODY_INFILL)
#define HTTP   (DT_BODY_TEXT | DT_BODY_CHAT | DT_BODY_EMBEDDING | NATIVE)
#define TEXT   (DT_BODY_TEXT | DT_BODY_LINE)
#define CHAT   (DT_BODY_CHAT | DT_BODY_CHAT_LINE)
#define DRAW   (TEXT | CHAT | NATIVE)
#define ALL    (HTTP | LINES)

#define B(field) offsetof(struct dt_body, field)
#define S(field) offsetof(struct dt_body, ask.sampling.field)

static const struct key keys[] = {
	{"prompt", TEXT | NATIVE, OWN},
	{"input_prefix", DT_BODY_INFILL, OWN},
	{"input_suffix", DT_BODY_INFILL, OWN},
	{"input_extra", DT_BODY_INFILL, OWN},
	{"messages", CHAT, OWN},
	{"input", DT_BODY_EMBEDDING, OWN},
	{"id", LINES, OWN},
	{"model", ALL, OWN},
	{"stream", DT_BODY_TEXT | DT_BODY_CHAT | NATIVE, BOOL, B(stream)},
	{"stream_options", DT_BODY_TEXT | DT_BODY_CHAT, OWN},
	{"n", DT_BODY_TEXT | DT_BODY_CHAT, INT, B(n), 1, 128},
	{"best_of", DT_BODY_TEXT, INT, B(best_of), 1, 128},
	{"echo", TEXT, BOOL, B(echo)},
	{"logprobs", TEXT, INT, B(ask.logprobs), 0, DT_LOGPROBS_MAX},
	{"logprobs", CHAT, BOOL, B(chat_logprobs)},
	{"echo_logprobs_from", DT_BODY_TEXT, INT, B(logprobs_from), 0, INT32_MAX},
	{"prompt_logprobs", DT_BODY_TEXT, INT, B(ask.prompt_logprobs), 0, DT_PROMPT_LOGPROBS_MAX},
	{"prompt_logprobs_temperature", DT_BODY_TEXT, REAL, B(ask.prompt_temperature), 0.01, 100},
	{"continue_final_message", CHAT, BOOL, B(goes_on)},
	{"add_generation_prompt", CHAT, BOOL, B(opens)},
	{"top_logprobs", CHAT, INT, B(top_logprobs), 0, DT_LOGPROBS_MAX},
	{"return_token_ids", TEXT, BOOL, B(ids)},
	{"encoding_format", DT_BODY_EMBEDDING, OWN},
	{"cache_salt", ALL, OWN},

	{"max_tokens", DRAW, INT, B(max_tokens), 0, INT32_MAX},
	{"max_completion_tokens", DRAW, INT, B(max_completion_tokens), 0, INT32_MAX},
	{"min_tokens", DRAW, INT, B(ask.min_tokens), 0, INT32_MAX},
	{"priority", DRAW, INT, B(ask.priority), -1000, 1000},
	{"temperature", DRAW, REAL, S(temperature), 0, 100},
	{"top_p", DRAW, REAL, S(top_p), 0, 1},
	{"top_k", DRAW, INT, S(top_k), -1, INT32_MAX},
	{"min_p", DRAW, REAL, S(min_p), 0, 1},
	{"repetition_penalty", DRAW, REAL, S(repetition_penalty), 0.01, 100},
	{"presence_penalty", DRAW, REAL, S(presence_penalty), -2, 2},
	{"frequency_penalty", DRAW, REAL, S(frequency_penalty), -2, 2},
	{"dry_multiplier", DRAW, REAL, S(dry_multiplier), 0, 100},
	{"dry_base", DRAW, REAL, S(dry_base), 1, 100},
	{"dry_allowed_length", DRAW, INT, S(dry_allowed), 0, INT32_MAX},
	{"dry_penalty_last_n", DRAW, INT, S(dry_last), -1, INT32_MAX},
	{"dry_sequence_breakers", DRAW, OWN},
	{"xtc_probability", DRAW, REAL, S(xtc_probability), 0, 1},
	{"xtc_threshold", DRAW, REAL, S(xtc_threshold), 0, 1},
	{"mirostat", DRAW, INT, S(mirostat), 0, 2},
	{"mirostat_tau", DRAW, REAL, S(tau), 0, 100},
	{"mirostat_eta", DRAW, REAL, S(eta), 0, 1},
	{"seed", DRAW, LONG, S(seed)},
	{"logit_bias", DRAW, OWN},
	{"stop", DRAW, OWN},
	{"stop_token_ids", DRAW, OWN},
	{"ignore_eos", DRAW, BOOL, B(ask.ignore_eos)},
	{"skip_special_tokens", DRAW, BOOL, B(ask.skip_special)},
	{"include_stop_str_in_output", DRAW, BOOL, B(ask.include_stop)},
	{"response_format", DRAW, OWN},
	{"structured_outputs", DRAW, OWN},
	{"guided_json", DRAW, OWN},
	{"guided_regex", DRAW, OWN},
	{"guided_choice", DRAW, OWN},
	{"guided_grammar", DRAW, OWN},
	{"grammar", DRAW, OWN},
	{"json_schema", DRAW, OWN},
	{"truncate_prompt_tokens", ALL, INT, B(truncate), -1, INT32_MAX},
	{"add_special_tokens", TEXT | DT_BODY_EMBEDDING | NATIVE, BOOL, B(special)},
	{"add_special_tokens", CHAT, IDLE, .idle = {"false"}},
	{"chat_template_kwargs", CHAT, OWN},
	{"reasoning_effort", CHAT, OWN},

	/* llama.cpp's names, and hints of it that change no answer */
	{"n_predict", DRAW, INT, B(n_predict), -1, INT32_MAX},
	{"repeat_penalty", DRAW, REAL, S(repetition_penalty), 0.01, 100},
	{"repeat_last_n", DRAW & ~NATIVE, IDLE, .idle = {"-1"}},
	{"repeat_last_n", NATIVE, OWN},
	{"samplers", DRAW, OWN},
	{"typical_p", DRAW, IDLE, .idle = {"1", "1.0"}},
	{"cache_prompt", DRAW, IDLE, .any = true},
	{"id_slot", DRAW, IDLE, .any = true},
	{"n_probs", DRAW & ~NATIVE, IDLE, .idle = {"0"}},
	{"n_probs", NATIVE, INT, B(n_probs), 0, DT_LOGPROBS_MAX},
	{"post_sampling_probs", NATIVE, BOOL, B(post_probs)},
	{"response_fields", NATIVE, OWN},
	{"n_cmpl", NATIVE, INT, B(n), 1, 128},
	{"return_tokens", NATIVE, BOOL, B(ids)},
	{"n_keep", NATIVE, IDLE, .any = true},
	{"n_cache_reuse", NATIVE, IDLE, .any = true},
	{"slot_id", NATIVE, IDLE, .any = true},
	{"dynatemp_range", NATIVE, IDLE, .idle = {"0", "0.0"}},
	{"dynatemp_exponent", NATIVE, IDLE, .any = true},
	{"n_indent", NATIVE, IDLE, .idle = {"0"}},
	{"min_keep", NATIVE, IDLE, .idle = {"0"}},
	{"t_max_predict_ms", NATIVE, IDLE, .idle = {"0"}},
	{"tfs_z", NATIVE, IDLE, .idle = {"1", "1.0"}},
	{"top_n_sigma", NATIVE, IDLE, .idle = {"-1", "-1.0"}},
	{"penalize_nl", NATIVE, IDLE, .idle = {"false"}},
	{"return_progress", NATIVE, IDLE, .idle = {"false"}},
	{"image_data", NATIVE, IDLE, .idle = {"[]"}},
	{"lora", NATIVE, IDLE, .idle = {"[]"}},
	{"timings_per_token", DRAW, IDLE, .idle = {"false"}},

	/* vLLM's, where only the default is supported */
	{"use_beam_search", DRAW, IDLE, .idle = {"false"}},
	{"length_penalty", DRAW, IDLE, .idle = {"1", "1.0"}},
	{"spaces_between_special_tokens", DRAW, IDLE, .idle = {"true"}},
	{"return_tokens_as_token_ids", DRAW, IDLE, .idle = {"false"}},
	{"include_reasoning", CHAT, IDLE, .idle = {"true"}},
	{"echo", CHAT, IDLE, .idle = {"false"}},
	{"bad_words", DRAW, IDLE, .idle = {"[]"}},
	{"allowed_token_ids", DRAW, IDLE},
	{"chat_template", CHAT, IDLE},
	{"documents", CHAT, IDLE, .idle = {"[]"}},
	{"request_id", ALL, IDLE, .any = true},

	/* OpenAI's keys that client libraries send by default. */
	{"suffix", TEXT, OWN},
	{"suffix", ALL & ~TEXT, IDLE, .idle = {"\"\""}},
	{"tools", CHAT, OWN},
	{"tools", ALL & ~CHAT, IDLE, .idle = {"[]"}},
	{"functions", ALL, IDLE, .idle = {"[]"}},
	{"tool_choice", CHAT, OWN},
	{"tool_choice", ALL & ~CHAT, IDLE, .idle = {"\"none\"", "\"auto\""}},
	{"function_call", ALL, IDLE, .idle = {"\"none\"", "\"auto\""}},
	{"parallel_tool_calls", CHAT, BOOL, B(parallel)},
	{"parallel_tool_calls", ALL & ~CHAT, IDLE, .any = true},
	{"modalities", ALL, IDLE, .idle = {"[\"text\"]"}},
	{"audio", ALL, IDLE},
	{"prediction", ALL, IDLE},
	{"reasoning_effort", ALL & ~CHAT, IDLE},
	{"verbosity", ALL, IDLE, .idle = {"\"medium\""}},
	{"web_search_options", ALL, IDLE},
	{"dimensions", DT_BODY_EMBEDDING, IDLE},
	{"service_tier", ALL, IDLE, .idle = {"\"auto\"", "\"default\""}},
	{"store", ALL, IDLE, .idle = {"false"}},
	{"metadata", ALL, IDLE, .any = true},
	{"safety_identifier", ALL, IDLE, .any = true},
	{"prompt_cache_key", ALL, IDLE, .any = true},
	{"prompt_cache_options", ALL, IDLE, .any = true},
	{"prompt_cache_retention", ALL, IDLE, .any = true},
	{"moderation", ALL, IDLE},
	{"user", ALL, IDLE, .any = true},
};

#define NKEYS (sizeof(keys) / sizeof(*keys))

/* The row of a key for this kind of body; NULL with e filled. */
static const struct key *find(struct dt_body *b, const char *name)
{
	static const struct {
		unsigned where;
		const char *name;
	} kind[] = {{DT_BODY_TEXT, "/v1/completions"},
		    {DT_BODY_CHAT, "/v1/chat/completions"},
		    {DT_BODY_EMBEDDING, "/v1/embeddings"},
		    {DT_BODY_LINE, "a line with 'prompt'"},
		    {DT_BODY_CHAT_LINE, "a line with 'messages'"},
		    {DT_BODY_NATIVE, "/completion"},
		    {DT_BODY_INFILL, "/infill"}};
	unsigned where = 0;

	for (size_t i = 0; i < NKEYS; i++) {
		if (strcmp(name, keys[i].name))
			continue;
		if (keys[i].where & b->kind)
			return &keys[i];
		where |= keys[i].where;
	}
	for (size_t i = 0; i < sizeof(kind) / sizeof(*kind); i++)
		if (where & kind[i].where) {
			dt_body_bad(b->e, name, "'%s' is a key of %s, not of this request", name,
				    kind[i].name);
			return NULL;
		}
	dt_body_bad(b->e, name, "unknown key '%.60s'", name);
	return NULL;
}

static int read_idle(struct dt_body *b, const struct key *k, const json_t *v)
{
	char *text = k->any ? NULL : json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
	bool idle = k->any;

	if (!k->any && !text)
		return dt_body_no_memory(b->e);
	for (size_t i = 0; i < 2 && !idle; i++)
		idle = k->idle[i] && !strcmp(text, k->idle[i]);
	free(text);
	return idle ? 0 : dt_body_bad(b->e, k->name, "'%s' is not supported", k->name);
}

static int read_real(struct dt_body *b, const struct key *k, double *to)
{
	struct dt_err err;
	double v = 0;

	if (dt_json_real(b->o, k->name, false, &v, &err) < 0)
		return dt_body_bad(b->e, k->name, "%s", err.msg);
	if (!(v >= k->min && v <= k->max))
		return dt_body_bad(b->e, k->name, "'%s' is %g, not between %g and %g", k->name, v, k->min,
				   k->max);
	*to = v;
	return 0;
}

static int read_int(struct dt_body *b, const struct key *k, void *to)
{
	int64_t min = k->type == LONG ? INT64_MIN : (int64_t)k->min;
	int64_t max = k->type == LONG ? INT64_MAX : (int64_t)k->max, v;
	struct dt_err err;

	if (dt_json_int(b->o, k->name, false, min, max, &v, &err) < 0)
		return dt_body_bad(b->e, k->name, "%s", err.msg);
	if (k->type == LONG)
		*(int64_t *)to = v;
	else
		*(int *)to = (int)v;
	return 0;
}

static int read_key(struct dt_body *b, const struct key *k, const json_t *v)
{
	void *to = (char *)b + k->at;
	struct dt_err err;

	switch (k->type) {
	case OWN:
		return 0;
	case IDLE:
		return read_idle(b, k, v);
	case REAL:
		return read_real(b, k, to);
	case INT:
	case LONG:
		return read_int(b, k, to);
	case BOOL:
		if (dt_json_bool(b->o, k->name, false, to, &err) < 0)
			return dt_body_bad(b->e, k->name, "%s", err.msg);
	}
	return 0;
}

int dt_body_keys(struct dt_body *b)
{
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)b->o, name, v)
	{
		const struct key *k = find(b, name);

		if (!k || (!json_is_null(v) && read_key(b, k, v) < 0))
			return -EINVAL;
	}
	return 0;
}

const char *dt_api_unknown(const json_t *o, const char *const *known, bool null_fits)
{
	const char *key;
	json_t *v;

	json_object_foreach((json_t *)o, key, v)
	{
		int i = 0;

		while (known[i] && strcmp(known[i], key))
			i++;
		if (!known[i] && !(null_fits && json_is_null(v)))
			return key;
	}
	return NULL;
}

int dt_api_known(const json_t *body, const char *const *known, struct dt_api_error *e)
{
	const char *key;

	if (!json_is_object(body))
		return dt_body_bad(e, "", "the request is not a JSON object");
	key = dt_api_unknown(body, known, false);
	return key ? dt_body_bad(e, key, "unknown key '%.60s'", key) : 0;
}

int dt_api_metadata(const json_t *v, struct dt_api_error *e)
{
	const char *key;
	json_t *text;
	bool ok = !v || json_is_null(v) || (json_is_object(v) && json_object_size(v) <= 16);

	json_object_foreach((json_t *)v, key, text)
	{
		const char *s = json_string_value(text);

		ok &= s && dt_utf8_count(key, strlen(key)) <= 64 &&
		      dt_utf8_count(s, json_string_length(text)) <= 512;
	}
	return ok ? 0
		  : dt_body_bad(e, "metadata",
				"'metadata' is not an object of at most 16 strings of at most 512 "
				"characters, with keys of at most 64");
}

int dt_api_check_defaults(const json_t *o, struct dt_err *err)
{
	struct dt_api_error e;
	struct dt_body b = {.o = o, .e = &e};
	const char *name;
	json_t *v;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "not a JSON object");
	json_object_foreach((json_t *)o, name, v)
	{
		const struct key *k = NULL;

		for (size_t i = 0; i < NKEYS && !k; i++)
			if (!strcmp(name, keys[i].name) && keys[i].where == DRAW)
				k = &keys[i];
		if (!k)
			return dt_err_set(err, -EINVAL, "'%.60s' is not a sampling key", name);
		if (!json_is_null(v) && read_key(&b, k, v) < 0)
			return dt_err_set(err, -EINVAL, "%s", e.msg);
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
