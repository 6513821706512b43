/*
 * Tokenizers of encoders as GGUF's keys: WordPiece by its tokens, Unigram by its scores and its character
 * map, and the special tokens of all.
 */
#include "ckpt/export_vocab.h"

#include "base/base64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- special tokens ---- */

/* The tokens around a text; of a pair, whether another one stands between the texts besides `behind`. */
struct around {
	const char *before, *behind;
	bool twice;
};

/* A post-processor that names its tokens: {"cls": ["[CLS]", 101], "sep": ["[SEP]", 102]} */
static bool read_named(const json_t *o, bool twice, struct around *ret)
{
	const char *cls = json_string_value(json_array_get(json_object_get(o, "cls"), 0));
	const char *sep = json_string_value(json_array_get(json_object_get(o, "sep"), 0));

	if (!o)
		return false;
	*ret = (struct around){cls, sep, twice};
	return true;
}

static struct around around_of(const json_t *post)
{
	const json_t *o = exp_find_type(post, "processors", "TemplateProcessing"), *part;
	struct around r = {NULL, NULL, false};
	int texts = 0, between = 0;
	size_t i;

	if (read_named(exp_find_type(post, "processors", "BertProcessing"), false, &r) ||
	    read_named(exp_find_type(post, "processors", "RobertaProcessing"), true, &r))
		return r;
	json_array_foreach(json_object_get(o, "single"), i, part)
	{
		const char *name =
			json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));

		texts += json_object_get(part, "Sequence") != NULL;
		if (name && texts)
			r.behind = name;
		else if (name)
			r.before = name;
	}
	texts = 0;
	json_array_foreach(json_object_get(o, "pair"), i, part)
	{
		texts += json_object_get(part, "Sequence") != NULL;
		between += texts == 1 && json_object_get(part, "SpecialToken");
	}
	r.twice = between > 1;
	return r;
}

/* The id of a token by its text, in added_tokens or the model's vocabulary, as a key, if there is one. */
static void put_id(const json_t *root, struct gguf_out *g, const char *key, const char *name)
{
	const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *o;
	const json_t *id = name ? json_object_get(vocab, name) : NULL;
	size_t i;

	json_array_foreach(json_object_get(root, "added_tokens"), i, o)
	{
		const char *s = json_string_value(json_object_get(o, "content"));

		if (name && s && !strcmp(s, name))
			id = json_object_get(o, "id");
	}
	if (json_is_integer(id))
		gguf_out_u32(g, key, json_integer_value(id));
}

/* BERT's names of special tokens, or RoBERTa's. */
static void put_ids(const json_t *root, struct gguf_out *g)
{
	const json_t *model = json_object_get(root, "model");
	const bool bert = !strcmp(exp_json_type(model), "WordPiece");
	const struct around a = around_of(json_object_get(root, "post_processor"));
	const char *before = a.before || !bert ? a.before : "[CLS]",
		   *behind = a.behind || !bert ? a.behind : "[SEP]";
	const char *unk = json_string_value(json_object_get(model, "unk_token"));

	put_id(root, g, "tokenizer.ggml.bos_token_id", before);
	put_id(root, g, "tokenizer.ggml.cls_token_id", before);
	put_id(root, g, "tokenizer.ggml.eos_token_id", bert ? NULL : behind);
	put_id(root, g, "tokenizer.ggml.seperator_token_id", behind);
	put_id(root, g, "tokenizer.ggml.unknown_token_id", unk ? unk : bert ? "[UNK]" : "<unk>");
	put_id(root, g, "tokenizer.ggml.padding_token_id", bert ? "[PAD]" : "<pad>");
	put_id(root, g, "tokenizer.ggml.mask_token_id", bert ? "[MASK]" : "<mask>");
}

void exp_around_put(const json_t *root, struct gguf_out *g)
{
	const struct around a = around_of(json_object_get(root, "post_processor"));

	put_ids(root, g);
	gguf_out_bool(g, "tokenizer.ggml.add_bos_token", a.before);
	gguf_out_bool(g, "tokenizer.ggml.add_eos_token", a.behind);
	gguf_out_bool(g, "tokenizer.ggml.add_sep_token", a.twice);
}

/* ---- WordPiece ---- */

/* Spells words and what continues them as llama.cpp does; *ret_store holds the texts. */
static int respell(struct exp_vocab *v, const char *prefix, char **ret_store, struct dt_err *err)
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
int exp_vocab_bert(const json_t *root, struct exp_vocab *v, struct gguf_out *g, struct dt_err *err)
{
	const json_t *model = json_object_get(root, "model"), *strip;
	const json_t *norm =
		exp_find_type(json_object_get(root, "normalizer"), "normalizers", "BertNormalizer");
	const char *prefix = json_string_value(json_object_get(model, "continuing_subword_prefix"));
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
	rc = exp_vocab_read(root, false, v, err);
	if (rc == 0)
		rc = respell(v, prefix ? prefix : "##", &store, err);
	if (rc == 0) {
		gguf_out_str(g, "tokenizer.ggml.model", "bert", 4);
		gguf_out_str(g, "tokenizer.ggml.pre", "default", 7);
		exp_vocab_put(v, g);
		strip = json_object_get(norm, "strip_accents");
		gguf_out_bool(g, "tokenizer.ggml.normalizer.lowercase", lower);
		gguf_out_bool(g, "tokenizer.ggml.normalizer.strip_accents",
			      json_is_boolean(strip) ? json_is_true(strip) : lower);
		put_ids(root, g);
	}
	free(store);
	free(v->t);
	free(v->pad);
	return rc;
}

/* ---- Unigram ---- */

/* What the normalizer has: a character map (NULL: none), and whether runs of blanks become one. */
static int read_steps(const json_t *o, const char **ret_map, bool *ret_merges, struct dt_err *err)
{
	const json_t *list = json_object_get(o, "normalizers"), *step;
	const char *type = exp_json_type(o);
	size_t i;

	json_array_foreach(list, i, step)
	{
		int rc = read_steps(step, ret_map, ret_merges, err);

		if (rc < 0)
			return rc;
	}
	if (!strcmp(type, "Precompiled"))
		*ret_map = json_string_value(json_object_get(o, "precompiled_charsmap"));
	else if (!strcmp(type, "Replace") || !strcmp(type, "Strip"))
		*ret_merges = true;
	else if (*type && strcmp(type, "Sequence"))
		return dt_err_set(err, -ENOTSUP, "GGUF has no form of the normalizer %.40s with Unigram",
				  type);
	return 0;
}

static int put_map(struct gguf_out *g, const char *base64, struct dt_err *err)
{
	const size_t n = strlen(base64);
	uint8_t *map = malloc(n + 4);
	const int64_t bytes = map ? dt_base64_decode(base64, n, map) : -1;

	if (bytes >= 0) {
		gguf_out_array(g, "tokenizer.ggml.precompiled_charsmap", DT_GGUF_U8, (uint64_t)bytes);
		fwrite(map, 1, (size_t)bytes, g->f);
	}
	free(map);
	return bytes >= 0 ? 0 : dt_err_set(err, -EINVAL, "the character map of the tokenizer is damaged");
}

/*
 * As llama.cpp's UGM: blanks become U+2581, one is put in front, and those of a run, and at the ends, go
 * where WhitespaceSplit or a normalizer takes them away.
 */
int exp_vocab_unigram(const json_t *root, struct exp_vocab *v, struct gguf_out *g, struct dt_err *err)
{
	const json_t *pre = json_object_get(root, "pre_tokenizer");
	const json_t *meta = exp_find_type(pre, "pretokenizers", "Metaspace");
	const char *scheme = json_string_value(json_object_get(meta, "prepend_scheme")), *map = NULL;
	bool merges = exp_find_type(pre, "pretokenizers", "WhitespaceSplit");
	int rc = read_steps(json_object_get(root, "normalizer"), &map, &merges, err);

	if (rc == 0)
		rc = exp_vocab_read(
			root, json_is_true(json_object_get(json_object_get(root, "model"), "byte_fallback")),
			v, err);
	if (rc == 0) {
		gguf_out_str(g, "tokenizer.ggml.model", "t5", 2);
		gguf_out_str(g, "tokenizer.ggml.pre", "default", 7);
		exp_vocab_put(v, g);
		exp_vocab_put_scores(v, g, 0);
		gguf_out_bool(g, "tokenizer.ggml.add_space_prefix",
			      scheme ? strcmp(scheme, "never") != 0
				     : !json_is_false(json_object_get(meta, "add_prefix_space")));
		gguf_out_bool(g, "tokenizer.ggml.remove_extra_whitespaces", merges);
		exp_around_put(root, g);
		if (map)
			rc = put_map(g, map, err);
	}
	free(v->t);
	free(v->pad);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
