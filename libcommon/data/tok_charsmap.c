/*
 * Normalizers of Unigram's tokenizers: SentencePiece's precompiled map of characters, as Hugging Face's
 * library applies it, and what stands behind it.
 *
 * The library looks up whole grapheme clusters of less than 6 bytes, then single characters. Of several
 * entries that a text starts with it takes the shortest, which replaces the whole cluster; SentencePiece
 * takes the longest entry at each place.
 */
#include "data/tok_priv.h"

#include "base/base64.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define CLUSTER_MAX 6

struct text {
	char *s;
	size_t n, cap;
};

static int put(struct text *t, const char *s, size_t n)
{
	if (t->cap - t->n < n || !t->s) {
		size_t cap = t->cap + t->cap / 2 + n + 64;
		char *p = realloc(t->s, cap);

		if (!p)
			return -ENOMEM;
		t->s = p;
		t->cap = cap;
	}
	memcpy(t->s + t->n, s, n);
	t->n += n;
	return 0;
}

int dt_ug_read_charsmap(struct dt_ug *u, const char *base64, struct dt_err *err)
{
	size_t n = strlen(base64);
	uint8_t *p = malloc(n + 4);
	int64_t len = p ? dt_base64_decode(base64, n, p) : -1;
	uint32_t size = 0;
	int rc = 0;

	if (!p)
		return dt_err_sys(err, -ENOMEM, "cannot read precompiled_charsmap");
	if (len >= 4)
		memcpy(&size, p, 4);
	if (len < 4 || size < 4 || size % 4 || size > (uint64_t)len - 4 || u->units) {
		free(p);
		return dt_err_set(err, -EINVAL, "precompiled_charsmap is %s",
				  u->units ? "there twice" : "damaged");
	}
	u->units_n = size / 4;
	u->texts_n = (size_t)len - 4 - size;
	u->units = malloc(size);
	u->texts = malloc(u->texts_n + 1);
	if (u->units && u->texts) {
		memcpy(u->units, p + 4, size);
		memcpy(u->texts, p + 4 + size, u->texts_n);
		u->texts[u->texts_n] = '\0';
		if (dt_utf8_valid(u->texts, u->texts_n) < u->texts_n)
			rc = dt_err_set(err, -EINVAL, "precompiled_charsmap is damaged");
	} else {
		rc = dt_err_sys(err, -ENOMEM, "cannot read precompiled_charsmap");
	}
	free(p);
	return rc;
}

/* What s is replaced by, NULL: it stays. As in Darts-clone: label, leaf flag, offset to the children. */
static const char *entry(const struct dt_ug *u, const char *s, size_t n)
{
	size_t at = 0;
	uint32_t unit = u->units[0];

	at ^= (unit >> 10) << ((unit & 1u << 9) >> 6);
	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)s[i];

		at ^= c;
		if (c == 0 || at >= u->units_n)
			return NULL;
		unit = u->units[at];
		if ((unit & (1u << 31 | 0xff)) != c)
			return NULL;
		at ^= (unit >> 10) << ((unit & 1u << 9) >> 6);
		if (at >= u->units_n)
			return NULL;
		if (unit >> 8 & 1) {
			uint32_t to = u->units[at] & ~(1u << 31);

			return to < u->texts_n ? u->texts + to : "";
		}
	}
	return NULL;
}

/* Bytes of the grapheme cluster at s. */
static size_t cluster(const char *s, size_t n)
{
	utf8proc_int32_t state = 0;
	uint32_t c, next;
	size_t at = dt_utf8_next(s, n, &c);

	while (at < n) {
		size_t len = dt_utf8_next(s + at, n - at, &next);

		if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)c, (utf8proc_int32_t)next, &state))
			break;
		at += len;
		c = next;
	}
	return at;
}

/* Replaces the characters of a cluster, or as they are. */
static int put_cluster(const struct dt_ug *u, struct text *t, const char *s, size_t n)
{
	const char *to = n < CLUSTER_MAX ? entry(u, s, n) : NULL;
	uint32_t c;
	int rc = 0;

	if (to)
		return put(t, to, strlen(to));
	for (size_t at = 0, len; at < n && rc == 0; at += len) {
		len = dt_utf8_next(s + at, n - at, &c);
		to = entry(u, s + at, len);
		rc = to ? put(t, to, strlen(to)) : put(t, s + at, len);
	}
	return rc;
}

static int map_characters(const struct dt_ug *u, const char *s, size_t n, struct text *t)
{
	int rc = put(t, "", 0);

	for (size_t at = 0, len; at < n && rc == 0; at += len) {
		len = 1;
		if ((s[at] & 0x80) || s[at] == '\r' || (at + 1 < n && (s[at + 1] & 0x80)))
			len = cluster(s + at, n - at);
		rc = put_cluster(u, t, s + at, len);
	}
	return rc;
}

static int strip(const struct dt_ug_step *st, const char *s, size_t n, struct text *t)
{
	size_t from = 0, end = st->right ? dt_utf8_trimmed(s, n) : n;
	uint32_t c;

	while (st->left && from < end) {
		size_t len = dt_utf8_next(s + from, end - from, &c);

		if (!dt_utf8_is_space(c))
			break;
		from += len;
	}
	return put(t, s + from, end - from);
}

static int squeeze(const struct dt_ug_step *st, const char *s, size_t n, struct text *t)
{
	int rc = put(t, "", 0);

	for (size_t at = 0, len; at < n && rc == 0; at += len) {
		for (len = 0; at + len < n && s[at + len] == ' ';)
			len++;
		if (len > 1) {
			rc = put(t, st->to, strlen(st->to));
			continue;
		}
		for (; at + len < n && s[at + len] != ' ';)
			len++;
		rc = put(t, s + at, len);
	}
	return rc;
}

int dt_ug_normalize(const struct dt_ug *u, const char *s, size_t n, char **ret, size_t *ret_n,
		    struct dt_err *err)
{
	struct text from = {0};
	int rc = 0;

	for (int i = 0; i < u->steps && rc == 0; i++) {
		const struct dt_ug_step *st = &u->step[i];
		const char *in = from.s ? from.s : s;
		size_t in_n = from.s ? from.n : n;
		struct text to = {0};

		rc = st->what == DT_UG_CHARSMAP ? map_characters(u, in, in_n, &to)
		     : st->what == DT_UG_STRIP	? strip(st, in, in_n, &to)
						: squeeze(st, in, in_n, &to);
		free(from.s);
		from = to;
	}
	if (rc < 0) {
		free(from.s);
		return dt_err_sys(err, rc, "cannot normalise a text of %zu bytes", n);
	}
	*ret = from.s;
	if (from.s)
		*ret_n = from.n;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
