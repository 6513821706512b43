/* Finds reasoning in front of an answer: between <think> and </think>, or in the channels of harmony. */
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

/*
 * The same of harmony (gpt-oss): messages in channels, of which the one named final has the answer and those
 * before it reasoning, of which the first one counts.
 */
static size_t channels(struct cursor c, bool ended, struct dt_tool_calls *ret)
{
	static const char start[] = "<|start|>assistant", channel[] = "<|channel|>",
			  message[] = "<|message|>", end[] = "<|end|>";
	const char *const all = c.s;
	bool said = false;

	for (;;) {
		size_t left = (size_t)(c.end - c.s), name, len;
		const char *at;
		bool final;

		if (may_be(c, start, ended) && left >= strlen(start))
			c.s += strlen(start);
		left = (size_t)(c.end - c.s);
		if (left < strlen(channel) || memcmp(c.s, channel, strlen(channel)))
			return may_be(c, channel, ended) || may_be(c, start, ended) ? (size_t)(c.end - all)
										    : (size_t)(c.s - all);
		c.s += strlen(channel);
		left -= strlen(channel);
		at = memmem(c.s, left, message, strlen(message));
		if (!at)
			return (size_t)(c.end - all);
		name = (size_t)(at - c.s);
		final = name >= 5 && !memcmp(c.s, "final", 5);
		c.s += name + strlen(message);
		left = (size_t)(c.end - c.s);
		if (final)
			return (size_t)(c.s - all);
		len = dt_tools_before(c.s, left, end, ended);
		if (!said) {
			ret->thought = c.s;
			ret->nthought = dt_tools_trimmed(c.s, len);
			said = true;
		}
		if (len == left)
			return (size_t)(c.end - all);
		c.s += len + strlen(end) < left ? len + strlen(end) : left;
	}
}

size_t dt_tools_thought(const char *s, size_t n, bool ended, struct dt_tool_calls *ret)
{
	static const char open[] = "<think>", close[] = "</think>";
	struct cursor c = {s, s + n};
	size_t left, len;

	ret->thought = NULL;
	ret->nthought = 0;
	if (n > 0 && (may_be(c, "<|channel|>", ended)))
		return channels(c, ended, ret);
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
