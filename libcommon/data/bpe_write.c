#include "data/tok_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Encodes bytes in the byte-level alphabet, at most two bytes of UTF-8 each. Returns the length. */
static size_t byte_encode(const char *s, size_t n, char *out)
{
	size_t len = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t c = dt_byte_char((uint8_t)s[i]);

		if (c < 0x80) {
			out[len++] = (char)c;
		} else {
			out[len++] = (char)(0xc0 | c >> 6);
			out[len++] = (char)(0x80 | (c & 0x3f));
		}
	}
	out[len] = '\0';
	return len;
}

static char *token_text(const struct dt_bytemap *m, uint32_t i)
{
	size_t n;
	const char *s = dt_bytemap_key(m, i, &n);
	char *out = malloc(2 * n + 1);

	if (out)
		byte_encode(s, n, out);
	return out;
}

static json_t *write_vocab(const struct dt_tok_write *w)
{
	json_t *vocab = json_object();

	for (uint32_t i = 0; i < w->tokens->n; i++) {
		char *s = token_text(w->tokens, i);
		int rc = s ? json_object_set_new(vocab, s, json_integer(i)) : -1;

		free(s);
		if (rc < 0) {
			json_decref(vocab);
			return NULL;
		}
	}
	return vocab;
}

static json_t *write_merges(const struct dt_tok_write *w)
{
	json_t *list = json_array();

	for (size_t i = 0; i < w->merges; i++) {
		char *a = token_text(w->tokens, (uint32_t)w->merge[i][0]);
		char *b = token_text(w->tokens, (uint32_t)w->merge[i][1]);
		int rc = a && b ? json_array_append_new(list, json_sprintf("%s %s", a, b)) : -1;

		free(a);
		free(b);
		if (rc < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *write_added(const struct dt_tok_write *w)
{
	json_t *list = json_array();
	int id = (int)w->tokens->n;

	for (int i = 0; w->special && w->special[i]; i++)
		json_array_append_new(list, json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id++,
						      "content", w->special[i], "single_word", 0, "lstrip", 0,
						      "rstrip", 0, "normalized", 0, "special", 1));
	return list;
}

/* A special token has a text of its own, which no other token has: ids are looked up by it. */
static int check_special(const struct dt_tok_write *w, const json_t *vocab, struct dt_err *err)
{
	for (int i = 0; w->special && w->special[i]; i++) {
		const char *text = w->special[i];

		if (!*text)
			return dt_err_set(err, -EINVAL, "a special token has no text");
		if (json_object_get(vocab, text))
			return dt_err_set(
				err, -EINVAL,
				"'%s' cannot be a special token: it is how another token is written", text);
		for (int k = 0; k < i; k++)
			if (!strcmp(w->special[k], text))
				return dt_err_set(err, -EINVAL, "the special token '%s' is given twice",
						  text);
	}
	return 0;
}

static json_t *byte_level(bool use_regex)
{
	return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets",
			 1, "use_regex", use_regex);
}

static json_t *write_pre(const struct dt_tok_write *w)
{
	if (!w->pattern)
		return byte_level(true);
	return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence", "pretokenizers",
			 "type", "Split", "pattern", "Regex", w->pattern, "behavior", "Isolated", "invert", 0,
			 byte_level(false));
}

int dt_tok_write_json(const struct dt_tok_write *w, char **ret, size_t *ret_n, struct dt_err *err)
{
	json_t *vocab = write_vocab(w),
	       *root = json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:n, s:o, s:{s:s, s:n, s:n, s:s, s:s, s:b, "
				 "s:b, s:b, s:o, s:o}}",
				 "version", "1.0", "truncation", "padding", "added_tokens", write_added(w),
				 "normalizer", "pre_tokenizer", write_pre(w), "post_processor", "decoder",
				 byte_level(true), "model", "type", "BPE", "dropout", "unk_token",
				 "continuing_subword_prefix", "", "end_of_word_suffix", "", "fuse_unk", 0,
				 "byte_fallback", 0, "ignore_merges", 0, "vocab", json_incref(vocab),
				 "merges", write_merges(w));
	int rc = root ? check_special(w, vocab, err) : 0;
	char *text = root && rc == 0 ? json_dumps(root, JSON_INDENT(1)) : NULL;

	json_decref(vocab);
	json_decref(root);
	if (rc < 0)
		return rc;
	if (!text)
		return dt_err_sys(err, -ENOMEM, "cannot write the tokenizer");
	*ret = text;
	*ret_n = strlen(text);
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
