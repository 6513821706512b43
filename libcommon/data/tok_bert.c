/*
 * BERT's normalizer and pre-tokenizer (Devlin et al. 2019; BertNormalizer and BertPreTokenizer of Hugging
 * Face's library): controls are dropped, Chinese characters stand apart, accents are stripped, letters become
 * lower case; words end at white space and at punctuation, of which each character is a word.
 */
#include "data/tok_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

struct text {
	char *s;
	size_t n, cap;
};

static int room(struct text *t, size_t n)
{
	size_t cap = t->cap + t->cap / 2 + n + 1;
	char *p;

	if (t->cap - t->n >= n && t->s)
		return 0;
	p = realloc(t->s, cap);
	if (!p)
		return -ENOMEM;
	t->s = p;
	t->cap = cap;
	return 0;
}

/* The planes' blocks of ideographs. U+2B820 to U+2B91F is not among them: Hugging Face's list has a gap. */
static bool is_chinese(uint32_t c)
{
	return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
	       (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
	       (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
	       (c >= 0x2f800 && c <= 0x2fa1f);
}

static bool is_control(uint32_t c)
{
	utf8proc_category_t k;

	if (c < 0x80)
		return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
	k = utf8proc_category((utf8proc_int32_t)c);
	return c == 0xfffd || k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF ||
	       k == UTF8PROC_CATEGORY_CO;
}

static void put(struct text *t, uint32_t c)
{
	t->n += (size_t)utf8proc_encode_char((utf8proc_int32_t)c, (utf8proc_uint8_t *)t->s + t->n);
}

/* The only letter whose lower case is two characters is U+0130, I with a dot. */
static void put_lower(struct text *t, uint32_t c)
{
	if (c == 0x130) {
		put(t, 'i');
		put(t, 0x307);
	} else {
		put(t, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
	}
}

/* Maps ASCII from at on; returns where it ends. There must be room for it. */
static size_t put_ascii(const struct dt_wp *w, struct text *t, const char *s, size_t n, size_t at)
{
	char *to = t->s + t->n;

	for (; at < n && (unsigned char)s[at] < 0x80; at++) {
		unsigned char c = (unsigned char)s[at];

		if (c > ' ' && c != 0x7f)
			*to++ = (char)(w->lower && c >= 'A' && c <= 'Z' ? c | 0x20 : c);
		else if (!w->clean)
			*to++ = (char)c;
		else if (!is_control(c))
			*to++ = ' ';
	}
	t->n = (size_t)(to - t->s);
	return at;
}

/* All but accents. Where they are stripped, only ASCII becomes lower case: the rest is decomposed before. */
static int clean(const struct dt_wp *w, const char *s, size_t n, struct text *t, bool *ret_ascii)
{
	uint32_t c;
	int rc = room(t, n);

	for (size_t at = 0; at < n && rc == 0;) {
		at = put_ascii(w, t, s, n, at);
		if (at == n)
			break;
		*ret_ascii = false;
		at += dt_utf8_next(s + at, n - at, &c);
		rc = room(t, n - at + 8); /* what is left as it is, and the most that one becomes */
		if (rc < 0 || (w->clean && is_control(c)))
			continue;
		if (w->clean && dt_utf8_is_space(c)) {
			t->s[t->n++] = ' ';
		} else if (w->chinese && is_chinese(c)) {
			t->s[t->n++] = ' ';
			put(t, c);
			t->s[t->n++] = ' ';
		} else if (w->lower && !w->strip_accents) {
			put_lower(t, c);
		} else {
			put(t, c);
		}
	}
	return rc;
}

/* Drops accents from a decomposed text and makes the letters lower case. */
static int strip(const struct dt_wp *w, const char *s, size_t n, struct text *t)
{
	uint32_t c;
	int rc = room(t, n);

	for (size_t at = 0; at < n && rc == 0;) {
		unsigned char byte = (unsigned char)s[at];

		if (byte < 0x80) {
			t->s[t->n++] = (char)(w->lower && byte >= 'A' && byte <= 'Z' ? byte | 0x20 : byte);
			at++;
			continue;
		}
		at += dt_utf8_next(s + at, n - at, &c);
		rc = room(t, n - at + 8);
		if (rc < 0 || utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_MN)
			continue;
		if (w->lower)
			put_lower(t, c);
		else
			put(t, c);
	}
	return rc;
}

int dt_bert_normalize(const struct dt_wp *w, const char *s, size_t n, char **ret, size_t *ret_n,
		      struct dt_err *err)
{
	struct text a = {0}, b = {0};
	bool ascii = true;
	char *form = NULL;
	size_t form_n = 0;
	int rc;

	if (!w->clean && !w->chinese && !w->strip_accents && !w->lower) {
		*ret = NULL;
		return 0;
	}
	rc = clean(w, s, n, &a, &ascii);
	if (rc < 0)
		rc = dt_err_sys(err, rc, "cannot normalise a text of %zu bytes", n);
	if (rc == 0 && w->strip_accents && !ascii) {
		rc = dt_tok_normalize(DT_NORMAL_NFD, a.s, a.n, &form, &form_n, err);
		if (rc == 0 && strip(w, form ? form : a.s, form ? form_n : a.n, &b) < 0)
			rc = dt_err_sys(err, -ENOMEM, "cannot normalise a text of %zu bytes", n);
		free(form);
		free(a.s);
		a = b;
	}
	if (rc < 0) {
		free(a.s);
		return rc;
	}
	*ret = a.s;
	*ret_n = a.n;
	return 0;
}

enum { WORD, SPACE, PUNCTUATION };

#define W WORD
#define S SPACE
#define P PUNCTUATION
static const uint8_t ascii_kind[128] = {
	W, W, W, W, W, W, W, W, W, S, S, S, S, S, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, /**/
	S, P, P, P, P, P, P, P, P, P, P, P, P, P, P, P, W, W, W, W, W, W, W, W, W, W, P, P, P, P, P, P, /**/
	P, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, P, P, P, P, P, /**/
	P, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, P, P, P, P, W, /**/
};
#undef W
#undef S
#undef P

/* What the character at s is, and its bytes. */
static int kind_of(const char *s, size_t n, size_t *ret_len)
{
	utf8proc_category_t k;
	uint32_t c = (unsigned char)*s;

	*ret_len = 1;
	if (c < 0x80)
		return ascii_kind[c];
	*ret_len = dt_utf8_next(s, n, &c);
	if (dt_utf8_is_space(c))
		return SPACE;
	k = utf8proc_category((utf8proc_int32_t)c);
	return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO ? PUNCTUATION : WORD;
}

size_t dt_bert_word(const char *s, size_t n, size_t *at)
{
	size_t i = *at, len;
	int kind = SPACE;

	while (i < n && (kind = kind_of(s + i, n - i, &len)) == SPACE)
		i += len;
	*at = i;
	if (i >= n)
		return 0;
	i += len;
	while (kind == WORD && i < n && (kind = kind_of(s + i, n - i, &len)) == WORD)
		i += len;
	return i;
}
/* SPDX-License-Identifier: Apache-2.0 */
