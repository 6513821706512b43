#include "data/script.h"

#include "base/units.h"

#define PCRE2_CODE_UNIT_WIDTH 8

#include <ctype.h>
#include <errno.h>
#include <pcre2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dt_script {
	pcre2_code *own, *other; /* patterns for runs of letters of the script and of other letters */
	double least;
};

static pcre2_code *compile(const char *pattern)
{
	PCRE2_SIZE at;
	int code;
	pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
				       PCRE2_UTF | PCRE2_MATCH_INVALID_UTF, &code, &at, NULL);

	if (re)
		pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
	return re;
}

int dt_script_open(struct dt_script **ret, const char *text, struct dt_err *err)
{
	struct dt_script *s = calloc(1, sizeof(*s));
	const size_t n = strcspn(text, ":");
	char own[128], other[128];
	bool word = n > 0 && n < 40;

	for (size_t i = 0; i < n; i++)
		word = word && (isalpha((unsigned char)text[i]) || text[i] == '_');
	if (s && text[n] && dt_parse_share(text + n + 1, 0, 1, &s->least, err) < 0) {
		dt_script_close(s);
		return dt_err_prefix(err, "'%s'", text);
	}
	if (s && !text[n])
		s->least = 0.5;
	snprintf(own, sizeof(own), "(?:(?=\\p{L})\\p{sc:%.*s})++", (int)(n < 40 ? n : 40), text);
	snprintf(other, sizeof(other), "(?:(?=\\p{L})\\P{sc:%.*s})++", (int)(n < 40 ? n : 40), text);
	if (s && word) {
		s->own = compile(own);
		s->other = compile(other);
	}
	if (s && s->own && s->other) {
		*ret = s;
		return 0;
	}
	dt_script_close(s);
	return dt_err_set(err, -EINVAL, "'%s' is not a Unicode script, such as Latin, Cyrillic or Han", text);
}

void dt_script_close(struct dt_script *s)
{
	if (!s)
		return;
	pcre2_code_free(s->own);
	pcre2_code_free(s->other);
	free(s);
}

/* Number of code points of text in runs that re matches. */
static uint64_t count(pcre2_match_data *match, const pcre2_code *re, const char *text, size_t n)
{
	const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
	uint64_t points = 0;

	for (size_t at = 0; at < n && pcre2_match(re, (PCRE2_SPTR)text, n, at, 0, match, NULL) > 0;
	     at = found[1])
		for (size_t i = found[0]; i < found[1]; i++)
			points += ((unsigned char)text[i] & 0xc0) != 0x80;
	return points;
}

int dt_script_fits(const struct dt_script *s, const char *text, size_t n)
{
	pcre2_match_data *match = pcre2_match_data_create(1, NULL); /* other threads look at other texts */
	uint64_t own, other;

	if (!match)
		return -ENOMEM;
	own = count(match, s->own, text, n);
	other = count(match, s->other, text, n);
	pcre2_match_data_free(match);
	return own + other == 0 || (double)own >= s->least * (double)(own + other);
}
/* SPDX-License-Identifier: Apache-2.0 */
