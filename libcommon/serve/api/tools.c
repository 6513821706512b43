/* Finds calls in the text of an answer. */
#include "serve/api/tools.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/*
 * DeepSeek: the separator stands between a call's type and its name; the arguments are in a fenced block. The
 * text ends before the first call.
 */
#define DEEPSEEK_SEP   "<｜tool▁sep｜>"
#define DEEPSEEK_CALLS "<｜tool▁call"
#define FENCE	       DT_TOOLS_FENCE

const struct dt_tools_opening *dt_tools_opening(enum dt_tool_form form)
{
	static const struct dt_tools_opening opening[] = {
		[DT_TOOLS_HERMES] = {.text = {"<tool_call>"}},
		[DT_TOOLS_LLAMA3] = {.text = {""}},
		[DT_TOOLS_MISTRAL] = {.text = {"[TOOL_CALLS]"}},
		[DT_TOOLS_DEEPSEEK] = {.text = {DEEPSEEK_SEP}},
		/* the receiver is in either part of a header, of which the prompt may have the first */
		[DT_TOOLS_HARMONY] = {.text = {"<|channel|>commentary to", "<|channel|>analysis to",
					       "<|start|>assistant to"},
				      .first = " to",
				      .once = true},
	};

	return &opening[form];
}

struct cursor {
	const char *s, *end;
};

size_t dt_tools_blanks(const char *s, size_t n)
{
	size_t i = 0;

	while (i < n && strchr(" \t\r\n", s[i]))
		i++;
	return i;
}

static void skip_space(struct cursor *c)
{
	c->s += dt_tools_blanks(c->s, (size_t)(c->end - c->s));
}

static bool eat(struct cursor *c, char b)
{
	skip_space(c);
	if (c->s == c->end || *c->s != b)
		return false;
	c->s++;
	return true;
}

/* Reads the contents of a string. false: it is incomplete. */
static bool string(struct cursor *c, const char **ret, size_t *ret_n)
{
	if (!eat(c, '"'))
		return false;
	*ret = c->s;
	for (; c->s < c->end; c->s++) {
		if (*c->s == '\\') {
			c->s++;
		} else if (*c->s == '"') {
			*ret_n = (size_t)(c->s - *ret);
			c->s++;
			return true;
		}
	}
	c->s = c->end;
	return false;
}

/* Reads an object as far as it is there; true: it is complete. */
static bool object(struct cursor *c, const char **ret, size_t *ret_n)
{
	size_t depth = 0, skip;
	const char *inner;

	skip_space(c);
	*ret = c->s;
	*ret_n = 0;
	if (c->s == c->end || *c->s != '{')
		return false;
	while (c->s < c->end) {
		if (*c->s == '"') {
			if (!string(c, &inner, &skip))
				break;
			continue;
		}
		depth += *c->s == '{' || *c->s == '[';
		depth -= *c->s == '}' || *c->s == ']';
		c->s++;
		if (depth == 0) {
			*ret_n = (size_t)(c->s - *ret);
			return true;
		}
	}
	*ret_n = (size_t)(c->end - *ret);
	return false;
}

size_t dt_tools_object(const char *s, size_t n, const char **ret, bool *whole)
{
	struct cursor c = {s, s + n};
	size_t len;

	*whole = object(&c, ret, &len);
	return len;
}

/* Reads {"name": ..., KEY: {...}}. false: there is no call, or not enough of it yet. */
static bool call(struct cursor *c, struct dt_tool_call *ret)
{
	const char *key;
	size_t n;

	*ret = (struct dt_tool_call){0};
	if (!eat(c, '{') || !string(c, &key, &n) || n != 4 || memcmp(key, "name", 4) || !eat(c, ':') ||
	    !string(c, &ret->name, &ret->nname) || !eat(c, ',') || !string(c, &key, &n) || !eat(c, ':'))
		return false;
	ret->whole = object(c, &ret->args, &ret->nargs);
	if (ret->whole)
		eat(c, '}');
	return ret->nargs > 0;
}

/* Reads NAME, an opening fence, {...}, a closing fence. false as above. */
static bool fenced_call(struct cursor *c, struct dt_tool_call *ret)
{
	const size_t len = strlen(FENCE);
	const char *end;

	*ret = (struct dt_tool_call){0};
	skip_space(c);
	end = memchr(c->s, '\n', (size_t)(c->end - c->s));
	if (!end)
		return false;
	ret->name = c->s;
	ret->nname = (size_t)(end - c->s);
	while (ret->nname > 0 && strchr(" \t\r", c->s[ret->nname - 1]))
		ret->nname--;
	c->s = end;
	skip_space(c);
	if (ret->nname == 0 || (size_t)(c->end - c->s) < len || memcmp(c->s, FENCE, len))
		return false;
	c->s += len;
	ret->whole = object(c, &ret->args, &ret->nargs);
	return ret->nargs > 0;
}

/* Finds calls behind separators; inside: the first call begins at once. */
static void scan_fenced(struct cursor c, bool inside, struct dt_tool_calls *ret)
{
	while (ret->n < DT_CALLS_MAX) {
		const char *sep = memmem(c.s, (size_t)(c.end - c.s), DEEPSEEK_SEP, strlen(DEEPSEEK_SEP));

		if (!inside && !sep)
			break;
		c.s = inside ? c.s : sep + strlen(DEEPSEEK_SEP);
		inside = false;
		if (!fenced_call(&c, &ret->call[ret->n]) || !ret->call[ret->n++].whole)
			break;
	}
}

/* Bytes of s [n] before mark, or before a suffix that may become mark. */
size_t dt_tools_before(const char *s, size_t n, const char *mark, bool ended)
{
	size_t len = strlen(mark);
	const char *at = memmem(s, n, mark, len);

	if (at)
		return (size_t)(at - s);
	for (size_t k = n < len ? n : len - 1; k > 0 && !ended; k--)
		if (!memcmp(s + n - k, mark, k))
			return n - k;
	return n;
}

size_t dt_tools_trimmed(const char *s, size_t n)
{
	while (n > 0 && strchr(" \t\r\n", s[n - 1]))
		n--;
	return n;
}

void dt_tools_scan(enum dt_tool_form form, bool inside, const char *s, size_t n, bool ended,
		   struct dt_tool_calls *ret)
{
	const char *opening = form == DT_TOOLS_DEEPSEEK ? DEEPSEEK_CALLS
			      : form == DT_TOOLS_LLAMA3 ? NULL
							: dt_tools_opening(form)->text[0];
	struct cursor c = {s, s + n};
	size_t at;

	if (form == DT_TOOLS_HARMONY) {
		dt_tools_channels(true, inside, s, n, ended, ret);
		return;
	}
	ret->n = 0;
	ret->from = ret->content = 0;
	if (!inside && opening) {
		at = dt_tools_before(s, n, opening, ended);
		ret->content = at == n && ended ? n : dt_tools_trimmed(s, at);
		c.s = s + (at + strlen(opening) < n ? at + strlen(opening) : n);
		if (at == n)
			return;
	} else if (!opening) {
		skip_space(&c);
		if (c.s < c.end && *c.s != '{') {
			ret->content = n;
			return;
		}
	}
	if (form == DT_TOOLS_MISTRAL)
		eat(&c, '[');
	if (form == DT_TOOLS_DEEPSEEK)
		scan_fenced(c, inside, ret);
	while (form != DT_TOOLS_DEEPSEEK && ret->n < DT_CALLS_MAX && call(&c, &ret->call[ret->n])) {
		if (!ret->call[ret->n++].whole)
			break;
		if (form == DT_TOOLS_HERMES) {
			const char *next = memmem(c.s, (size_t)(c.end - c.s), opening, strlen(opening));

			c.s = next ? next + strlen(opening) : c.end;
		} else if (!eat(&c, form == DT_TOOLS_MISTRAL ? ',' : ';')) {
			break;
		}
	}
	if (ret->n == 0 && ended) /* no call after all: it is text */
		ret->content = n;
}
/* SPDX-License-Identifier: Apache-2.0 */
