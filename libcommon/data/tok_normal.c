#include "data/tok_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* Length of the character at s; 0: invalid UTF-8 (overlong, surrogate, past U+10FFFF). */
static size_t char_len(const unsigned char *s, size_t n)
{
	size_t len;
	unsigned lo = 0x80, hi = 0xbf;

	if (s[0] < 0x80)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4)
		return 0;
	len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	if (n < len)
		return 0;
	if (s[0] == 0xe0)
		lo = 0xa0;
	else if (s[0] == 0xed)
		hi = 0x9f;
	else if (s[0] == 0xf0)
		lo = 0x90;
	else if (s[0] == 0xf4)
		hi = 0x8f;
	if (s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

size_t dt_utf8_valid(const char *s, size_t n)
{
	size_t i = 0, len;
	uint64_t v;

	while (i < n) {
		if (n - i >= 8) {
			memcpy(&v, s + i, 8);
			if (!(v & 0x8080808080808080ull)) {
				i += 8;
				continue;
			}
		}
		len = char_len((const unsigned char *)s + i, n - i);
		if (!len)
			break;
		i += len;
	}
	return i;
}

size_t dt_utf8_next(const char *s, size_t n, uint32_t *ret_cp)
{
	const unsigned char *u = (const unsigned char *)s;
	size_t len = char_len(u, n);

	if (len <= 1)
		*ret_cp = u[0];
	else if (len == 2)
		*ret_cp = (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
	else if (len == 3)
		*ret_cp = (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
	else
		*ret_cp = (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
	return len ? len : 1;
}

/*
 * Whether the text is unchanged by the form, judged by its bytes: NFC leaves characters below U+0300 alone,
 * the other forms ASCII.
 */
static bool is_plain(enum dt_normal form, const char *s, size_t n)
{
	unsigned char first = form == DT_NORMAL_NFC ? 0xcc : 0x80;

	for (size_t i = 0; i < n; i++)
		if ((unsigned char)s[i] >= first)
			return false;
	return true;
}

static int append(char **buf, size_t *used, size_t *cap, const void *s, size_t n)
{
	if (*used + n > *cap) {
		size_t want = *cap + *cap / 2 + n;
		char *p = realloc(*buf, want);

		if (!p)
			return -ENOMEM;
		*buf = p;
		*cap = want;
	}
	memcpy(*buf + *used, s, n);
	*used += n;
	return 0;
}

/*
 * Where to split so that parts can be normalised separately: before an ASCII character, which starts a new
 * sequence in every form and composes with nothing before it.
 */
static size_t block_end(const char *s, size_t n, size_t at)
{
	size_t end = at + 4096;

	while (end < n && (unsigned char)s[end] >= 0x80)
		end++;
	return end < n ? end : n;
}

struct chars {
	utf8proc_int32_t *v;
	size_t n, cap;
};

/*
 * The most characters that one decomposes into is 18 (U+FDFA); one more is for the zero byte that
 * utf8proc_reencode appends.
 */
static int reserve(struct chars *c)
{
	size_t cap = 2 * c->n + 64;
	utf8proc_int32_t *v;

	if (c->cap - c->n > 32)
		return 0;
	v = realloc(c->v, cap * sizeof(*v));
	if (!v)
		return -ENOMEM;
	c->v = v;
	c->cap = cap;
	return 0;
}

static int class_of(utf8proc_int32_t c)
{
	return utf8proc_get_property(c)->combining_class;
}

/* Sorts n marks by class, in place, and keeps the order within a class; copy holds n. */
static void sort_marks(utf8proc_int32_t *v, size_t n, utf8proc_int32_t *copy)
{
	size_t at[256] = {0}, sum = 0;

	for (size_t i = 0; i < n; i++)
		at[class_of(v[i])]++;
	for (int i = 0; i < 256; i++) {
		size_t k = at[i];

		at[i] = sum;
		sum += k;
	}
	memcpy(copy, v, n * sizeof(*v));
	for (size_t i = 0; i < n; i++)
		v[at[class_of(copy[i])]++] = copy[i];
}

/* The canonical order of marks. utf8proc_decompose swaps neighbours, in time quadratic in their number. */
static int order_marks(struct chars *c)
{
	utf8proc_int32_t *copy = NULL;
	size_t end;

	for (size_t at = 0; at < c->n; at = end) {
		bool sorted = true;

		for (end = at; end < c->n && class_of(c->v[end]); end++)
			sorted &= end == at || class_of(c->v[end - 1]) <= class_of(c->v[end]);
		if (!sorted && !copy)
			copy = malloc(c->n * sizeof(*copy));
		if (!sorted && !copy)
			return -ENOMEM;
		if (!sorted)
			sort_marks(c->v + at, end - at, copy);
		end += end == at;
	}
	free(copy);
	return 0;
}

/* Replaces what is in c by the form of s as UTF-8, in c->v; returns its bytes. */
static int64_t map(const char *s, size_t n, utf8proc_option_t options, struct chars *c)
{
	uint32_t cp;
	int rc;

	c->n = 0;
	for (size_t at = 0; at < n;) {
		utf8proc_ssize_t k;
		int bound = 0;

		rc = reserve(c);
		if (rc < 0)
			return rc;
		at += dt_utf8_next(s + at, n - at, &cp);
		k = utf8proc_decompose_char((utf8proc_int32_t)cp, c->v + c->n,
					    (utf8proc_ssize_t)(c->cap - c->n), options, &bound);
		if (k < 0 || (size_t)k >= c->cap - c->n)
			return -EBADMSG;
		c->n += (size_t)k;
	}
	rc = order_marks(c);
	return rc < 0 ? rc : utf8proc_reencode(c->v, (utf8proc_ssize_t)c->n, options);
}

int dt_tok_normalize(enum dt_normal form, const char *s, size_t n, char **ret, size_t *ret_n,
		     struct dt_err *err)
{
	static const int options[] = {
		[DT_NORMAL_NFC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
		[DT_NORMAL_NFD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
		[DT_NORMAL_NFKC] = UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
		[DT_NORMAL_NFKD] = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT,
	};
	char *buf = NULL;
	size_t used = 0, cap = n + 64, end;
	struct chars c = {0};
	int rc = 0;

	if (form == DT_NORMAL_NONE || is_plain(form, s, n)) {
		*ret = NULL;
		return 0;
	}
	buf = malloc(cap);
	if (!buf)
		return dt_err_sys(err, -ENOMEM, "cannot normalise a text of %zu bytes", n);
	for (size_t at = 0; at < n && rc == 0; at = end) {
		int64_t len;

		end = block_end(s, n, at);
		if (is_plain(form, s + at, end - at)) {
			rc = append(&buf, &used, &cap, s + at, end - at);
			continue;
		}
		len = map(s + at, end - at, (utf8proc_option_t)options[form], &c);
		rc = len < 0 ? (int)len : append(&buf, &used, &cap, c.v, (size_t)len);
	}
	free(c.v);
	if (rc < 0) {
		free(buf);
		return dt_err_sys(err, rc == -ENOMEM ? rc : -EBADMSG, "cannot normalise a text of %zu bytes",
				  n);
	}
	*ret = buf;
	*ret_n = used;
	return 0;
}

/* Whether a byte is mapped to itself; the other 68 are mapped to U+0100 and up, in order. */
static bool is_printable(unsigned b)
{
	return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
}

uint32_t dt_byte_char(uint8_t byte)
{
	uint32_t c = 256;

	if (is_printable(byte))
		return byte;
	for (unsigned b = 0; b < byte; b++)
		c += !is_printable(b);
	return c;
}

int64_t dt_byte_decode(const char *s, size_t n, char *out)
{
	int64_t len = 0;

	for (size_t i = 0; i < n;) {
		uint32_t cp;

		i += dt_utf8_next(s + i, n - i, &cp);
		if (cp < 256 && is_printable(cp)) {
			out[len++] = (char)cp;
		} else if (cp >= 256 && cp < 256 + 68) {
			/* the other bytes: 0-32, 127-160, 173 */
			uint32_t k = cp - 256;

			out[len++] = (char)(k < 33 ? k : k < 67 ? k - 33 + 127 : 173);
		} else {
			return -1;
		}
	}
	return len;
}
/* SPDX-License-Identifier: Apache-2.0 */
