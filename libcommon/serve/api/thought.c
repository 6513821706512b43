/* Finds reasoning in front of an answer: between <think> and </think>, or in channels (channels.c). */
#include "serve/api/tools.h"

#include <string.h>

/* Whether s is `text`, or its beginning while more may come. */
static bool may_be(const char *s, size_t n, const char *text, bool ended)
{
	const size_t whole = strlen(text);

	return n >= whole ? !memcmp(s, text, whole) : !ended && !memcmp(s, text, n);
}

size_t dt_tools_thought(const char *s, size_t n, bool ended, struct dt_tool_calls *ret)
{
	static const char open[] = "<think>", close[] = "</think>";
	const size_t nopen = strlen(open), nclose = strlen(close);
	size_t at, len;

	ret->thought = NULL;
	ret->nthought = 0;
	if (n > 0 && may_be(s, n, "<|channel|>", ended)) {
		dt_tools_channels(false, false, s, n, ended, ret);
		return ret->content > ret->from ? ret->from : n;
	}
	at = dt_tools_blanks(s, n);
	if (!may_be(s + at, n - at, open, ended))
		return 0;
	if (n - at < nopen)
		return n;
	at += nopen;
	at += dt_tools_blanks(s + at, n - at);
	len = dt_tools_before(s + at, n - at, close, ended);
	ret->thought = s + at;
	ret->nthought = dt_tools_trimmed(s + at, len);
	if (at + len == n)
		return n;
	at = at + len + nclose < n ? at + len + nclose : n;
	return at + dt_tools_blanks(s + at, n - at);
}
/* SPDX-License-Identifier: Apache-2.0 */
