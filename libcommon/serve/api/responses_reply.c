/* Replies in the format of OpenAI's Responses API: items, whole and as events. */
#include "serve/api/responses.h"

#include "serve/api/priv.h"

#include <errno.h>
#include <string.h>

static const char *tail(const struct dt_completion *c)
{
	return strchr(c->id, '-') + 1;
}

/*
 * Status of a finished item. open: it is the last one, and its format does not show whether it is complete.
 */
static const char *over(const struct dt_completion *c, bool open)
{
	return open && c->call->req[0].finish == DT_FINISH_LENGTH ? "incomplete" : "completed";
}

static json_t *reasoning_item(const struct dt_completion *c, const struct dt_tool_calls *calls)
{
	const bool last = calls->content == calls->from && calls->n == 0;
	char id[48];

	snprintf(id, sizeof(id), "rs_%s", tail(c));
	return json_pack("{s:s, s:s, s:[], s:[{s:s, s:o}], s:s}", "id", id, "type", "reasoning", "summary",
			 "content", "type", "reasoning_text", "text",
			 dt_api_text(calls->thought, calls->nthought), "status", over(c, last));
}

static json_t *text_part(const char *s, size_t n)
{
	return json_pack("{s:s, s:o, s:[]}", "type", "output_text", "text", dt_api_text(s, n), "annotations");
}

/* part: its content part; NULL: none yet. status NULL: in progress. */
static json_t *message_item(const struct dt_completion *c, json_t *part, const char *status)
{
	json_t *content = json_array();
	char id[48];

	snprintf(id, sizeof(id), "msg_%s", tail(c));
	if (part)
		json_array_append_new(content, part);
	return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status",
			 status ? status : "in_progress", "role", "assistant", "content", content);
}

static json_t *call_item(const struct dt_completion *c, int k, const struct dt_tool_call *call, bool done)
{
	char id[64], call_id[64];

	snprintf(id, sizeof(id), "fc_%s_%d", tail(c), k);
	snprintf(call_id, sizeof(call_id), "call_%s_0_%d", tail(c), k);
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "id", id, "type", "function_call", "status",
			 done ? over(c, !call->whole) : "in_progress", "call_id", call_id, "name",
			 dt_api_text(call->name, call->nname), "arguments",
			 dt_api_text(done ? call->args : "", done ? call->nargs : 0));
}

static json_t *usage(const struct dt_serve_req *r)
{
	return json_pack("{s:i, s:{s:i, s:i}, s:i, s:{s:i}, s:i}", "input_tokens", r->nprompt,
			 "input_tokens_details", "cached_tokens", r->cached, "cache_write_tokens", 0,
			 "output_tokens", r->nout, "output_tokens_details", "reasoning_tokens", 0,
			 "total_tokens", r->nprompt + r->nout);
}

/* A parameter of the request, or its default. */
static json_t *asked(const struct dt_completion *c, const char *key, json_t *otherwise)
{
	json_t *v = json_object_get(c->asked, key);

	if (!v)
		return otherwise;
	json_decref(otherwise);
	return json_incref(v);
}

/* The response object; steals output. */
static json_t *response(const struct dt_completion *c, json_t *output, bool done)
{
	const struct dt_serve_req *r = &c->call->req[0];
	const struct dt_sampling *s = &c->call->ask.sampling;
	bool cut = r->finish == DT_FINISH_LENGTH;
	char id[48];
	json_t *v;

	snprintf(id, sizeof(id), "resp_%s", tail(c));
	v = json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:n, s:f, s:f, s:b, s:s, s:n}", "id", id, "object",
		      "response", "created_at", (json_int_t)c->created, "status",
		      !done ? "in_progress"
		      : cut ? "incomplete"
			    : "completed",
		      "model", c->model, "output", output, "error", "temperature", s->temperature, "top_p",
		      s->top_p, "store", 0, "truncation", "disabled", "previous_response_id");
	json_object_set_new(v, "incomplete_details",
			    done && cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null());
	json_object_set_new(v, "instructions", asked(c, "instructions", json_null()));
	json_object_set_new(v, "max_output_tokens", asked(c, "max_output_tokens", json_null()));
	json_object_set_new(v, "metadata", asked(c, "metadata", json_object()));
	json_object_set_new(v, "tools", asked(c, "tools", json_array()));
	json_object_set_new(v, "tool_choice", asked(c, "tool_choice", json_string("auto")));
	json_object_set_new(v, "parallel_tool_calls", asked(c, "parallel_tool_calls", json_true()));
	json_object_set_new(v, "text", asked(c, "text", json_pack("{s:{s:s}}", "format", "type", "text")));
	json_object_set_new(v, "usage", done ? usage(r) : json_null());
	return v;
}

static json_t *items(const struct dt_completion *c, const struct dt_tool_calls *calls)
{
	const char *text = dt_detok_from(&c->call->req[0].detok, calls->from);
	json_t *out = json_array();

	if (calls->thought)
		json_array_append_new(out, reasoning_item(c, calls));
	if (calls->content > calls->from || calls->n == 0)
		json_array_append_new(out, message_item(c, text_part(text, calls->content - calls->from),
							over(c, calls->n == 0)));
	for (int k = 0; k < calls->n; k++)
		json_array_append_new(out, call_item(c, k, &calls->call[k], true));
	return out;
}

json_t *dt_responses_json(const struct dt_completion *c, struct dt_api_error *e)
{
	struct dt_tool_calls calls;
	json_t *v;

	if (dt_completion_failed(&c->call->req[0], e))
		return NULL;
	dt_api_calls(c, 0, &calls);
	v = response(c, items(c, &calls), true);
	if (!v)
		dt_api_fail(e, 500, "server_error", NULL, "out of memory");
	return v;
}

/* ---- events ---- */

static int emit(struct dt_sse_at *at, FILE *f, const char *name, json_t *v)
{
	int rc;

	if (!v)
		return -ENOMEM;
	json_object_set_new(v, "type", json_string(name));
	json_object_set_new(v, "sequence_number", json_integer(at->events++));
	fprintf(f, "event: %s\ndata: ", name);
	rc = json_dumpf(v, f, JSON_COMPACT);
	fputs("\n\n", f);
	json_decref(v);
	return rc < 0 ? -ENOMEM : 0;
}

static json_t *item_event(const struct dt_sse_at *at, json_t *item)
{
	return json_pack("{s:i, s:o}", "output_index", at->blocks, "item", item);
}

/* {"item_id", "output_index", "content_index", KEY: value} of the message item. */
static json_t *part_event(const struct dt_completion *c, const struct dt_sse_at *at, const char *key,
			  json_t *value)
{
	char id[48];

	snprintf(id, sizeof(id), "msg_%s", tail(c));
	return json_pack("{s:s, s:i, s:i, s:o}", "item_id", id, "output_index", at->blocks, "content_index",
			 0, key, value);
}

/* The same for a part of the text, with the log-probabilities that clients require; there are none. */
static json_t *text_event(const struct dt_completion *c, const struct dt_sse_at *at, const char *key,
			  json_t *text)
{
	json_t *v = part_event(c, at, key, text);

	json_object_set_new(v, "logprobs", json_array());
	return v;
}

static json_t *call_event(const struct dt_completion *c, const struct dt_sse_at *at, int k, const char *key,
			  json_t *value)
{
	char id[64];

	snprintf(id, sizeof(id), "fc_%s_%d", tail(c), k);
	return json_pack("{s:s, s:i, s:o}", "item_id", id, "output_index", at->blocks, key, value);
}

/* Closes the open item: the message, or the last tool call begun. */
static int close_item(struct dt_sse *s, const struct dt_tool_calls *calls, FILE *f)
{
	struct dt_sse_at *at = &s->at[0];
	const char *text = dt_detok_from(&s->c->call->req[0].detok, calls->from);
	size_t n = calls->content - calls->from;
	int k = at->calls - 1, rc = 0;

	if (!at->open)
		return 0;
	at->open = false;
	if (k >= 0) {
		const struct dt_tool_call *call = &calls->call[k];

		json_t *done = call_event(s->c, at, k, "arguments", dt_api_text(call->args, call->nargs));

		json_object_set_new(done, "name", dt_api_text(call->name, call->nname));
		rc |= emit(at, f, "response.function_call_arguments.done", done);
		rc |= emit(at, f, "response.output_item.done",
			   item_event(at, call_item(s->c, k, call, true)));
	} else {
		rc |= emit(at, f, "response.output_text.done",
			   text_event(s->c, at, "text", dt_api_text(text, n)));
		rc |= emit(at, f, "response.content_part.done",
			   part_event(s->c, at, "part", text_part(text, n)));
		rc |= emit(at, f, "response.output_item.done",
			   item_event(at, message_item(s->c, text_part(text, n), over(s->c, calls->n == 0))));
	}
	at->blocks++;
	return rc ? -ENOMEM : 0;
}

/* Sends the reasoning item as a whole, when the reasoning has ended. */
static int thought_news(struct dt_sse *s, const struct dt_tool_calls *calls, bool ended, FILE *f)
{
	struct dt_sse_at *at = &s->at[0];
	int rc;

	if (!calls->thought || at->thinking || (!ended && calls->content == calls->from && calls->n == 0))
		return 0;
	at->thinking = true;
	rc = emit(at, f, "response.output_item.added", item_event(at, reasoning_item(s->c, calls)));
	rc |= emit(at, f, "response.output_item.done", item_event(at, reasoning_item(s->c, calls)));
	at->blocks++;
	return rc ? -ENOMEM : 0;
}

static int text_news(struct dt_sse *s, const struct dt_tool_calls *calls, FILE *f)
{
	struct dt_sse_at *at = &s->at[0];
	const char *text = s->c->call->req[0].detok.text;
	size_t from = at->sent > calls->from ? at->sent : calls->from;
	int rc = 0;

	if (calls->content <= from)
		return 0;
	if (!at->open) {
		at->open = true;
		rc |= emit(at, f, "response.output_item.added",
			   item_event(at, message_item(s->c, NULL, NULL)));
		rc |= emit(at, f, "response.content_part.added",
			   part_event(s->c, at, "part", text_part("", 0)));
	}
	rc |= emit(at, f, "response.output_text.delta",
		   text_event(s->c, at, "delta", dt_api_text(text + from, calls->content - from)));
	at->sent = calls->content;
	return rc ? -ENOMEM : 0;
}

static int calls_news(struct dt_sse *s, const struct dt_tool_calls *calls, FILE *f)
{
	struct dt_sse_at *at = &s->at[0];
	int rc = 0;

	for (int k = at->calls > 0 ? at->calls - 1 : 0; k < calls->n && rc == 0; k++) {
		size_t from = k == at->calls - 1 ? at->args : 0;

		if (k >= at->calls) {
			rc |= close_item(s, calls, f);
			at->open = true;
			at->calls = k + 1;
			rc |= emit(at, f, "response.output_item.added",
				   item_event(at, call_item(s->c, k, &calls->call[k], false)));
		}
		if (calls->call[k].nargs > from)
			rc |= emit(at, f, "response.function_call_arguments.delta",
				   call_event(s->c, at, k, "delta",
					      dt_api_text(calls->call[k].args + from,
							  calls->call[k].nargs - from)));
		at->args = calls->call[k].nargs;
	}
	return rc ? -ENOMEM : 0;
}

#define EVENT_BYTES 512 /* upper bound of an event without texts and parameters */

size_t dt_responses_again(const struct dt_sse *s)
{
	const struct dt_serve_req *r = &s->c->call->req[0];
	const struct dt_sse_at *at = &s->at[0];
	const bool ended = r->finish != DT_FINISH_NONE;
	/* a response object with the parameters of the request */
	const size_t whole = 2 * EVENT_BYTES + strlen(s->c->model) +
			     (s->c->asked ? json_dumpb(s->c->asked, NULL, 0, JSON_COMPACT) : 0);
	struct dt_tool_calls calls;
	size_t cost = at->begun ? 0 : 2 * whole + 2 * EVENT_BYTES;

	dt_api_calls(s->c, 0, &calls);
	if (calls.n > at->calls || ended) /* items are closed: their texts come three times more */
		cost += (size_t)(calls.n - at->calls + 1) * 4 * EVENT_BYTES + 24 * r->detok.ready;
	else if (calls.thought && !at->thinking && calls.content > calls.from)
		cost += 2 * EVENT_BYTES + 16 * calls.nthought;
	if (ended) /* and once in the response */
		cost += whole + (size_t)(calls.n + 2) * EVENT_BYTES + 8 * r->detok.ready;
	return cost;
}

int dt_responses_news(struct dt_sse *s, const struct dt_api_error *failed, FILE *f)
{
	const struct dt_serve_req *r = &s->c->call->req[0];
	struct dt_sse_at *at = &s->at[0];
	bool ended = r->finish != DT_FINISH_NONE;
	struct dt_tool_calls calls;
	int rc = 0;

	if (failed)
		return emit(
			at, f, "error",
			json_pack("{s:s?, s:s, s:n}", "code", failed->code, "message", failed->msg, "param"));
	if (!at->begun) {
		at->begun = true;
		rc |= emit(at, f, "response.created",
			   json_pack("{s:o}", "response", response(s->c, json_array(), false)));
		rc |= emit(at, f, "response.in_progress",
			   json_pack("{s:o}", "response", response(s->c, json_array(), false)));
	}
	dt_api_calls(s->c, 0, &calls);
	if (rc == 0)
		rc = thought_news(s, &calls, ended, f);
	if (rc == 0)
		rc = text_news(s, &calls, f);
	if (rc == 0)
		rc = calls_news(s, &calls, f);
	at->ready = r->detok.ready;
	if (rc < 0 || !ended)
		return rc;
	at->done = true;
	rc = close_item(s, &calls, f);
	return rc < 0 ? rc
		      : emit(at, f,
			     r->finish == DT_FINISH_LENGTH ? "response.incomplete" : "response.completed",
			     json_pack("{s:o}", "response", response(s->c, items(s->c, &calls), true)));
}
/* SPDX-License-Identifier: Apache-2.0 */
