/*
 * text -> added tokens -> (normalisation -> added tokens) -> pre-tokenizer steps -> words -> ids.
 *
 * Invalid UTF-8 bytes become words of one byte: patterns and normal forms are defined on characters only, and
 * so decoding restores every byte.
 */
#include "data/tok_word.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_MAX  16384 /* entries, each a cache line */
#define CACHE_FROM 1024	 /* bytes of text from which a cache is used */

static int run_step(struct dt_tok_enc *e, int k, const char *s, size_t n, bool first);

/* Runs the steps from k on, on the text with each byte mapped to a character of one or two bytes. */
static int in_alphabet(struct dt_tok_enc *e, int k, const char *s, size_t n)
{
	char *copy = malloc(2 * n + 1), *to = copy;
	int rc;

	if (!copy)
		return dt_err_sys(e->err, -ENOMEM, "cannot encode a text of %zu bytes", n);
	for (size_t i = 0; i < n; i++) {
		uint32_t c = dt_byte_char((unsigned char)s[i]);

		if (c >= 0x80)
			*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(c < 0x80 ? c : 0x80 | (c & 0x3f));
	}
	e->alphabet = true;
	rc = run_step(e, k, copy, (size_t)(to - copy), true);
	e->alphabet = false;
	free(copy);
	return rc;
}

/* Encodes a word after the last step. */
static int last_step(struct dt_tok_enc *e, const char *s, size_t n)
{
	char short_copy[256], *copy = short_copy;
	int rc;

	if (!e->alphabet)
		return dt_tok_word(e, s, n);
	if (n > sizeof(short_copy))
		copy = malloc(n);
	if (!copy)
		return dt_err_sys(e->err, -ENOMEM, "cannot encode a word of %zu bytes", n);
	rc = dt_tok_word(e, copy, (size_t)dt_byte_decode(s, n, copy));
	if (copy != short_copy)
		free(copy);
	return rc;
}

static int prefixed(struct dt_tok_enc *e, int k, const char *s, size_t n)
{
	char *copy = malloc(n + 1);
	int rc;

	if (!copy)
		return dt_err_sys(e->err, -ENOMEM, "cannot encode a text of %zu bytes", n);
	copy[0] = ' ';
	memcpy(copy + 1, s, n);
	rc = run_step(e, k, copy, n + 1, true);
	free(copy);
	return rc;
}

/* The step's next match at or after from. */
static int next_match(struct dt_tok_enc *e, const struct dt_tok_step *st, const char *s, size_t n,
		      size_t from, struct dt_tok_run *run, size_t *begin, size_t *end)
{
	int rc;

	if (st->every == 0)
		return dt_tok_match(st->re, e->md, e->mc, s, n, from, begin, end, e->err);
	rc = dt_tok_match_runs(st, e->md, e->mc, s, n, from, run, begin, e->err);
	*end = *begin;
	return rc;
}

/* Runs step k of the pre-tokenizer on valid UTF-8. first: the text does not start inside a segment. */
static int run_step(struct dt_tok_enc *e, int k, const char *s, size_t n, bool first)
{
	const struct dt_tok_step *st = &e->t->step[k];
	struct dt_tok_run run = {0};
	size_t kept = 0, from = 0, begin = 0, end;
	uint32_t cp;
	int rc = 0;

	if (k == e->t->steps || n == 0)
		return last_step(e, s, n);
	if (st->to_alphabet)
		return in_alphabet(e, k + 1, s, n);
	if (st->prefix_space && first && s[0] != ' ')
		return prefixed(e, k, s, n);
	if (!st->re)
		return run_step(e, k + 1, s, n, first);
	while (from < n) {
		rc = next_match(e, st, s, n, from, &run, &begin, &end);
		if (rc < 0)
			return rc;
		if (rc == 0)
			break;
		if (begin > kept && !st->drop_gap)
			rc = run_step(e, k + 1, s + kept, begin - kept, true);
		if (rc >= 0 && end > begin && !st->drop_match)
			rc = run_step(e, k + 1, s + begin, end - begin, true);
		if (rc < 0)
			return rc;
		kept = from = end;
		if (begin == end) /* it only splits; the next match starts behind the next character */
			from += end < n ? dt_utf8_next(s + end, n - end, &cp) : 1;
	}
	if (kept < n && !st->drop_gap)
		return run_step(e, k + 1, s + kept, n - kept, true);
	return 0;
}

typedef int (*part_fn)(struct dt_tok_enc *e, const char *s, size_t n, bool first);

/* Splits s at the added tokens of l; calls fn on the text between them. */
static int split_added(struct dt_tok_enc *e, const struct dt_added_list *l, const char *s, size_t n,
		       bool first, part_fn fn)
{
	const struct dt_added *a;
	size_t kept = 0, at, end;

	while (kept < n && (a = dt_tok_next_added(l, e->special, s, n, kept, &at, &end))) {
		int rc = at > kept ? fn(e, s + kept, at - kept, kept ? true : first) : 0;

		if (rc == 0 && !e->word)
			rc = dt_tok_push(e, &a->id, 1);
		if (rc < 0)
			return rc;
		kept = end;
	}
	return kept < n ? fn(e, s + kept, n - kept, kept ? true : first) : 0;
}

/*
 * Splits words for SentencePiece: at every blank (split), or not at all. With `apart` a word also starts at a
 * blank after another character: no token contains both, so no merge crosses, and the cache finds such words.
 */
static int sp_words(struct dt_tok_enc *e, const char *s, size_t n)
{
	const struct dt_sp *sp = &e->t->sp;
	size_t from = 0;
	int rc = 0;

	for (size_t i = 1; (sp->split || sp->apart) && i < n && rc == 0; i++)
		if (s[i] == ' ' && (sp->split || s[i - 1] != ' ')) {
			rc = dt_tok_word(e, s + from, i - from);
			from = i;
		}
	return rc < 0 ? rc : dt_tok_word(e, s + from, n - from);
}

static int bert_words(struct dt_tok_enc *e, const char *s, size_t n)
{
	size_t at = 0, end;
	int rc = 0;

	for (; rc == 0 && (end = dt_bert_word(s, n, &at)) > 0; at = end)
		rc = dt_tok_word(e, s + at, end - at);
	return rc;
}

static int sp_form(struct dt_tok_enc *e, const char *s, size_t n, bool first, char **ret, size_t *ret_n)
{
	if (e->t->sp.prefix == DT_SP_PREFIX_FIRST && s != e->text)
		first = false;
	return dt_sp_form(e->t, s, n, first, ret, ret_n) < 0
		       ? dt_err_sys(e->err, -ENOMEM, "cannot encode a text of %zu bytes", n)
		       : 0;
}

/* Metaspace: a pre-tokenizer, so it sees what is between the added tokens. */
static int metaspace(struct dt_tok_enc *e, const char *s, size_t n, bool first)
{
	char *form;
	size_t form_n;
	int rc = sp_form(e, s, n, first, &form, &form_n);

	if (rc < 0)
		return rc;
	rc = sp_words(e, form, form_n);
	free(form);
	return rc;
}

/* The words of a Unigram model: those between white space, each with the prefix, or as Metaspace cuts. */
static int unigram_words(struct dt_tok_enc *e, const char *s, size_t n, bool first)
{
	size_t at = 0, end, len;
	char word[DT_TOK_CACHE_KEY + 2];
	uint32_t c;
	int rc = 0;

	if (!e->t->ug.spaces)
		return metaspace(e, s, n, first);
	for (; at < n && rc == 0; at = end + len) {
		len = 0;
		for (end = at; end < n; end += len, len = 0) {
			len = dt_utf8_next(s + end, n - end, &c);
			if (dt_utf8_is_space(c))
				break;
		}
		if (end == at)
			continue;
		if (e->t->sp.prefix == DT_SP_PREFIX_UNLESS && end - at < sizeof(word) &&
		    !memchr(s + at, 0xe2, end - at)) { /* without a mark */
			word[0] = ' ';
			memcpy(word + 1, s + at, end - at);
			rc = dt_tok_word(e, word, end - at + 1);
		} else {
			rc = metaspace(e, s + at, end - at, true);
		}
	}
	return rc;
}

static int pretokenize(struct dt_tok_enc *e, const char *s, size_t n, bool first)
{
	if (e->t->wp.on)
		return bert_words(e, s, n);
	if (e->t->ug.on)
		return unigram_words(e, s, n, first);
	if (e->t->sp.on)
		return sp_words(e, s, n);
	return run_step(e, 0, s, n, first);
}

/* Encodes valid UTF-8 without the added tokens that are matched before normalisation. */
static int valid_run(struct dt_tok_enc *e, const char *s, size_t n, bool first)
{
	char *form;
	size_t form_n;
	int rc;

	if (e->t->sp.on && !e->t->ug.on && !dt_sp_normalizes(e->t))
		return split_added(e, &e->t->normalized, s, n, first, metaspace);
	rc = e->t->sp.on && !e->t->ug.on ? sp_form(e, s, n, first, &form, &form_n)
					 : dt_tok_form(e->t, s, n, &form, &form_n, e->err);
	if (rc < 0)
		return rc;
	rc = split_added(e, &e->t->normalized, form ? form : s, form ? form_n : n, first, pretokenize);
	free(form);
	return rc;
}

static int segment(struct dt_tok_enc *e, const char *s, size_t n, bool first)
{
	size_t at = 0, len;
	int rc;

	if (e->t->byte) {
		for (; at < n; at++) {
			int32_t id = (unsigned char)s[at];

			e->at = s + at;
			rc = dt_tok_push(e, &id, 1);
			if (rc < 0)
				return rc;
		}
		return 0;
	}
	while (at < n) {
		len = dt_utf8_valid(s + at, n - at);
		rc = len ? valid_run(e, s + at, len, at == 0) : dt_tok_word(e, s + at, len = 1);
		if (rc < 0)
			return rc;
		at += len;
	}
	return 0;
}

static int run(const struct dt_tokenizer *t, const char *text, size_t n, bool special, dt_word_fn wf,
	       dt_tokenizer_sink sink, void *ctx, struct dt_err *err)
{
	struct dt_tok_enc *e = malloc(sizeof(*e));
	size_t entries = 64;
	bool cache = !wf && !t->byte && n >= CACHE_FROM;
	int rc = -ENOMEM;

	if (!e)
		return dt_err_sys(err, rc, "cannot encode a text of %zu bytes", n);
	memset(e, 0, offsetof(struct dt_tok_enc, ids));
	e->t = t;
	e->special = special;
	e->word = wf;
	e->sink = sink;
	e->ctx = ctx;
	e->err = err;
	e->text = e->at = text;
	e->text_n = n;
	while (entries < CACHE_MAX && entries < n / 16)
		entries *= 2;
	e->cache_mask = entries - 1;
	e->md = pcre2_match_data_create(1, NULL);
	e->mc = dt_tok_match_context(n);
	if (cache)
		e->cache = calloc(entries, sizeof(*e->cache));
	if (!e->md || !e->mc || (cache && !e->cache)) {
		dt_err_sys(err, rc, "cannot encode a text of %zu bytes", n);
		goto out;
	}
	rc = split_added(e, &t->raw, text, n, true, segment);
	if (rc >= 0 && sink)
		rc = dt_tok_flush(e);
out:
	pcre2_match_context_free(e->mc);
	pcre2_match_data_free(e->md);
	free(e->cache);
	free(e);
	return rc < 0 ? rc : 0;
}

int dt_tok_words(const struct dt_tokenizer *t, const char *text, size_t n, dt_word_fn fn, void *ctx,
		 struct dt_err *err)
{
	return run(t, text, n, true, fn, NULL, ctx, err);
}

int dt_tokenizer_encode_to(const struct dt_tokenizer *t, const char *text, size_t n, bool special,
			   dt_tokenizer_sink sink, void *ctx, struct dt_err *err)
{
	return run(t, text, n, special, NULL, sink, ctx, err);
}

struct list {
	int32_t *v;
	size_t n, cap;
};

static int collect(void *ctx, const int32_t *ids, size_t n, size_t done, struct dt_err *err)
{
	struct list *l = ctx;

	if (l->n + n > l->cap) {
		size_t cap = l->cap + l->cap / 2 + n;
		int32_t *v = realloc(l->v, cap * sizeof(*v));

		if (!v)
			return dt_err_sys(err, -ENOMEM, "cannot hold %zu ids", cap);
		l->v = v;
		l->cap = cap;
	}
	memcpy(l->v + l->n, ids, n * sizeof(*ids));
	l->n += n;
	return 0;
}

int dt_tokenizer_encode(const struct dt_tokenizer *t, const char *text, size_t n, bool special, int32_t **ret,
			size_t *ret_n, struct dt_err *err)
{
	struct list l = {.v = malloc(sizeof(*l.v)), .cap = 1};
	int rc;

	if (!l.v)
		return dt_err_sys(err, -ENOMEM, "cannot encode a text of %zu bytes", n);
	rc = dt_tokenizer_encode_to(t, text, n, special, collect, &l, err);
	if (rc < 0) {
		free(l.v);
		return rc;
	}
	*ret = l.v;
	*ret_n = l.n;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
