/*
 * A tokenizer.json as GGUF's keys: byte-level BPE by its merges, SentencePiece BPE by scores of equal order.
 * export_vocab_encoder.c has WordPiece and Unigram.
 */
#include "ckpt/export_vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *exp_json_type(const json_t *o)
{
	const char *s = json_string_value(json_object_get(o, "type"));

	return s ? s : "";
}

static bool is_byte_name(const char *s)
{
	return strlen(s) == 6 && !strncmp(s, "<0x", 3) && s[5] == '>';
}

static int put_token(struct exp_vocab *v, const char *s, const json_t *id, int type)
{
	json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;

	if (!s || i < 0 || i >= v->n)
		return -EINVAL;
	v->t[i] = (struct src_token){.s = s, .n = strlen(s), .type = type, .score = v->t[i].score};
	return 0;
}

const json_t *exp_find_type(const json_t *o, const char *key, const char *type)
{
	const json_t *p, *found, *list = json_object_get(o, key);
	size_t i;

	if (!strcmp(exp_json_type(o), type))
		return o;
	json_array_foreach(list, i, p) if ((found = exp_find_type(p, key, type))) return found;
	return NULL;
}

/* The model's own vocabulary: {"token": id}, or of Unigram [["token", score], ...] in the order of ids. */
static int read_own(const json_t *model, bool bytes, struct exp_vocab *v, struct dt_err *err)
{
	const json_t *list = json_object_get(model, "vocab"), *unk_id = json_object_get(model, "unk_id"),
		     *pair;
	const char *key, *unk = json_string_value(json_object_get(model, "unk_token"));
	json_t *id;
	size_t i;

	json_array_foreach(list, i, pair)
	{
		const char *s = json_string_value(json_array_get(pair, 0));
		const bool is_unk = json_is_integer(unk_id) && json_integer_value(unk_id) == (json_int_t)i;

		if (!s || (int64_t)i >= v->n)
			return dt_err_set(err, -EINVAL, "token %zu of the tokenizer is not one of the model",
					  i);
		v->t[i] = (struct src_token){.s = s,
					     .n = strlen(s),
					     .score = json_number_value(json_array_get(pair, 1)),
					     .type = is_unk			? SRC_TOKEN_UNKNOWN
						     : bytes && is_byte_name(s) ? SRC_TOKEN_BYTE
										: SRC_TOKEN_NORMAL};
	}
	json_object_foreach((json_t *)list, key, id)
	{
		int type = bytes && is_byte_name(key) ? SRC_TOKEN_BYTE
			   : unk && !strcmp(unk, key) ? SRC_TOKEN_UNKNOWN
						      : SRC_TOKEN_NORMAL;

		if (put_token(v, key, id, type) < 0)
			return dt_err_set(err, -EINVAL,
					  "the id of '%.60s' in the tokenizer is not valid in the model",
					  key);
	}
	return 0;
}

static int read_added(const json_t *root, struct exp_vocab *v, struct dt_err *err)
{
	const json_t *model = json_object_get(root, "model"), *o;
	const char *unk = json_string_value(json_object_get(model, "unk_token"));
	size_t i;

	json_array_foreach(json_object_get(root, "added_tokens"), i, o)
	{
		const char *s = json_string_value(json_object_get(o, "content"));
		const json_t *id = json_object_get(o, "id");
		const bool is_unk = (unk && s && !strcmp(unk, s)) ||
				    (json_is_integer(id) && json_equal(id, json_object_get(model, "unk_id")));
		int type = is_unk					 ? SRC_TOKEN_UNKNOWN
			   : json_is_true(json_object_get(o, "special")) ? SRC_TOKEN_CONTROL
									 : SRC_TOKEN_USER;

		if (put_token(v, s, id, type) < 0)
			return dt_err_set(
				err, -EINVAL,
				"the id of an added token in the tokenizer is not valid in the model");
	}
	return 0;
}

int exp_vocab_read(const json_t *root, bool bytes, struct exp_vocab *v, struct dt_err *err)
{
	int rc;

	v->t = calloc((size_t)v->n, sizeof(*v->t));
	v->pad = calloc((size_t)v->n, sizeof(*v->pad));
	if (!v->t || !v->pad)
		return dt_err_sys(err, -ENOMEM, "cannot write the vocabulary");
	for (int64_t k = 0; k < v->n; k++) {
		snprintf(v->pad[k], sizeof(v->pad[k]), "[PAD%lld]", (long long)k);
		v->t[k] =
			(struct src_token){.s = v->pad[k], .n = strlen(v->pad[k]), .type = SRC_TOKEN_UNUSED};
	}
	rc = read_own(json_object_get(root, "model"), bytes, v, err);
	return rc < 0 ? rc : read_added(root, v, err);
}

/* "a b" from either form of a merge in tokenizer.json; malloc'd. */
static char *merge_text(const json_t *m)
{
	const char *a = json_string_value(json_array_get(m, 0)), *b = json_string_value(json_array_get(m, 1));
	char *s = NULL;

	if (json_is_string(m))
		return strdup(json_string_value(m));
	return a && b && asprintf(&s, "%s %s", a, b) >= 0 ? s : NULL;
}

/* Scores a piece by the first merge that makes it. */
static void set_scores(const json_t *model, struct exp_vocab *v)
{
	const json_t *merges = json_object_get(model, "merges"), *vocab = json_object_get(model, "vocab"), *m;
	size_t i;

	json_array_foreach(merges, i, m)
	{
		char *s = merge_text(m), *blank = s ? strchr(s, ' ') : NULL;
		const json_t *id;

		if (blank)
			memmove(blank, blank + 1, strlen(blank));
		id = blank ? json_object_get(vocab, s) : NULL;
		if (id && v->t[json_integer_value(id)].score == 0)
			v->t[json_integer_value(id)].score = -(double)(i + 1);
		free(s);
	}
}

void exp_vocab_put(const struct exp_vocab *v, struct gguf_out *g)
{
	gguf_out_array(g, "tokenizer.ggml.tokens", DT_GGUF_STRING, (uint64_t)v->n);
	for (int64_t i = 0; i < v->n; i++)
		gguf_out_text(g, v->t[i].s, v->t[i].n);
	gguf_out_array(g, "tokenizer.ggml.token_type", DT_GGUF_I32, (uint64_t)v->n);
	for (int64_t i = 0; i < v->n; i++) {
		int32_t type = v->t[i].type;

		fwrite(&type, 4, 1, g->f);
	}
}

void exp_vocab_put_scores(const struct exp_vocab *v, struct gguf_out *g, float none)
{
	gguf_out_array(g, "tokenizer.ggml.scores", DT_GGUF_F32, (uint64_t)v->n);
	for (int64_t i = 0; i < v->n; i++) {
		float x =
			v->t[i].type == SRC_TOKEN_NORMAL && v->t[i].score == 0 ? none : (float)v->t[i].score;

		fwrite(&x, 4, 1, g->f);
	}
}

/* Writes the merges as one array of "a b". */
static int put_merges(struct gguf_out *g, const json_t *model)
{
	const json_t *merges = json_object_get(model, "merges"), *m;
	size_t i;

	gguf_out_array(g, "tokenizer.ggml.merges", DT_GGUF_STRING, json_array_size(merges));
	json_array_foreach(merges, i, m)
	{
		char *s = merge_text(m);

		if (!s)
			return -EINVAL;
		gguf_out_text(g, s, strlen(s));
		free(s);
	}
	return 0;
}

/* Whether a template adds a token before the text. */
static bool adds_bos(const json_t *post)
{
	const json_t *p, *list = json_object_get(post, "processors");
	size_t i;

	json_array_foreach(list, i, p) if (adds_bos(p)) return true;
	return !strcmp(exp_json_type(post), "TemplateProcessing") &&
	       json_object_get(json_array_get(json_object_get(post, "single"), 0), "SpecialToken");
}

static int put_all(struct exporter *e, const json_t *root, struct gguf_out *g, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	const json_t *model = json_object_get(root, "model");
	bool spm = json_is_true(json_object_get(model, "byte_fallback"));
	const struct src_pre *pre = spm ? NULL : src_pre_of(root);
	struct exp_vocab v = {.n = c->vocab};
	int rc;

	if (!strcmp(exp_json_type(model), "WordPiece"))
		return exp_vocab_bert(root, &v, g, err);
	if (!strcmp(exp_json_type(model), "Unigram"))
		return exp_vocab_unigram(root, &v, g, err);
	if (strcmp(exp_json_type(model), "BPE") || (!spm && !pre)) {
		rc = dt_err_set(err, -ENOTSUP, "the pre-tokenizer of the tokenizer has no name in GGUF");
		dt_err_hint(err, "--tokenizer none leaves it out");
		return rc;
	}
	rc = exp_vocab_read(root, spm, &v, err);
	if (rc == 0) {
		const char *name = spm ? "llama" : "gpt2";
		/* splits as gpt-2, and has tokens around texts */
		const bool roberta = c->encoder && pre && !strcmp(pre->name, "gpt-2");
		const char *splits = spm ? "default" : roberta ? "roberta-bpe" : pre->name;

		gguf_out_str(g, "tokenizer.ggml.model", name, strlen(name));
		gguf_out_str(g, "tokenizer.ggml.pre", splits, strlen(splits));
		exp_vocab_put(&v, g);
		if (spm) {
			set_scores(model, &v);
			exp_vocab_put_scores(&v, g, -1e6f);
		}
		if (c->encoder)
			exp_around_put(root, g);
		else
			gguf_out_bool(g, "tokenizer.ggml.add_bos_token",
				      adds_bos(json_object_get(root, "post_processor")));
		if (spm)
			gguf_out_bool(
				g, "tokenizer.ggml.add_space_prefix",
				exp_find_type(json_object_get(root, "normalizer"), "normalizers", "Prepend"));
		else if (put_merges(g, model) < 0)
			rc = dt_err_set(err, -EINVAL, "the tokenizer has a merge that is not a pair");
	}
	free(v.t);
	free(v.pad);
	return rc;
}

int exp_gguf_tokenizer(struct exporter *e, struct gguf_out *g, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	json_t *root = NULL;
	bool named = false; /* the tokens around a text are written already */
	const char *text;
	size_t n;
	int rc = 0;

	text = dt_source_tokenizer(e->s, &n);
	if (text && *text == '{') {
		rc = dt_json_parse(text, n, "tokenizer", &root, err);
		named = c->encoder ||
			(rc == 0 && !strcmp(exp_json_type(json_object_get(root, "model")), "WordPiece"));
		if (rc == 0)
			rc = put_all(e, root, g, err);
		json_decref(root);
	}
	if (rc < 0)
		return rc;
	if (c->bos >= 0 && !named)
		gguf_out_u32(g, "tokenizer.ggml.bos_token_id", c->bos);
	if (c->eos >= 0 && !(named && c->encoder))
		gguf_out_u32(g, "tokenizer.ggml.eos_token_id", c->eos);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
