/* Formats conversations as harmony, the template of gpt-oss. */
#include "data/chat_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void begin(struct dt_chat_out *o, const char *role)
{
	dt_chat_special(o, "<|start|>");
	dt_chat_put(o, role);
	dt_chat_special(o, "<|message|>");
}

/* The template's own system message, with today's date. */
static void put_system(struct dt_chat_out *o)
{
	const time_t now = time(NULL);
	char date[16] = "";
	struct tm day;

	if (localtime_r(&now, &day))
		strftime(date, sizeof(date), "%Y-%m-%d", &day);
	begin(o, "system");
	dt_chat_put(o,
		    "You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
		    "Current date: ");
	dt_chat_put(o, date);
	dt_chat_put(o, "\n\nReasoning: ");
	dt_chat_put(o, o->c->effort ? o->c->effort : "medium");
	dt_chat_put(o, "\n\n# Valid channels: analysis, commentary, final. Channel must be "
		       "included for every message.");
	if (o->tools)
		dt_chat_put(o, "\nCalls to these tools must go to the commentary channel: 'functions'.");
	dt_chat_special(o, "<|end|>");
}

/* says: a system message, which becomes the developer's; NULL: none. */
static void put_developer(struct dt_chat_out *o, const struct dt_chat_message *says)
{
	if (!o->tools && !(says && says->n > 0))
		return;
	begin(o, "developer");
	if (says && says->n > 0) {
		dt_chat_put(o, "# Instructions\n\n");
		dt_chat_put_n(o, says->s, says->n);
		dt_chat_put(o, "\n\n");
	}
	if (o->tools)
		dt_chat_harmony_tools(o);
	dt_chat_special(o, "<|end|>");
}

static const char *name_of(const json_t *call)
{
	return json_string_value(json_object_get(json_object_get(call, "function"), "name"));
}

/* Up to where the assistant itself writes m. */
static void begin_own(struct dt_chat_out *o, const struct dt_chat_message *m)
{
	dt_chat_special(o, "<|start|>");
	dt_chat_put(o, "assistant");
	dt_chat_turn(o, m);
}

/* A part of m in a channel, up to its end. */
static void put_channel(struct dt_chat_out *o, const struct dt_chat_message *m, const char *channel,
			const char *s, size_t n)
{
	begin_own(o, m);
	dt_chat_special(o, "<|channel|>");
	dt_chat_put(o, channel);
	dt_chat_special(o, "<|message|>");
	dt_chat_put_n(o, s, n);
	dt_chat_special(o, "<|end|>");
}

/*
 * Calls, and before them the reasoning, which models read until they have answered. The template takes the
 * content for the reasoning; beside reasoning of its own it is what the guide calls a preamble.
 */
static void put_calls(struct dt_chat_out *o, const struct dt_chat_message *m, bool answered)
{
	const json_t *v;
	size_t i;

	if (m->thought && !answered)
		put_channel(o, m, "analysis", m->thought, strlen(m->thought));
	if (m->n > 0 && (m->thought || !answered))
		put_channel(o, m, m->thought ? "commentary" : "analysis", m->s, m->n);
	json_array_foreach((json_t *)m->calls, i, v)
	{
		const json_t *args = json_object_get(json_object_get(v, "function"), "arguments");
		json_t *parsed = json_loads(json_string_value(args), 0, NULL);

		begin_own(o, m);
		dt_chat_put(o, " to=functions.");
		dt_chat_put(o, name_of(v));
		dt_chat_special(o, "<|channel|>");
		dt_chat_put(o, "commentary json");
		dt_chat_special(o, "<|message|>");
		dt_chat_json(o, parsed, 0);
		dt_chat_special(o, "<|call|>");
		json_decref(parsed);
	}
	dt_chat_turn(o, NULL);
}

/* The result of one of the calls of `last`, as JSON: a text in quotes. */
static void put_result(struct dt_chat_out *o, const struct dt_chat_message *m,
		       const struct dt_chat_message *last)
{
	const json_t *call = json_array_get(last->calls, json_array_size(last->calls) - 1), *v;
	json_t *text = json_stringn(m->s, m->n);
	size_t i;

	json_array_foreach((json_t *)last->calls, i, v)
	{
		const char *id = json_string_value(json_object_get(v, "id"));

		if (id && m->call_id && !strcmp(id, m->call_id))
			call = v;
	}
	dt_chat_special(o, "<|start|>");
	dt_chat_put(o, "functions.");
	dt_chat_put(o, name_of(call));
	dt_chat_put(o, " to=assistant");
	dt_chat_special(o, "<|channel|>");
	dt_chat_put(o, "commentary");
	dt_chat_special(o, "<|message|>");
	dt_chat_json(o, text, 0);
	dt_chat_special(o, "<|end|>");
	json_decref(text);
}

/* What a user says, or an answer without its reasoning; last: of a complete conversation. */
static void put_said(struct dt_chat_out *o, const struct dt_chat_message *m, bool last)
{
	const bool answer = !strcmp(m->role, "assistant");

	dt_chat_special(o, "<|start|>");
	dt_chat_put(o, m->role);
	dt_chat_turn(o, m == o->open ? NULL : m);
	if (answer) {
		dt_chat_special(o, "<|channel|>");
		dt_chat_put(o, "final");
	}
	dt_chat_special(o, "<|message|>");
	dt_chat_turn(o, m);
	dt_chat_put_n(o, m->s, m->n);
	dt_chat_special(o, answer && last ? "<|return|>" : "<|end|>");
	dt_chat_turn(o, NULL);
}

/* How many messages there are up to the last answer without calls. */
static size_t up_to_answer(const struct dt_chat_message *m, size_t n)
{
	while (n > 0 && (strcmp(m[n - 1].role, "assistant") || m[n - 1].calls))
		n--;
	return n;
}

void dt_chat_harmony(struct dt_chat_out *o, const struct dt_chat_message *m, size_t n)
{
	const bool said = !strcmp(m[0].role, "system");
	const struct dt_chat_message *last = NULL;
	const size_t answered = up_to_answer(m, n);

	put_system(o);
	put_developer(o, said ? &m[0] : NULL);
	for (size_t i = said; i < n && o->rc >= 0; i++) {
		const bool answer = !strcmp(m[i].role, "assistant");

		if (answer)
			last = m[i].calls ? &m[i] : NULL;
		if (m[i].calls)
			put_calls(o, &m[i], i < answered);
		else if (m[i].tool && !last)
			o->rc = dt_err_set(o->err, -EINVAL,
					   "message %zu is a tool's result, but no call precedes it", i);
		else if (m[i].tool)
			put_result(o, &m[i], last);
		else if (answer || !strcmp(m[i].role, "user"))
			put_said(o, &m[i], o->whole && i + 1 == n);
	}
	if (o->whole)
		return;
	dt_chat_special(o, "<|start|>");
	dt_chat_put(o, "assistant");
	if (o->tools && o->tools->open) {
		dt_chat_special(o, "<|channel|>");
		dt_chat_put(o, "commentary to");
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
