/* Finds added tokens in a text. */
#include "data/tok_priv.h"

/* The longest token that s starts with, by narrowing the sorted list byte by byte. */
static const struct dt_added *match_added(const struct dt_added_list *l, bool special, const char *s,
					  size_t n)
{
	const struct dt_added *found = NULL;
	size_t lo = 0, hi = l->n;

	for (size_t k = 0; lo < hi; k++) {
		size_t a = lo, b = hi;

		if (l->v[lo].n == k) {
			if (k && (special || !l->v[lo].special))
				found = &l->v[lo];
			lo++;
			a = lo;
		}
		if (k == n || lo == hi)
			break;
		while (a < b) { /* binary search: first whose byte k is at least s[k] */
			size_t m = (a + b) / 2;

			if ((unsigned char)l->v[m].text[k] < (unsigned char)s[k])
				a = m + 1;
			else
				b = m;
		}
		lo = a;
		b = hi;
		while (a < b) { /* binary search: first whose byte k is greater */
			size_t m = (a + b) / 2;

			if ((unsigned char)l->v[m].text[k] <= (unsigned char)s[k])
				a = m + 1;
			else
				b = m;
		}
		hi = a;
	}
	return found;
}

static bool is_space(const struct dt_added_list *l, uint32_t cp)
{
	return dt_utf8_is_space(cp) && !(l->marked && cp == ' ');
}

static size_t strip_left(const struct dt_added_list *l, const char *s, size_t from, size_t at)
{
	while (at > from) {
		size_t p = at - 1;
		uint32_t cp;

		while (p > from && ((unsigned char)s[p] & 0xc0) == 0x80)
			p--;
		dt_utf8_next(s + p, at - p, &cp);
		if (!is_space(l, cp))
			break;
		at = p;
	}
	return at;
}

static size_t strip_right(const struct dt_added_list *l, const char *s, size_t n, size_t at)
{
	while (at < n) {
		uint32_t cp;
		size_t len = dt_utf8_next(s + at, n - at, &cp);

		if (!is_space(l, cp))
			break;
		at += len;
	}
	return at;
}

const struct dt_added *dt_tok_next_added(const struct dt_added_list *l, bool special, const char *s, size_t n,
					 size_t from, size_t *ret_at, size_t *ret_end)
{
	for (size_t at = from; at < n; at++) {
		const struct dt_added *a =
			l->first[(unsigned char)s[at]] ? match_added(l, special, s + at, n - at) : NULL;

		if (!a)
			continue;
		*ret_at = a->lstrip ? strip_left(l, s, from, at) : at;
		*ret_end = a->rstrip ? strip_right(l, s, n, at + a->n) : at + a->n;
		return a;
	}
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
