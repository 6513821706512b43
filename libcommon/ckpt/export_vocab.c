/*
 * A tokenizer.json as GGUF's keys: byte-level BPE by its merges, SentencePiece BPE by scores of equal order,
 * WordPiece by its tokens.
 */
#include "ckpt/export_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct vocab {
	struct src_token *t;
	int64_t n;
	char (*pad)[24]; /* names for ids without a token */
};

static const char *type_of(const json_t *o)
{
	const char *s = json_string_value(json_object_get(o, "type"));

	return s ? s : "";
}

static bool is_byte_name(const char *s)
{
	return strlen(s) == 6 && !strncmp(s, "<0x", 3) && s[5] == '>';
}

static int put_token(struct vocab *v, const char *s, const json_t *id, int type)
{
	json_int_t i = json_is_integer(id) ? json_integer_value(id) : -1;

	if (!s || i < 0 || i >= v->n)
		return -EINVAL;
	v->t[i] = (struct src_token){.s = s, .n = strlen(s), .type = type, .score = v->t[i].score};
	return 0;
}

/* Where a normalizer or a list of them has a member of this type; NULL: nowhere. */
static const json_t *find_type(const json_t *o, const char *key, const char *type)
{
	const json_t *p, *found, *list = json_object_get(o, key);
	size_t i;

	if (!strcmp(type_of(o), type))
		return o;
	json_array_foreach(list, i, p) if ((found = find_type(p, key, type))) return found;
	return NULL;
}

/* Reads all ids of the model's vocabulary; ids that the tokenizer lacks are marked unused. */
static int read_vocab(const json_t *root, bool spm, struct vocab *v, struct dt_err *err)
{
	const json_t *model = json_object_get(root, "model"), *o;
	const char *key, *unk = json_string_value(json_object_get(model, "unk_token"));
	json_t *id;
	size_t i;

	v->t = calloc((size_t)v->n, sizeof(*v->t));
	v->pad = calloc((size_t)v->n, sizeof(*v->pad));
	if (!v->t || !v->pad)
		return dt_err_sys(err, -ENOMEM, "cannot write the vocabulary");
	for (int64_t k = 0; k < v->n; k++) {
		snprintf(v->pad[k], sizeof(v->pad[k]), "[PAD%lld]", (long long)k);
		v->t[k] =
			(struct src_token){.s = v->pad[k], .n = strlen(v->pad[k]), .type = SRC_TOKEN_UNUSED};
	}
	json_object_foreach(json_object_get(model, "vocab"), key, id)
	{
		int type = spm && is_byte_name(key)   ? SRC_TOKEN_BYTE
			   : unk && !strcmp(unk, key) ? SRC_TOKEN_UNKNOWN
						      : SRC_TOKEN_NORMAL;

		if (put_token(v, key, id, type) < 0)
			return dt_err_set(err, -EINVAL,
					  "the id of '%.60s' in the tokenizer is not valid in the model",
					  key);
	}
	json_array_foreach(json_object_get(root, "added_tokens"), i, o)
	{
		const char *s = json_string_value(json_object_get(o, "content"));
		int type = unk && s && !strcmp(unk, s)			 ? SRC_TOKEN_UNKNOWN
			   : json_is_true(json_object_get(o, "special")) ? SRC_TOKEN_CONTROL
									 : SRC_TOKEN_USER;

		if (put_token(v, s, json_object_get(o, "id"), type) < 0)
			return dt_err_set(
				err, -EINVAL,
				"the id of an added token in the tokenizer is not valid in the model");
	}
	return 0;
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
static void set_scores(const json_t *model, struct vocab *v)
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

static void put_vocab(struct gguf_out *g, const struct vocab *v, bool scores)
{
	gguf_out_array(g, "tokenizer.ggml.tokens", DT_GGUF_STRING, (uint64_t)v->n);
	for (int64_t i = 0; i < v->n; i++)
		gguf_out_text(g, v->t[i].s, v->t[i].n);
	gguf_out_array(g, "tokenizer.ggml.token_type", DT_GGUF_I32, (uint64_t)v->n);
	for (int64_t i = 0; i < v->n; i++) {
		int32_t type = v->t[i].type;

		fwrite(&type, 4, 1, g->f);
	}
	if (!scores)
		return;
	gguf_out_array(g, "tokenizer.ggml.scores", DT_GGUF_F32, (uint64_t)v->n);
	for (int64_t i = 0; i < v->n; i++) {
		float x =
			v->t[i].type == SRC_TOKEN_NORMAL && v->t[i].score == 0 ? -1e6f : (float)v->t[i].score;

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
	return !strcmp(type_of(post), "TemplateProcessing") &&
	       json_object_get(json_array_get(json_object_get(post, "single"), 0), "SpecialToken");
}

/* The names of the tokens before and behind a text; those that a template does not have stay. */
static void template_names(const json_t *post, const char **ret)
{
	const json_t *o = find_type(post, "processors", "BertProcessing"), *part;
	const char *cls = json_string_value(json_array_get(json_object_get(o, "cls"), 0));
	const char *sep = json_string_value(json_array_get(json_object_get(o, "sep"), 0));
	bool behind = false;
	size_t i;

	ret[0] = cls ? cls : ret[0];
	ret[1] = sep ? sep : ret[1];
	o = find_type(post, "processors", "TemplateProcessing");
	json_array_foreach(json_object_get(o, "single"), i, part)
	{
		const char *name =
			json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));

		behind |= json_object_get(part, "Sequence") != NULL;
		ret[behind] = name ? name : ret[behind];
	}
}

/* The id of a token of a WordPiece model's template or vocabulary, as a key. */
static void put_named(struct gguf_out *g, const json_t *vocab, const char *key, const char *name)
{
	const json_t *id = json_object_get(vocab, name);

	if (id)
		gguf_out_u32(g, key, json_integer_value(id));
}

/* Spells words and what continues them as llama.cpp does; *ret_store holds the texts. */
static int respell(struct vocab *v, const char *prefix, char **ret_store, struct dt_err *err)
{
	size_t total = 1, k = strlen(prefix);
	json_t *seen = json_object();
	char *to;
	int rc = 0;

	for (int64_t i = 0; i < v->n; i++)
		total += v->t[i].n + 4;
	*ret_store = to = malloc(total);
	if (!to || !seen)
		rc = dt_err_sys(err, -ENOMEM, "cannot write the vocabulary");
	for (int64_t i = 0; i < v->n && rc == 0; i++) {
		struct src_token *t = &v->t[i];
		bool inside = !strncmp(t->s, prefix, k);

		if (t->type == SRC_TOKEN_NORMAL) {
			const char *s = t->s;

			t->s = to;
			to = stpcpy(stpcpy(to, inside ? "" : "\xe2\x96\x81"), s + (inside ? k : 0));
			t->n = (size_t)(to++ - t->s);
		}
		if (json_object_get(seen, t->s))
			rc = dt_err_set(err, -ENOTSUP, "two tokens of the tokenizer are both '%.60s' in GGUF",
					t->s);
		else
			json_object_set_new(seen, t->s, json_true());
	}
	json_decref(seen);
	return rc;
}

/*
 * WordPiece. GGUF says of the normalizer only whether it makes lower case and strips accents: llama.cpp does
 * the rest of BERT's.
 */
static int put_bert(const json_t *root, struct vocab *v, struct gguf_out *g, struct dt_err *err)
{
	const json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab"),
		     *strip;
	const json_t *norm = find_type(json_object_get(root, "normalizer"), "normalizers", "BertNormalizer");
	const char *prefix = json_string_value(json_object_get(model, "continuing_subword_prefix"));
	const char *unk = json_string_value(json_object_get(model, "unk_token"));
	const char *around[2] = {"[CLS]", "[SEP]"};
	bool lower = !json_is_false(json_object_get(norm, "lowercase"));
	char *store = NULL;
	int rc;

	if (!norm || json_is_false(json_object_get(norm, "clean_text")) ||
	    json_is_false(json_object_get(norm, "handle_chinese_chars"))) {
		rc = dt_err_set(err, -ENOTSUP,
				"the normalizer of the WordPiece tokenizer has no form in GGUF");
		dt_err_hint(err, "--tokenizer none leaves it out");
		return rc;
	}
	rc = read_vocab(root, false, v, err);
	if (rc == 0)
		rc = respell(v, prefix ? prefix : "##", &store, err);
	if (rc == 0) {
		gguf_out_str(g, "tokenizer.ggml.model", "bert", 4);
		gguf_out_str(g, "tokenizer.ggml.pre", "default", 7);
		put_vocab(g, v, false);
		strip = json_object_get(norm, "strip_accents");
		gguf_out_bool(g, "tokenizer.ggml.normalizer.lowercase", lower);
		gguf_out_bool(g, "tokenizer.ggml.normalizer.strip_accents",
			      json_is_boolean(strip) ? json_is_true(strip) : lower);
		template_names(json_object_get(root, "post_processor"), around);
		put_named(g, vocab, "tokenizer.ggml.bos_token_id", around[0]);
		put_named(g, vocab, "tokenizer.ggml.cls_token_id", around[0]);
		put_named(g, vocab, "tokenizer.ggml.seperator_token_id", around[1]);
		put_named(g, vocab, "tokenizer.ggml.unknown_token_id", unk ? unk : "[UNK]");
		put_named(g, vocab, "tokenizer.ggml.padding_token_id", "[PAD]");
		put_named(g, vocab, "tokenizer.ggml.mask_token_id", "[MASK]");
	}
	free(store);
	free(v->t);
	free(v->pad);
	return rc;
}

static int put_all(struct exporter *e, const json_t *root, struct gguf_out *g, struct dt_err *err)
{
	const struct dt_config *c = dt_source_config(e->s);
	const json_t *model = json_object_get(root, "model");
	bool spm = json_is_true(json_object_get(model, "byte_fallback"));
	const struct src_pre *pre = spm ? NULL : src_pre_of(root);
	struct vocab v = {.n = c->vocab};
	int rc;

	if (!strcmp(type_of(model), "WordPiece"))
		return put_bert(root, &v, g, err);
	if (strcmp(type_of(model), "BPE") || (!spm && !pre)) {
		rc = dt_err_set(err, -ENOTSUP, "the pre-tokenizer of the tokenizer has no name in GGUF");
		dt_err_hint(err, "--tokenizer none leaves it out");
		return rc;
	}
	rc = read_vocab(root, spm, &v, err);
	if (rc == 0) {
		const char *name = spm ? "llama" : "gpt2";

		gguf_out_str(g, "tokenizer.ggml.model", name, strlen(name));
		gguf_out_str(g, "tokenizer.ggml.pre", spm ? "default" : pre->name,
			     strlen(spm ? "default" : pre->name));
		if (spm)
			set_scores(model, &v);
		put_vocab(g, &v, spm);
		gguf_out_bool(g, "tokenizer.ggml.add_bos_token",
			      adds_bos(json_object_get(root, "post_processor")));
		if (spm)
			gguf_out_bool(
				g, "tokenizer.ggml.add_space_prefix",
				find_type(json_object_get(root, "normalizer"), "normalizers", "Prepend"));
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
	bool bert = false; /* its token before a text is written already */
	const char *text;
	size_t n;
	int rc = 0;

	text = dt_source_tokenizer(e->s, &n);
	if (text && *text == '{') {
		rc = dt_json_parse(text, n, "tokenizer", &root, err);
		bert = rc == 0 && !strcmp(type_of(json_object_get(root, "model")), "WordPiece");
		if (rc == 0)
			rc = put_all(e, root, g, err);
		json_decref(root);
	}
	if (rc < 0)
		return rc;
	if (c->bos >= 0 && !bert)
		gguf_out_u32(g, "tokenizer.ggml.bos_token_id", c->bos);
	if (c->eos >= 0)
		gguf_out_u32(g, "tokenizer.ggml.eos_token_id", c->eos);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
