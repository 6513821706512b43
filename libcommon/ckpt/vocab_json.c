/* What tokenizer.json files of all kinds of vocabularies have. */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int src_vocab_note(struct dt_source *s, const char *what, const char *name, size_t n)
{
	size_t k = (size_t)snprintf(s->note, sizeof(s->note), "the tokenizer of '%s' cannot be used: %s",
				    s->path, what);

	if (name && k < sizeof(s->note))
		snprintf(s->note + k, sizeof(s->note) - k, " '%.*s'", n > 60 ? 60 : (int)n, name);
	return 0;
}

json_t *src_vocab_json(const struct src_vocab *v)
{
	json_t *o = json_object();
	char *key = NULL;
	size_t cap = 0;
	bool good = true;

	for (int i = 0; i < v->n && good; i++) {
		const struct src_token *t = &v->t[i];

		if (t->n + 1 > cap) {
			char *grown = realloc(key, t->n + 256);

			if (!grown)
				break;
			key = grown;
			cap = t->n + 256;
		}
		memcpy(key, t->s, t->n);
		key[t->n] = '\0';
		good = strlen(key) == t->n && !json_object_get(o, key) &&
		       json_object_set_new(o, key, json_integer(i)) == 0;
	}
	free(key);
	if (json_object_size(o) != (size_t)v->n) {
		json_decref(o);
		return NULL;
	}
	return o;
}

json_t *src_added_json(const struct src_vocab *v)
{
	json_t *a = json_array();

	for (int i = 0; i < v->n; i++) {
		const struct src_token *t = &v->t[i];
		bool special = t->type == SRC_TOKEN_CONTROL || t->type == SRC_TOKEN_UNKNOWN;

		if (t->n && (special || t->type == SRC_TOKEN_USER))
			json_array_append_new(a,
					      json_pack("{s:i, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", i,
							"content", t->s, t->n, "single_word", 0, "lstrip", 0,
							"rstrip", 0, "normalized", 0, "special", special));
	}
	return a;
}

int src_vocab_finish(struct dt_source *s, json_t *root, struct dt_err *err)
{
	s->tokenizer = root ? json_dumps(root, JSON_COMPACT) : NULL;
	json_decref(root);
	if (!s->tokenizer)
		return dt_err_sys(err, -ENOMEM, "cannot read the vocabulary of '%s'", s->path);
	s->tokenizer_n = strlen(s->tokenizer);
	return 0;
}

/* ---- what stands around a text ---- */

static json_t *token_part(const char *name)
{
	return json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", name, "type_id", 0);
}

static json_t *text_part(const char *name, int type)
{
	return json_pack("{s:{s:s, s:i}}", "Sequence", "id", name, "type_id", type);
}

/* The text of a token that is added; false: it is not. */
static bool added(const struct src_vocab *v, bool adds, int64_t id, char name[256])
{
	const struct src_token *t = adds && id >= 0 && id < v->n ? &v->t[id] : NULL;

	if (!t || t->n >= 256)
		return false;
	snprintf(name, 256, "%.*s", (int)t->n, t->s);
	return true;
}

json_t *src_around_json(const struct src_vocab *v)
{
	char bos[256], eos[256];
	const bool before = added(v, v->add_bos, v->bos, bos), behind = added(v, v->add_eos, v->eos, eos);
	json_t *single, *pair, *tokens;

	if (!before && !behind)
		return json_null();
	single = json_array();
	tokens = json_object();
	if (before)
		json_array_append_new(single, token_part(bos));
	json_array_append_new(single, text_part("A", 0));
	if (behind)
		json_array_append_new(single, token_part(eos));
	pair = json_copy(single);
	if (behind && v->add_sep)
		json_array_append_new(pair, token_part(eos));
	json_array_append_new(pair, text_part("B", 1));
	if (behind)
		json_array_append_new(pair, token_part(eos));
	for (int i = 0; i < 2; i++)
		if (i ? behind : before)
			json_object_set_new(tokens, i ? eos : bos,
					    json_pack("{s:s, s:[I], s:[s]}", "id", i ? eos : bos, "ids",
						      (json_int_t)(i ? v->eos : v->bos), "tokens",
						      i ? eos : bos));
	return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair", pair,
			 "special_tokens", tokens);
}
/* SPDX-License-Identifier: Apache-2.0 */
