/*
 * WordPiece vocabularies of GGUF and of vocab.txt as tokenizer.json.
 *
 * In GGUF (model "bert") a token that begins a word starts with U+2581, one that continues a word stands
 * without a mark, and special tokens are as they are. llama.cpp normalises as BERT does, and always puts a
 * class token before a text and a separator behind it.
 */
#include "ckpt/source_internal.h"

#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SPACE	"\xe2\x96\x81"
#define SPACE_N 3

struct bert {
	const char *unk;
	int64_t cls, sep; /* ids, -1: none */
	bool chinese, lower;
	int strip; /* of accents, -1: as lower */
};

static json_t *special(const char *name)
{
	return json_pack("{s:{s:s, s:i}}", "SpecialToken", "id", name, "type_id", 0);
}

static char *name_of(const struct src_vocab *v, int64_t id)
{
	return id >= 0 && id < v->n ? strndup(v->t[id].s, v->t[id].n) : NULL;
}

/* [CLS] A [SEP]; of a pair, B and [SEP] behind that are of type 1. */
static json_t *template_json(const struct src_vocab *v, const struct bert *b)
{
	char *cls = name_of(v, b->cls), *sep = name_of(v, b->sep);
	json_t *single = json_array(), *pair, *tokens = json_object(), *o;

	if (cls)
		json_array_append_new(single, special(cls));
	json_array_append_new(single, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0));
	if (sep)
		json_array_append_new(single, special(sep));
	pair = json_copy(single);
	json_array_append_new(pair, json_pack("{s:{s:s, s:i}}", "Sequence", "id", "B", "type_id", 1));
	if (sep) {
		o = special(sep);
		json_object_set_new(json_object_get(o, "SpecialToken"), "type_id", json_integer(1));
		json_array_append_new(pair, o);
	}
	for (int i = 0; i < 2; i++) {
		const char *name = i ? sep : cls;

		if (name)
			json_object_set_new(tokens, name,
					    json_pack("{s:s, s:[I], s:[s]}", "id", name, "ids",
						      (json_int_t)(i ? b->sep : b->cls), "tokens", name));
	}
	free(cls);
	free(sep);
	return json_pack("{s:s, s:o, s:o, s:o}", "type", "TemplateProcessing", "single", single, "pair", pair,
			 "special_tokens", tokens);
}

static int put_root(struct dt_source *s, const struct src_vocab *v, const struct bert *b, json_t *added,
		    struct dt_err *err)
{
	json_t *vocab = src_vocab_json(v), *root;

	if (!vocab || !json_object_get(vocab, b->unk)) {
		const bool bad = !vocab;

		json_decref(vocab);
		json_decref(added);
		return src_vocab_note(
			s, bad ? "a token is not UTF-8 or is duplicated" : "its vocabulary does not contain",
			bad ? NULL : b->unk, strlen(b->unk));
	}
	root = json_pack("{s:s, s:n, s:n, s:o, s:{s:s, s:b, s:b, s:o, s:b}, s:{s:s}, s:o, s:{s:s, s:s, s:b}, "
			 "s:{s:s, s:s, s:s, s:i, s:o}}",
			 "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer",
			 "type", "BertNormalizer", "clean_text", 1, "handle_chinese_chars", b->chinese,
			 "strip_accents", b->strip < 0 ? json_null() : json_boolean(b->strip), "lowercase",
			 b->lower, "pre_tokenizer", "type", "BertPreTokenizer", "post_processor",
			 template_json(v, b), "decoder", "type", "WordPiece", "prefix", "##", "cleanup", 1,
			 "model", "type", "WordPiece", "unk_token", b->unk, "continuing_subword_prefix", "##",
			 "max_input_chars_per_word", 100, "vocab", vocab);
	return src_vocab_finish(s, root, err);
}

/* ---- GGUF ---- */

/* Spells the token as WordPiece does, at most two bytes longer, in to; returns the end. */
static char *respell(struct src_token *t, char *to)
{
	const char *s = t->s;
	size_t n = t->n;
	bool word = n > SPACE_N && !memcmp(s, SPACE, SPACE_N);
	bool as_is = t->type != SRC_TOKEN_NORMAL || (n > 2 && s[0] == '[' && s[n - 1] == ']');

	t->s = to;
	if (word) {
		s += SPACE_N;
		n -= SPACE_N;
	} else if (!as_is) {
		*to++ = '#';
		*to++ = '#';
	}
	memcpy(to, s, n);
	to += n;
	t->n = (size_t)(to - t->s);
	return to;
}

/* The tokens of v as WordPiece spells them, in *ret_store. */
static int respell_all(const struct src_vocab *v, struct src_vocab *ret, char **ret_store)
{
	size_t total = 1;
	char *to;

	*ret = *v;
	for (int i = 0; i < v->n; i++)
		total += v->t[i].n + 2;
	ret->t = malloc(((size_t)v->n + 1) * sizeof(*ret->t));
	*ret_store = to = malloc(total);
	if (!ret->t || !to) {
		free(ret->t);
		free(to);
		return -ENOMEM;
	}
	memcpy(ret->t, v->t, (size_t)v->n * sizeof(*v->t));
	for (int i = 0; i < v->n; i++)
		to = respell(&ret->t[i], to);
	return 0;
}

int src_vocab_bert(struct dt_source *s, const struct dt_gguf *g, struct src_vocab *v, struct dt_err *err)
{
	struct bert b = {.cls = 101, .sep = 102, .chinese = true, .lower = true};
	int64_t unk = 100, pad = 0, mask = 103;
	const struct {
		const char *key;
		int64_t *id;
	} ids[] = {
		{"tokenizer.ggml.cls_token_id", &b.cls},       {"tokenizer.ggml.bos_token_id", &b.cls},
		{"tokenizer.ggml.seperator_token_id", &b.sep}, {"tokenizer.ggml.unknown_token_id", &unk},
		{"tokenizer.ggml.padding_token_id", &pad},     {"tokenizer.ggml.mask_token_id", &mask},
	};
	struct src_vocab spelt;
	char *store, *name;
	bool strip;
	int rc = 0;

	for (size_t i = 0; i < sizeof(ids) / sizeof(*ids) && rc >= 0; i++)
		rc = dt_gguf_int(g, ids[i].key, false, 0, INT32_MAX, ids[i].id, err);
	if (rc >= 0)
		rc = dt_gguf_bool(g, "tokenizer.ggml.normalizer.lowercase", &b.lower, err);
	strip = b.lower;
	if (rc >= 0)
		rc = dt_gguf_bool(g, "tokenizer.ggml.normalizer.strip_accents", &strip, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", s->path);
	b.strip = strip;
	v->bos = b.cls;
	for (size_t i = 1; i < sizeof(ids) / sizeof(*ids); i++)
		if (*ids[i].id < v->n && v->t[*ids[i].id].type == SRC_TOKEN_NORMAL)
			v->t[*ids[i].id].type = SRC_TOKEN_CONTROL;
	if (respell_all(v, &spelt, &store) < 0)
		return dt_err_sys(err, -ENOMEM, "cannot read the vocabulary of '%s'", s->path);
	name = name_of(&spelt, unk);
	b.unk = name ? name : "[UNK]";
	rc = put_root(s, &spelt, &b, src_added_json(&spelt), err);
	free(name);
	free(store);
	free(spelt.t);
	return rc;
}

/* ---- vocab.txt: one token a line, ids in their order ---- */

/* A token of tokenizer_config.json: text, or {"content": text}. */
static const char *config_token(const json_t *config, const char *key, const char *fallback)
{
	const json_t *v = json_object_get(config, key);
	const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);

	return s ? s : fallback;
}

static bool config_bool(const json_t *config, const char *key, bool fallback)
{
	const json_t *v = json_object_get(config, key);

	return json_is_boolean(v) ? json_is_true(v) : fallback;
}

/* Why a tokenizer_config.json is not that of a BERT, NULL: it is. */
static const char *refusal(const json_t *config)
{
	static const char *const known[] = {
		"Bert",	       "DistilBert",	     "Electra",		  "MobileBert", "ConvBert",
		"SqueezeBert", "LayoutLM",	     "Retribert",	  "Lxmert",	"Funnel",
		"MPNet",       "DPRQuestionEncoder", "DPRContextEncoder", "DPRReader"};
	const char *class = config_token(config, "tokenizer_class", "BertTokenizer");

	if (!config_bool(config, "do_basic_tokenize", true))
		return "do_basic_tokenize";
	if (json_array_size(json_object_get(config, "never_split")))
		return "never_split";
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		size_t n = strlen(known[i]);

		if (!strncmp(class, known[i], n) &&
		    (!strcmp(class + n, "Tokenizer") || !strcmp(class + n, "TokenizerFast")))
			return NULL;
	}
	return class;
}

static int64_t find(const struct src_vocab *v, const char *s)
{
	for (int i = v->n - 1; i >= 0; i--)
		if (v->t[i].n == strlen(s) && !memcmp(v->t[i].s, s, v->t[i].n))
			return i;
	return -1;
}

/* Tokens that tokenizer_config.json adds, with how they are looked for; without it, the special ones. */
static json_t *added_of(const struct src_vocab *v, const json_t *config)
{
	const json_t *list = json_object_get(config, "added_tokens_decoder");
	json_t *added = json_array();

	if (!json_object_size(list)) {
		json_decref(added);
		return src_added_json(v);
	}
	for (int i = 0; i < 1 << 22 && json_array_size(added) < json_object_size(list); i++) {
		char key[16];
		json_t *o;

		snprintf(key, sizeof(key), "%d", i);
		o = json_copy(json_object_get(list, key));
		if (!o)
			continue;
		json_object_set_new(o, "id", json_integer(i));
		json_array_append_new(added, o);
	}
	return added;
}

static void read_lines(struct src_vocab *v, char *text, size_t n)
{
	for (size_t at = 0, len; at < n; at += len + 1) {
		char *end = memchr(text + at, '\n', n - at);

		len = end ? (size_t)(end - (text + at)) : n - at;
		v->t[v->n++] = (struct src_token){.s = text + at,
						  .n = len && text[at + len - 1] == '\r' ? len - 1 : len,
						  .type = SRC_TOKEN_NORMAL};
	}
}

int src_vocab_txt(struct dt_source *s, char *text, size_t n, const json_t *config, struct dt_err *err)
{
	static const char *const special[][2] = {{"pad_token", "[PAD]"},
						 {"unk_token", "[UNK]"},
						 {"cls_token", "[CLS]"},
						 {"sep_token", "[SEP]"},
						 {"mask_token", "[MASK]"}};
	const json_t *strip = json_object_get(config, "strip_accents");
	struct bert b = {.chinese = config_bool(config, "tokenize_chinese_chars", true),
			 .lower = config_bool(config, "do_lower_case", true),
			 .strip = json_is_boolean(strip) ? json_is_true(strip) : -1};
	const char *why = refusal(config);
	struct src_vocab v = {0};
	size_t lines = 1;
	int rc;

	if (why)
		return src_vocab_note(s, "with vocab.txt this is not supported:", why, strlen(why));
	for (size_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	v.t = calloc(lines, sizeof(*v.t));
	if (!v.t)
		return dt_err_sys(err, -ENOMEM, "cannot read the vocabulary of '%s'", s->path);
	read_lines(&v, text, n);
	b.unk = config_token(config, "unk_token", "[UNK]");
	b.cls = find(&v, config_token(config, "cls_token", "[CLS]"));
	b.sep = find(&v, config_token(config, "sep_token", "[SEP]"));
	for (size_t i = 0; i < sizeof(special) / sizeof(*special); i++) {
		int64_t id = find(&v, config_token(config, special[i][0], special[i][1]));

		if (id >= 0)
			v.t[id].type = SRC_TOKEN_CONTROL;
	}
	rc = put_root(s, &v, &b, added_of(&v, config), err);
	free(v.t);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
