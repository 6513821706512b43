/*
 * Converts vocabularies of GGUF and llama2.c to tokenizer.json: byte-level BPE with its merges, or
 * SentencePiece BPE, whose merges follow from the scores; others in vocab_bert.c and vocab_ug.c, or a note.
 */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS (1 << 24)
#define SPACE	   "\xe2\x96\x81" /* SentencePiece's blank */

static json_t *root_json(const struct src_vocab *v, json_t *model)
{
	return json_pack("{s:s, s:n, s:n, s:o, s:n, s:n, s:o, s:n, s:o}", "version", "1.0", "truncation",
			 "padding", "added_tokens", src_added_json(v), "normalizer", "pre_tokenizer",
			 "post_processor", src_around_json(v), "decoder", "model", model);
}

/* ---- SentencePiece ---- */

struct merge {
	double score;
	int left, right; /* characters */
	int order;
	char *text; /* "left right"; pieces have no blank */
};

static int better_first(const void *a, const void *b)
{
	const struct merge *x = a, *y = b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	if (x->left != y->left)
		return x->left > y->left ? -1 : 1;
	if (x->right != y->right)
		return x->right > y->right ? -1 : 1;
	return x->order - y->order;
}

static int characters(const char *s, size_t n)
{
	int k = 0;

	for (size_t i = 0; i < n; i++)
		k += ((unsigned char)s[i] & 0xc0) != 0x80;
	return k;
}

static bool is_piece(const struct src_vocab *v, const json_t *vocab, const char *s)
{
	const json_t *id = json_object_get(vocab, s);

	return id && v->t[json_integer_value(id)].type == SRC_TOKEN_NORMAL;
}

/* All ways to make a piece from two others, best scores first. Frees m's texts on failure. */
static json_t *merges_json(const struct src_vocab *v, const json_t *vocab)
{
	struct merge *m = NULL;
	json_t *a = json_array();
	int n = 0, cap = 0;
	bool good = true;

	for (int i = 0; i < v->n && good; i++) {
		const struct src_token *t = &v->t[i];

		for (size_t k = 1; t->type == SRC_TOKEN_NORMAL && k < t->n && good; k++) {
			char *text;

			if (((unsigned char)t->s[k] & 0xc0) == 0x80)
				continue;
			if (n == cap) {
				void *grown = realloc(m, (size_t)(cap = 2 * cap + 1024) * sizeof(*m));

				good = grown;
				m = good ? grown : m;
			}
			text = good ? malloc(t->n + 2) : NULL;
			good = text;
			if (!good)
				break;
			memcpy(text, t->s, k);
			text[k] = '\0';
			memcpy(text + k + 1, t->s + k, t->n - k);
			text[t->n + 1] = '\0';
			if (!is_piece(v, vocab, text) || !is_piece(v, vocab, text + k + 1)) {
				free(text);
				continue;
			}
			text[k] = ' ';
			m[n] = (struct merge){t->score, characters(t->s, k), characters(t->s + k, t->n - k),
					      n, text};
			n++;
		}
	}
	if (n)
		qsort(m, (size_t)n, sizeof(*m), better_first);
	for (int i = 0; i < n; i++) {
		json_array_append_new(a, json_string(m[i].text));
		free(m[i].text);
	}
	free(m);
	if (!good || json_array_size(a) != (size_t)n) {
		json_decref(a);
		return NULL;
	}
	return a;
}

static json_t *replace_json(const char *from, const char *to)
{
	return json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", from, "content", to);
}

int src_vocab_sentencepiece(struct dt_source *s, const struct src_vocab *v, struct dt_err *err)
{
	json_t *vocab = src_vocab_json(v), *merges, *root, *norm, *dec;
	const char *unk = NULL;
	char unk_text[64];

	if (!vocab)
		return src_vocab_note(s, "a token is not UTF-8 or is duplicated", NULL, 0);
	merges = merges_json(v, vocab);
	for (int i = 0; i < v->n && !unk; i++)
		if (v->t[i].type == SRC_TOKEN_UNKNOWN && v->t[i].n < sizeof(unk_text)) {
			snprintf(unk_text, sizeof(unk_text), "%.*s", (int)v->t[i].n, v->t[i].s);
			unk = unk_text;
		}
	root = root_json(v, json_pack("{s:s, s:n, s:o?, s:n, s:n, s:b, s:b, s:o, s:o}", "type", "BPE",
				      "dropout", "unk_token", unk ? json_string(unk) : NULL,
				      "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 1,
				      "byte_fallback", 1, "vocab", vocab, "merges", merges));
	norm = json_array();
	if (v->add_space)
		json_array_append_new(norm, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", SPACE));
	json_array_append_new(norm, replace_json(" ", SPACE));
	dec = json_pack("[o, {s:s}, {s:s}]", replace_json(SPACE, " "), "type", "ByteFallback", "type",
			"Fuse");
	if (v->add_space)
		json_array_append_new(dec, json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ",
						     "start", 1, "stop", 0));
	json_object_set_new(root, "normalizer",
			    json_pack("{s:s, s:o}", "type", "Sequence", "normalizers", norm));
	json_object_set_new(root, "decoder", json_pack("{s:s, s:o}", "type", "Sequence", "decoders", dec));
	return src_vocab_finish(s, root, err);
}

/* ---- byte-level BPE ---- */

static int byte_bpe(struct dt_source *s, const struct dt_gguf *g, struct src_vocab *v, struct dt_err *err)
{
	const struct dt_gguf_kv *merges = dt_gguf_find(g, "tokenizer.ggml.merges");
	json_t *vocab, *list = json_array(), *root;
	const char *pre_name = "gpt-2", *text;
	const struct src_pre *pre;
	const unsigned char *at;
	size_t n = 5;

	dt_gguf_str(g, "tokenizer.ggml.pre", false, &pre_name, &n, NULL);
	pre = src_pre_find(pre_name, n);
	if (!pre || !merges || !merges->array || merges->type != DT_GGUF_STRING) {
		json_decref(list);
		return src_vocab_note(s, pre ? "it has no merges" : "its pre-tokenizer is not supported:",
				      pre ? NULL : pre_name, n);
	}
	at = merges->data;
	for (uint64_t i = 0; i < merges->n; i++) {
		dt_gguf_next_string(&at, &text, &n);
		json_array_append_new(list, json_stringn(text, n));
	}
	vocab = src_vocab_json(v);
	if (!vocab || json_array_size(list) != merges->n) {
		json_decref(vocab);
		json_decref(list);
		return src_vocab_note(s, "a token is not UTF-8 or is duplicated", NULL, 0);
	}
	if (!dt_gguf_find(g, "tokenizer.ggml.add_bos_token"))
		v->add_bos = pre->add_bos;
	root = root_json(v, json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
				      "dropout", "unk_token", "continuing_subword_prefix",
				      "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
				      "ignore_merges", pre->ignore_merges, "vocab", vocab, "merges", list));
	if (root)
		src_pre_put(pre, root);
	return src_vocab_finish(s, root, err);
}

/* ---- readers ---- */

static int read_tokens(const struct dt_gguf *g, struct src_vocab *v, struct dt_err *err)
{
	const struct dt_gguf_kv *tokens = dt_gguf_find(g, "tokenizer.ggml.tokens");
	const struct dt_gguf_kv *types = dt_gguf_find(g, "tokenizer.ggml.token_type");
	const struct dt_gguf_kv *scores = dt_gguf_find(g, "tokenizer.ggml.scores");
	const unsigned char *at;

	if (!tokens->array || tokens->type != DT_GGUF_STRING || tokens->n > MAX_TOKENS ||
	    (types && (types->n != tokens->n || types->type >= DT_GGUF_F32)) ||
	    (scores && (scores->n != tokens->n || scores->type != DT_GGUF_F32)))
		return dt_err_set(err, -EBADMSG, "its vocabulary is damaged");
	v->t = calloc((size_t)tokens->n + 1, sizeof(*v->t));
	if (!v->t)
		return dt_err_sys(err, -ENOMEM, "cannot read its vocabulary");
	v->n = (int)tokens->n;
	at = tokens->data;
	for (int i = 0; i < v->n; i++) {
		dt_gguf_next_string(&at, &v->t[i].s, &v->t[i].n);
		v->t[i].type = types ? (int)dt_gguf_int_at(types, (uint64_t)i) : SRC_TOKEN_NORMAL;
		v->t[i].score = scores ? dt_gguf_real_at(scores, (uint64_t)i) : 0;
	}
	return 0;
}

/* Splits as gpt-2; what llama.cpp adds around texts is said by keys. */
static bool is_roberta(const struct dt_gguf *g)
{
	static const char name[] = "roberta-bpe";
	const char *pre;
	size_t n;

	return dt_gguf_str(g, "tokenizer.ggml.pre", false, &pre, &n, NULL) == 1 && n == sizeof(name) - 1 &&
	       !memcmp(pre, name, n);
}

int src_gguf_tokenizer(struct dt_source *s, const struct dt_gguf *g, struct dt_err *err)
{
	struct src_vocab v = {.bos = -1, .eos = -1};
	const char *model;
	size_t n;
	int rc = dt_gguf_str(g, "tokenizer.ggml.model", false, &model, &n, err);
	bool spm = rc == 1 && n == 5 && !memcmp(model, "llama", 5);
	bool bert = rc == 1 && n == 4 && !memcmp(model, "bert", 4);
	bool unigram = rc == 1 && n == 2 && !memcmp(model, "t5", 2);

	if (rc <= 0 || !dt_gguf_find(g, "tokenizer.ggml.tokens"))
		return rc < 0 ? rc : 0;
	if (!spm && !bert && !unigram && (n != 4 || memcmp(model, "gpt2", 4)))
		return src_vocab_note(s, "its kind is not supported:", model, n);
	v.add_bos = spm;
	v.add_space = spm || unigram;
	v.add_eos = unigram;
	v.add_sep = is_roberta(g);
	if ((rc = dt_gguf_int(g, "tokenizer.ggml.bos_token_id", false, 0, MAX_TOKENS, &v.bos, err)) < 0 ||
	    (rc = dt_gguf_int(g, "tokenizer.ggml.eos_token_id", false, 0, MAX_TOKENS, &v.eos, err)) < 0 ||
	    (rc = dt_gguf_bool(g, "tokenizer.ggml.add_bos_token", &v.add_bos, err)) < 0 ||
	    (rc = dt_gguf_bool(g, "tokenizer.ggml.add_space_prefix", &v.add_space, err)) < 0 ||
	    ((unigram || v.add_sep) &&
	     ((rc = dt_gguf_bool(g, "tokenizer.ggml.add_eos_token", &v.add_eos, err)) < 0 ||
	      (rc = dt_gguf_bool(g, "tokenizer.ggml.add_sep_token", &v.add_sep, err)) < 0)) ||
	    (rc = read_tokens(g, &v, err)) < 0)
		dt_err_prefix(err, "'%s'", s->path);
	else if ((spm || unigram) && !dt_gguf_find(g, "tokenizer.ggml.scores"))
		rc = src_vocab_note(s, "it has no scores", NULL, 0);
	else
		rc = spm       ? src_vocab_sentencepiece(s, &v, err)
		     : bert    ? src_vocab_bert(s, g, &v, err)
		     : unigram ? src_vocab_unigram(s, g, &v, err)
			       : byte_bpe(s, g, &v, err);
	if (rc == 0 && v.bos >= 0 && v.bos < v.n)
		rc = src_name(s, DT_NAMED_BOS, v.t[v.bos].s, v.t[v.bos].n, err);
	if (rc == 0 && v.eos >= 0 && v.eos < v.n)
		rc = src_name(s, DT_NAMED_EOS, v.t[v.eos].s, v.t[v.eos].n, err);
	free(v.t);
	return rc;
}

/*
 * llama2.c: ids 0, 1 and 2 are unknown, begin and end; then 256 single bytes; then pieces by score, with
 * blanks unescaped. Begin and end are on lines of their own.
 */
int src_llama2c_tokenizer(struct dt_source *s, const char *path, struct dt_err *err)
{
	static const char *const special[] = {"<unk>", "<s>", "</s>"};
	struct src_vocab v = {.bos = 1, .add_bos = true, .add_space = true};
	char *text, *store = NULL, *out = NULL;
	size_t n, at = 4;
	int rc = dt_read_file(path, SRC_TEXT_MAX, &text, &n, err);

	if (rc < 0)
		return rc;
	v.t = calloc(n / 8 + 1, sizeof(*v.t));
	store = out = malloc(3 * n + 64);
	if (!v.t || !store)
		rc = dt_err_sys(err, -ENOMEM, "cannot read '%s'", path);
	while (rc == 0 && at < n) {
		struct src_token *t = &v.t[v.n];
		int32_t len = -1;
		float score;

		if (n - at >= 8) {
			memcpy(&score, text + at, 4);
			memcpy(&len, text + at + 4, 4);
			at += 8;
		}
		if (len < 0 || (size_t)len > n - at) {
			rc = dt_err_set(err, -EBADMSG, "'%s' is not a tokenizer of llama2.c, or is truncated",
					path);
			break;
		}
		*t = (struct src_token){.score = (double)score, .s = out, .type = SRC_TOKEN_NORMAL};
		for (int32_t i = 0; i < len; i++)
			if (text[at + (size_t)i] == ' ')
				out = stpcpy(out, SPACE);
			else
				*out++ = text[at + (size_t)i];
		t->n = (size_t)(out - t->s);
		if (v.n < 3) {
			t->type = v.n ? SRC_TOKEN_CONTROL : SRC_TOKEN_UNKNOWN;
			t->s = special[v.n];
			t->n = strlen(t->s);
		} else if (v.n < 259) {
			t->type = SRC_TOKEN_BYTE;
		}
		at += (size_t)len;
		v.n++;
	}
	if (rc == 0 && v.n < 259)
		rc = dt_err_set(err, -EBADMSG, "'%s' is not a tokenizer of llama2.c", path);
	if (rc == 0)
		rc = src_vocab_sentencepiece(s, &v, err);
	if (rc == 0 && !s->tokenizer)
		rc = dt_err_set(err, -EBADMSG, "'%s': a token is not UTF-8 or is duplicated", path);
	free(v.t);
	free(store);
	free(text);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
