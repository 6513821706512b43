/*
 * Grammars of the output. response_format is OpenAI's key; structured_outputs and guided_* are vLLM's,
 * json_schema and grammar are llama.cpp's.
 */
#include "serve/api/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CHOICES 4096

int dt_body_only(struct dt_body *b, const char *key, const json_t *o, const char *const *known)
{
	const char *name = dt_api_unknown(o, known, true);

	return name ? dt_body_bad(b->e, key, "'%s' has an unknown key '%.60s'", key, name) : 0;
}

static int words_grammar(const json_t *list, struct dt_grammar **ret, struct dt_err *err)
{
	const size_t n = json_array_size(list);
	const char **word = calloc(n + 1, sizeof(*word));
	int rc = word ? 0 : dt_err_sys(err, -ENOMEM, "cannot make a grammar");

	for (size_t i = 0; i < n && rc == 0; i++)
		word[i] = json_string_value(json_array_get(list, i));
	if (rc == 0)
		rc = dt_grammar_words(word, (int)n, ret, err);
	free(word);
	return rc;
}

static int32_t find_token(const void *arg, const char *s, size_t n)
{
	const struct dt_engine_params *p = arg;
	int32_t *ids = NULL, id = -1;
	struct dt_err err;
	size_t count;

	if (dt_tokenizer_encode(p->tok, s, n, true, &ids, &count, &err) == 0 && count == 1)
		id = ids[0];
	free(ids);
	return id;
}

/* Whether a token has a text and does not end an answer. */
static bool token_fits(const void *arg, int32_t id)
{
	const struct dt_engine_params *p = arg;
	size_t n = 0;

	for (int i = 0; i < p->model.neos; i++)
		if (p->model.eos[i] == id)
			return false;
	return dt_tokenizer_piece(p->tok, id, true, &n) && n > 0;
}

static int make_grammar(const struct dt_body *b, const struct dt_wanted *w, struct dt_grammar **ret,
			struct dt_err *err)
{
	const struct dt_engine_params *p = b->m->engine;
	const struct dt_grammar_tokens tokens = {p->model.vocab, find_token, token_fits, p};

	if (w->tools)
		return dt_tools_grammar(w->form, w->tools, w->only, w->parallel, &tokens, ret, err);
	if (w->schema)
		return dt_grammar_schema(w->schema, ret, err);
	if (w->regex)
		return dt_grammar_regex(json_string_value(w->regex), ret, err);
	if (w->words)
		return words_grammar(w->words, ret, err);
	if (w->gbnf)
		return dt_grammar_gbnf(json_string_value(w->gbnf), json_string_length(w->gbnf), &tokens, ret,
				       err);
	*ret = dt_grammar_json();
	return *ret ? 0 : dt_err_sys(err, -ENOMEM, "cannot make a grammar");
}

int dt_body_grammar(struct dt_body *b, const char *param, const struct dt_wanted *w)
{
	char *key = w->key ? json_dumps(w->key, JSON_COMPACT) : NULL;
	struct dt_grammars *kept = b->m->engine->grammars;
	struct dt_err err;
	int rc = 0;

	if (!key)
		return dt_body_no_memory(b->e);
	b->ask.grammar = dt_grammars_find(kept, key);
	if (!b->ask.grammar) {
		rc = make_grammar(b, w, &b->ask.grammar, &err);
		if (rc == 0)
			dt_grammars_add(kept, key, b->ask.grammar);
		else
			rc = dt_body_bad(b->e, param, "%s", err.msg);
	}
	free(key);
	return rc;
}

/* Refuses a second key that constrains the output. */
static int alone(struct dt_body *b, const char *param)
{
	return b->ask.grammar
		       ? dt_body_bad(b->e, param,
				     "'%s' cannot be combined with another key that constrains the output",
				     param)
		       : 0;
}

static bool is_text(const json_t *v)
{
	return json_string_length(v) > 0 && strlen(json_string_value(v)) == json_string_length(v);
}

static int check_words(struct dt_body *b, const char *param, const json_t *list)
{
	const json_t *word;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) == 0 || json_array_size(list) > MAX_CHOICES)
		return dt_body_bad(b->e, param, "'%s' is not an array of 1 to %d texts", param, MAX_CHOICES);
	json_array_foreach(list, i, word)
	{
		if (!is_text(word))
			return dt_body_bad(b->e, param, "'%s' has an element that is not a text", param);
	}
	return 0;
}

/* A grammar from one value of vLLM's or llama.cpp's kinds. */
static int set_kind(struct dt_body *b, const char *param, const char *kind, const json_t *v)
{
	json_t *key = json_pack("[s, O]", kind, v), *parsed = NULL;
	struct dt_wanted w = {.key = key};
	int rc = alone(b, param);

	if (rc == 0 && !strcmp(kind, "json")) { /* a schema, or its text */
		parsed = json_is_string(v) ? json_loads(json_string_value(v), 0, NULL)
					   : json_incref((json_t *)v);
		w.schema = parsed;
		if (!parsed)
			rc = dt_body_bad(b->e, param, "'%s' is not a JSON schema", param);
	} else if (rc == 0 && !strcmp(kind, "regex")) {
		w.regex = v;
		if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
			rc = dt_body_bad(b->e, param, "'%s' is not a regular expression", param);
	} else if (rc == 0 && !strcmp(kind, "grammar")) {
		w.gbnf = v;
		if (!json_is_string(v))
			rc = dt_body_bad(b->e, param, "'%s' is not the text of a grammar", param);
	} else if (rc == 0) {
		w.words = v;
		rc = check_words(b, param, v);
	}
	if (rc == 0)
		rc = dt_body_grammar(b, param, &w);
	json_decref(parsed);
	json_decref(key);
	return rc;
}

/* vLLM's structured_outputs: an object with one constraint. */
static int read_structured(struct dt_body *b)
{
	static const char *const kinds[] = {"json", "regex", "choice", "grammar", NULL};
	static const char *const known[] = {"json", "regex", "choice", "grammar", "json_object", NULL};
	const json_t *o = json_object_get(b->o, "structured_outputs"), *any;

	if (!o || json_is_null(o))
		return 0;
	if (!json_is_object(o))
		return dt_body_bad(b->e, "structured_outputs", "'structured_outputs' is not an object");
	if (dt_body_only(b, "structured_outputs", o, known) < 0)
		return -EINVAL;
	for (int i = 0; kinds[i]; i++) {
		const json_t *v = json_object_get(o, kinds[i]);

		if (v && !json_is_null(v) && set_kind(b, "structured_outputs", kinds[i], v) < 0)
			return -EINVAL;
	}
	any = json_object_get(o, "json_object");
	if (!json_is_true(any))
		return 0;
	if (alone(b, "structured_outputs") < 0)
		return -EINVAL;
	return dt_body_grammar(b, "structured_outputs", &(struct dt_wanted){.key = o});
}

static int read_response_format(struct dt_body *b)
{
	static const char *const known[] = {"type", "json_schema", "schema", "value", NULL};
	static const char *const of_schema[] = {"name", "description", "schema", "strict", NULL};
	const json_t *f = json_object_get(b->o, "response_format"), *s;
	const char *type = json_string_value(json_object_get(f, "type"));

	if (dt_body_only(b, "response_format", f, known) < 0 ||
	    dt_body_only(b, "response_format", json_object_get(f, "json_schema"), of_schema) < 0)
		return -EINVAL;
	if (!f || json_is_null(f) || (type && !strcmp(type, "text")))
		return 0;
	s = json_object_get(f, "schema") ?: json_object_get(f, "value"); /* llama.cpp's and TGI's places */
	if (type && !strcmp(type, "json_object"))
		return dt_body_grammar(b, "response_format",
				       &(struct dt_wanted){.key = f, .schema = json_is_null(s) ? NULL : s});
	if (!type || strcmp(type, "json_schema"))
		return dt_body_bad(b->e, "response_format",
				   "the type of 'response_format' is not text, json_object or json_schema");
	s = json_object_get(json_object_get(f, "json_schema"), "schema") ?: s;
	if (!s)
		return dt_body_bad(b->e, "response_format", "'response_format' has no json_schema.schema");
	return dt_body_grammar(b, "response_format", &(struct dt_wanted){.key = f, .schema = s});
}

/* llama.cpp's clients send an empty grammar for none. */
static bool is_none(const char *key, const json_t *v)
{
	return !v || json_is_null(v) ||
	       (!strcmp(key, "grammar") && json_is_string(v) && json_string_length(v) == 0);
}

int dt_body_format(struct dt_body *b)
{
	static const struct {
		const char *key, *kind;
	} other[] = {{"json_schema", "json"},	  {"guided_json", "json"},	 {"guided_regex", "regex"},
		     {"guided_choice", "choice"}, {"guided_grammar", "grammar"}, {"grammar", "grammar"}};

	if (read_response_format(b) < 0 || read_structured(b) < 0)
		return -EINVAL;
	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++) {
		const json_t *v = json_object_get(b->o, other[i].key);

		if (!is_none(other[i].key, v) && set_kind(b, other[i].key, other[i].kind, v) < 0)
			return -EINVAL;
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
