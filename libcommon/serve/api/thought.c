/* Finds reasoning in front of an answer: between <think> and </think>, or in channels (channels.c). */
#include "serve/api/tools.h"

#include <string.h>

struct cursor {
	const char *s, *end;
};

static void skip_blanks(struct cursor *c)
{
	while (c->s < c->end && strchr(" \t\r\n", *c->s))
		c->s++;
}

/* Whether s is `text`, or its beginning while more may come. */
static bool may_be(struct cursor c, const char *text, bool ended)
{
	const size_t left = (size_t)(c.end - c.s), n = strlen(text);

	return left >= n ? !memcmp(c.s, text, n) : !ended && !memcmp(c.s, text, left);
}

size_t dt_tools_thought(const char *s, size_t n, bool ended, struct dt_tool_calls *ret)
{
	static const char open[] = "<think>", close[] = "</think>";
	struct cursor c = {s, s + n};
	size_t left, len;

	ret->thought = NULL;
	ret->nthought = 0;
	if (n > 0 && may_be(c, "<|channel|>", ended)) {
		dt_tools_channels(false, false, s, n, ended, ret);
		return ret->content > ret->from ? ret->from : n;
	}
	skip_blanks(&c);
	left = (size_t)(c.end - c.s);
	if (left < 7 || memcmp(c.s, open, 7))
		return !ended && left < 7 && !memcmp(c.s, open, left) ? n : 0;
	c.s += 7;
	skip_blanks(&c);
	left = (size_t)(c.end - c.s);
	len = dt_tools_before(c.s, left, close, ended);
	ret->thought = c.s;
	ret->nthought = dt_tools_trimmed(c.s, len);
	if (len == left)
		return n;
	c.s += len + 8 < left ? len + 8 : left;
	skip_blanks(&c);
	return (size_t)(c.s - s);
}
/* SPDX-License-Identifier: Apache-2.0 */
