/*
 * Patterns such as (?=(\d{3})+(?!\d)), which cut numbers into groups of three from the right: they match
 * where a run of one class of characters has a multiple of k characters left. A matcher of patterns counts
 * the rest of the run at each of its characters, in quadratic time; here a run is counted once.
 */
#include "data/tok_priv.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static size_t expect(const char *s, const char *word)
{
	const size_t n = strlen(word);

	return strncmp(s, word, n) ? 0 : n;
}

/* Bytes of a class of characters at s: \d, \p{..} or [..], which has no class inside; 0: none. */
static size_t class_length(const char *s)
{
	const char *end = NULL;

	if (s[0] == '\\' && s[1] == 'd')
		return 2;
	if (expect(s, "\\p{"))
		end = strchr(s, '}');
	if (s[0] == '[' && s[1] != ']' && expect(s + 1, "^]") == 0) {
		end = s + 1 + strcspn(s + 1, "[]\\");
		end = *end == ']' ? end : NULL;
	}
	return end ? (size_t)(end - s) + 1 : 0;
}

int dt_tok_runs(const char *pattern, char run[static DT_TOK_RUN_CLASS])
{
	const char *s = pattern, *class;
	size_t n, k;
	char *end;

	if (!(n = expect(s, "(?=(?:")) && !(n = expect(s, "(?=(")))
		return 0;
	class = s += n;
	n = class_length(s);
	if (n == 0 || n + 2 > DT_TOK_RUN_CLASS || s[n] != '{' || !isdigit((unsigned char)s[n + 1]))
		return 0;
	k = strtoul(s + n + 1, &end, 10);
	s = end + expect(end, "})+(?!");
	if (k < 1 || k > 999 || s == end || strncmp(s, class, n) || strcmp(s + n, "))"))
		return 0;
	memcpy(run, class, n);
	strcpy(run + n, "+");
	return (int)k;
}

/* Moves on by n characters of the run. */
static void skip(struct dt_tok_run *r, const char *s, size_t n)
{
	uint32_t cp;

	for (; n > 0; n--, r->left--)
		r->at += dt_utf8_next(s + r->at, r->end - r->at, &cp);
}

static size_t count(const char *s, size_t n)
{
	size_t ret = 0;
	uint32_t cp;

	for (size_t at = 0; at < n; ret++)
		at += dt_utf8_next(s + at, n - at, &cp);
	return ret;
}

int dt_tok_match_runs(const struct dt_tok_step *st, pcre2_match_data *md, pcre2_match_context *mc,
		      const char *s, size_t n, size_t from, struct dt_tok_run *r, size_t *ret_at,
		      struct dt_err *err)
{
	const size_t every = (size_t)st->every;

	if (from < r->end) { /* behind the last match, which is at most a character away */
		while (r->at < from)
			skip(r, s, 1);
		skip(r, s, r->left % every);
	}
	while (from >= r->end || r->left < every) {
		int rc;

		from = from > r->end ? from : r->end;
		rc = dt_tok_match(st->re, md, mc, s, n, from, &r->at, &r->end, err);
		if (rc <= 0)
			return rc;
		r->left = count(s + r->at, r->end - r->at);
		skip(r, s, r->left % every);
		from = r->at;
	}
	*ret_at = r->at;
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
