/*
 * SentencePiece's BPE in tokenizer.json (byte_fallback): tokens have U+2581 for a blank, and <0xNN> is a
 * byte. Here tokens' bytes contain blanks instead, so that they are plain text.
 */
#include "data/tok_priv.h"

#include "base/room.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MARK   "\xe2\x96\x81"
#define MARK_N 3

static int refuse(struct dt_err *err, const char *what, const char *value)
{
	return dt_err_set(err, -ENOTSUP, "%s '%.80s' with byte_fallback is not supported", what,
			  value ? value : "null");
}

static const char *word_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* The byte of a token "<0xNN>", or -1. */
static int byte_token(const char *s)
{
	char *end;
	long v;

	if (strlen(s) != 6 || memcmp(s, "<0x", 3) || s[5] != '>')
		return -1;
	v = strtol(s + 3, &end, 16);
	return end == s + 5 ? (int)v : -1;
}

size_t dt_sp_unmark(char *s, size_t n)
{
	size_t o = 0;

	for (size_t i = 0; i < n;) {
		bool mark = n - i >= MARK_N && !memcmp(s + i, MARK, MARK_N);

		s[o++] = mark ? ' ' : s[i];
		i += mark ? MARK_N : 1;
	}
	return o;
}

static int add_char(struct dt_tokenizer *t, const char *s, size_t n, int32_t id, struct dt_err *err)
{
	int64_t at = dt_bytemap_add(&t->sp.chars, s, n);

	if (at < 0)
		return dt_err_sys(err, (int)at, "cannot read model.vocab");
	if (!DT_ROOM(t->sp.char_id, (size_t)at, t->sp.cap, 256)) /* at is the number of chars before it */
		return dt_err_sys(err, -ENOMEM, "cannot read model.vocab");
	t->sp.char_id[at] = id;
	return 0;
}

int dt_sp_add_token(struct dt_tokenizer *t, const char *key, int32_t id, struct dt_err *err)
{
	int byte = byte_token(key), rc;
	char *s = strdup(key), c = (char)byte;
	size_t n;
	uint32_t cp;

	if (!s)
		return dt_err_sys(err, -ENOMEM, "cannot read model.vocab");
	n = byte >= 0 ? 1 : dt_sp_unmark(s, strlen(s));
	rc = dt_tok_set_piece(t, id, byte >= 0 ? &c : s, n, 0, err);
	if (rc == 0 && byte >= 0)
		t->bpe.byte_id[byte] = id;
	else if (rc == 0 && n > 0 && dt_utf8_next(s, n, &cp) == n)
		rc = add_char(t, s, n, id, err);
	free(s);
	return rc;
}

int dt_sp_spell(const char *text, size_t n, bool special, char **ret, size_t *ret_n)
{
	int byte = byte_token(text);

	*ret = malloc(n + 1);
	if (!*ret)
		return -ENOMEM;
	memcpy(*ret, text, n);
	**ret = byte >= 0 ? (char)byte : **ret;
	*ret_n = byte >= 0 ? 1 : special ? n : dt_sp_unmark(*ret, n);
	return 0;
}

int dt_sp_read_normalizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	const char *type = word_of(o, "type");
	const json_t *list = json_object_get(o, "normalizers"), *v;
	size_t i;
	int rc = 0;

	if (!o || json_is_null(o))
		return 0;
	if (!strcmp(type, "Sequence") && json_is_array(list)) {
		json_array_foreach(list, i, v)
		{
			if (rc == 0)
				rc = json_object_get(v, "normalizers")
					     ? refuse(err, "normalizer", "Sequence in a Sequence")
					     : dt_sp_read_normalizer(t, v, err);
		}
		return rc;
	}
	if (!strcmp(type, "Prepend") && !strcmp(word_of(o, "prepend"), MARK)) {
		t->sp.prefix = DT_SP_PREFIX_EACH;
		return 0;
	}
	if (!strcmp(type, "Replace") && !strcmp(word_of(o, "content"), MARK) &&
	    !strcmp(word_of(json_object_get(o, "pattern"), "String"), " ")) {
		t->sp.marks = true;
		return 0;
	}
	return refuse(err, "normalizer", type);
}

int dt_sp_read_pre_tokenizer(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	const char *type = word_of(o, "type"), *scheme = word_of(o, "prepend_scheme");
	const json_t *split = json_object_get(o, "split"), *old = json_object_get(o, "add_prefix_space");

	if (!o || json_is_null(o))
		return 0;
	/* Gemma's: blanks have been replaced by then, so it splits nothing. */
	if (!strcmp(type, "Split") && !strcmp(word_of(json_object_get(o, "pattern"), "String"), " "))
		return 0;
	if (strcmp(type, "Metaspace") || strcmp(word_of(o, "replacement"), MARK))
		return refuse(err, "pre_tokenizer", type);
	t->sp.meta = true;
	t->sp.split = !json_is_false(split);
	if (t->sp.prefix == DT_SP_PREFIX_EACH) /* there is a blank already */
		return 0;
	if (!*scheme)
		scheme = json_is_false(old) ? "never" : "always";
	if (!strcmp(scheme, "always"))
		t->sp.prefix = DT_SP_PREFIX_UNLESS;
	else if (!strcmp(scheme, "first"))
		t->sp.prefix = DT_SP_PREFIX_FIRST;
	else if (strcmp(scheme, "never"))
		return refuse(err, "Metaspace with prepend_scheme", scheme);
	return 0;
}

int dt_sp_read_decoder(struct dt_tokenizer *t, const json_t *o, struct dt_err *err)
{
	const char *type = word_of(o, "type");
	const json_t *list = json_object_get(o, "decoders"), *v;
	size_t i;
	int rc = 0;

	if (!o || json_is_null(o) || !strcmp(type, "ByteFallback") || !strcmp(type, "Fuse"))
		return 0;
	if (!strcmp(type, "Sequence") && json_is_array(list)) {
		json_array_foreach(list, i, v)
		{
			if (rc == 0)
				rc = json_object_get(v, "decoders")
					     ? refuse(err, "decoder", "Sequence in a Sequence")
					     : dt_sp_read_decoder(t, v, err);
		}
		return rc;
	}
	if (!strcmp(type, "Replace") && !strcmp(word_of(json_object_get(o, "pattern"), "String"), MARK))
		return 0;
	if (!strcmp(type, "Strip") && !strcmp(word_of(o, "content"), " ") &&
	    json_integer_value(json_object_get(o, "stop")) == 0 &&
	    json_integer_value(json_object_get(o, "start")) <= 1) {
		t->sp.strip = json_integer_value(json_object_get(o, "start")) == 1;
		return 0;
	}
	if (!strcmp(type, "Metaspace")) {
		t->sp.strip = t->sp.prefix != DT_SP_PREFIX_NONE;
		t->sp.bare = t->sp.strip && t->ug.on;
		return 0;
	}
	return refuse(err, "decoder", type);
}

bool dt_sp_normalizes(const struct dt_tokenizer *t)
{
	return t->sp.marks || t->sp.prefix == DT_SP_PREFIX_EACH;
}

int dt_sp_form(const struct dt_tokenizer *t, const char *s, size_t n, bool first, char **ret, size_t *ret_n)
{
	bool blank = n > 0 && (s[0] == ' ' || (n >= MARK_N && !memcmp(s, MARK, MARK_N)));
	bool add = first && t->sp.prefix && (t->sp.prefix == DT_SP_PREFIX_EACH || !blank);
	char *p = malloc(n + 1);

	if (!p)
		return -ENOMEM;
	p[0] = ' ';
	memcpy(p + add, s, n);
	*ret_n = add + dt_sp_unmark(p + add, n);
	*ret = p;
	return 0;
}

int64_t dt_sp_symbols(const struct dt_tokenizer *t, const char *s, size_t n, int32_t *sym, struct dt_err *err)
{
	int64_t out = 0;

	for (size_t i = 0; i < n;) {
		bool valid = dt_utf8_valid(s + i, n - i < 4 ? n - i : 4) > 0;
		uint32_t cp;
		size_t len = valid ? dt_utf8_next(s + i, n - i, &cp) : 1;
		int64_t at = valid ? dt_bytemap_find(&t->sp.chars, s + i, len) : -1;

		if (at >= 0) {
			sym[out++] = t->sp.char_id[at];
			i += len;
			continue;
		}
		for (; len > 0; len--, i++) {
			sym[out] = t->bpe.byte_id[(unsigned char)s[i]];
			if (sym[out++] < 0)
				return dt_err_set(err, -EINVAL, "byte 0x%02x is not in the vocabulary",
						  (unsigned char)s[i]);
		}
	}
	return out;
}
/* SPDX-License-Identifier: Apache-2.0 */
