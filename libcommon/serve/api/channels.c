/*
 * Finds reasoning, content and calls in the messages of harmony (gpt-oss). A message is a header and a text,
 * [<|start|>assistant][ to=NAME][<|channel|>CHANNEL[ to=NAME] TYPE]<|message|>TEXT<|end|>; the prompt ends
 * behind the first message's <|start|>assistant.
 */
#include "serve/api/tools.h"

#include <string.h>

#define START	"<|start|>assistant"
#define CHANNEL "<|channel|>"
#define MESSAGE "<|message|>"
#define END	"<|end|>"

struct answer {
	const char *s;
	size_t n;
	bool ended, calls;
	bool inside; /* the first header begins behind "to" */
};

struct message {
	size_t text;	  /* where its text begins */
	const char *name; /* [nname] of a tool, NULL: it is no call */
	size_t nname;
	bool shown; /* for the user */
};

enum header { HEADER_NONE, HEADER_CUT, HEADER_CUT_CALL, HEADER_WHOLE };

static bool begins(const struct answer *a, size_t at, const char *with)
{
	const size_t n = strlen(with);

	return a->n - at >= n && !memcmp(a->s + at, with, n);
}

/* Whether it ends within `with`, and more may come. */
static bool may_begin(const struct answer *a, size_t at, const char *with)
{
	const size_t left = a->n - at;

	return !a->ended && left < strlen(with) && !memcmp(a->s + at, with, left);
}

/*
 * Where the name behind " to=" begins in s [at, n); inside: behind "=". n: nowhere. *cut: so far, because s
 * ends before the name.
 */
static size_t receiver(const char *s, size_t at, size_t n, bool inside, bool *cut)
{
	const char *to = inside ? s + at : memmem(s + at, n - at, " to", 3);

	*cut = false;
	if (!to)
		return n;
	at = (size_t)(to - s) + (inside ? 0 : 3);
	at += dt_tools_blanks(s + at, n - at);
	if (at < n && s[at] != '=')
		return n;
	if (at < n)
		at += 1 + dt_tools_blanks(s + at + 1, n - at - 1);
	*cut = at == n;
	return at;
}

/* Reads who receives the message of which this is the header. */
static void read_receiver(const char *s, size_t at, size_t n, bool inside, struct message *ret)
{
	static const char space[] = "functions.";
	const size_t len = strlen(space);
	bool cut;

	at = receiver(s, at, n, inside, &cut);
	if (at == n)
		return;
	if (n - at >= len && !memcmp(s + at, space, len))
		at += len;
	ret->name = s + at;
	while (at < n && !strchr(" \t\r\n<", s[at]))
		at++;
	ret->nname = (size_t)(s + at - ret->name);
}

/* Reads the header at *from, which moves behind <|start|>assistant. */
static enum header read_header(const struct answer *a, size_t *from, struct message *ret)
{
	const bool inside = a->inside && *from == 0;
	size_t at = *from;
	const char *message, *channel;
	size_t end, name;
	bool cut = false;

	if (begins(a, at, START))
		at = *from = at + strlen(START);
	if (at == a->n || may_begin(a, at, START))
		return HEADER_CUT;
	name = a->calls ? receiver(a->s, at, begins(a, at, " to") || inside ? a->n : at, inside, &cut) : at;
	if (!inside && !begins(a, at, CHANNEL) && (name <= at || name == a->n) && (!cut || a->ended))
		return may_begin(a, at, CHANNEL) || (a->calls && may_begin(a, at, " to=")) ? HEADER_CUT
											   : HEADER_NONE;
	message = memmem(a->s + at, a->n - at, MESSAGE, strlen(MESSAGE));
	end = message ? (size_t)(message - a->s) : a->n;
	*ret = (struct message){.text = end + strlen(MESSAGE)};
	if (a->calls)
		read_receiver(a->s, at, end, inside, ret);
	if (!message)
		return ret->name || inside ? HEADER_CUT_CALL : HEADER_CUT;
	channel = memmem(a->s + at, end - at, CHANNEL, strlen(CHANNEL));
	at = channel ? (size_t)(channel - a->s) + strlen(CHANNEL) : end;
	ret->shown = (end - at >= 5 && !memcmp(a->s + at, "final", 5)) ||
		     (a->calls && end - at >= 10 && !memcmp(a->s + at, "commentary", 10));
	return HEADER_WHOLE;
}

/* Reads the call of which this is the header; returns where the text after it begins, n: it is not whole. */
static size_t read_call(const struct answer *a, const struct message *m, struct dt_tool_calls *ret)
{
	struct dt_tool_call *c = &ret->call[ret->n];
	const char *next;
	size_t at;

	*c = (struct dt_tool_call){.name = m->name, .nname = m->nname};
	c->nargs = dt_tools_object(a->s + m->text, a->n - m->text, &c->args, &c->whole);
	if (c->nargs == 0)
		return a->n;
	ret->n++;
	if (!c->whole)
		return a->n;
	at = (size_t)(c->args - a->s) + c->nargs;
	next = memmem(a->s + at, a->n - at, START, strlen(START));
	return next ? (size_t)(next - a->s) : a->n;
}

/* Everything up to `to` that is not in front of the content is content. */
static void show(struct dt_tool_calls *ret, bool *shown, size_t from, size_t to)
{
	if (!*shown)
		ret->from = from;
	ret->content = to;
	*shown = true;
}

void dt_tools_channels(bool calls, bool inside, const char *s, size_t n, bool ended,
		       struct dt_tool_calls *ret)
{
	const struct answer a = {s, n, ended, calls, inside};
	bool shown = false; /* content began */
	size_t at = 0;

	*ret = (struct dt_tool_calls){0};
	while (at < n && ret->n < DT_CALLS_MAX) {
		struct message m;
		const enum header h = read_header(&a, &at, &m);
		const int before = ret->n;
		size_t len;

		if (h == HEADER_CUT_CALL && ended && before == 0) /* no call after all: it is text */
			show(ret, &shown, at, n);
		if (h == HEADER_NONE && before == 0) /* as of an answer that continues a message */
			m = (struct message){.text = at, .shown = true};
		else if (h != HEADER_WHOLE)
			break;
		if (m.name) {
			const size_t next = read_call(&a, &m, ret);

			if (ret->n == before && ended && before == 0)
				show(ret, &shown, at, n);
			if (ret->n == before)
				break;
			if (!shown)
				show(ret, &shown, at, at);
			at = next;
			continue;
		}
		len = m.shown && !calls ? n - m.text : dt_tools_before(s + m.text, n - m.text, END, ended);
		if (m.shown && before == 0)
			show(ret, &shown, m.text, m.text + len);
		if (!m.shown && !ret->thought) {
			ret->thought = s + m.text;
			ret->nthought = dt_tools_trimmed(s + m.text, len);
		}
		at = m.text + len + strlen(END) < n ? m.text + len + strlen(END) : n;
	}
	if (!shown)
		ret->from = ret->content = at;
}
/* SPDX-License-Identifier: Apache-2.0 */
