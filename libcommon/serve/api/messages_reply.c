/* Replies in the format of Anthropic's Messages API: whole, and as events. */
#include "serve/api/messages.h"

#include "serve/api/priv.h"

#include <errno.h>
#include <string.h>

json_t *dt_messages_error(const struct dt_api_error *e)
{
	static const struct {
		int status;
		const char *type;
	} known[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
		     {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"}};
	const char *type = e->status < 500 ? "invalid_request_error" : "api_error";
	json_t *v = dt_api_error_json(e), *ret;

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].status == e->status)
			type = known[i].type;
	ret = json_pack("{s:s, s:{s:s, s:O?}}", "type", "error", "error", "type", type, "message",
			json_object_get(json_object_get(v, "error"), "message"));
	json_decref(v);
	return ret;
}

static json_t *usage(const struct dt_completion *c)
{
	const struct dt_serve_req *r = &c->call->req[0];

	return json_pack("{s:i, s:i, s:i, s:i}", "input_tokens", r->nprompt - r->cached,
			 "cache_creation_input_tokens", 0, "cache_read_input_tokens", r->cached,
			 "output_tokens", r->nout);
}

static const char *stop_reason(const struct dt_completion *c, const struct dt_tool_calls *calls)
{
	const struct dt_serve_req *r = &c->call->req[0];

	if (r->finish == DT_FINISH_LENGTH)
		return "max_tokens";
	if (calls->n > 0)
		return "tool_use";
	return r->detok.stopped >= 0 ? "stop_sequence" : "end_turn";
}

static json_t *stop_sequence(const struct dt_completion *c)
{
	const struct dt_serve_req *r = &c->call->req[0];

	return r->detok.stopped >= 0
		       ? json_stringn(r->ask->stop[r->detok.stopped].s, r->ask->stop[r->detok.stopped].n)
		       : json_null();
}

/*
 * {"type": "tool_use", "id", "name", "input"}; input is empty at the beginning of a stream, and if the call
 * was cut off.
 */
static json_t *tool_use(const struct dt_completion *c, int k, const struct dt_tool_call *call, bool whole)
{
	json_t *input = whole && call->whole ? json_loadb(call->args, call->nargs, 0, NULL) : NULL;
	char id[64];

	snprintf(id, sizeof(id), "toolu_%s_%d", strchr(c->id, '-') + 1, k);
	return json_pack("{s:s, s:s, s:o, s:o}", "type", "tool_use", "id", id, "name",
			 dt_api_text(call->name, call->nname), "input", input ? input : json_object());
}

static json_t *message(const struct dt_completion *c, json_t *content, json_t *why, json_t *sequence)
{
	char id[48];

	snprintf(id, sizeof(id), "msg_%s", strchr(c->id, '-') + 1);
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", id, "type", "message", "role",
			 "assistant", "model", c->model, "content", content, "stop_reason", why,
			 "stop_sequence", sequence, "usage", usage(c));
}

json_t *dt_messages_json(const struct dt_completion *c, struct dt_api_error *e)
{
	const struct dt_serve_req *r = &c->call->req[0];
	json_t *content = json_array(), *v;
	struct dt_tool_calls calls;

	if (dt_completion_failed(r, e)) {
		json_decref(content);
		return NULL;
	}
	dt_api_calls(c, 0, &calls);
	if (calls.thought)
		json_array_append_new(content,
				      json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
						dt_api_text(calls.thought, calls.nthought), "signature", ""));
	if (calls.content > calls.from || calls.n == 0)
		json_array_append_new(content, json_pack("{s:s, s:o}", "type", "text", "text",
							 dt_api_text(dt_detok_from(&r->detok, calls.from),
								     calls.content - calls.from)));
	for (int k = 0; k < calls.n; k++)
		json_array_append_new(content, tool_use(c, k, &calls.call[k], true));
	v = message(c, content, json_string(stop_reason(c, &calls)), stop_sequence(c));
	if (!v)
		dt_api_fail(e, 500, "server_error", NULL, "out of memory");
	return v;
}

/* ---- events ---- */

static int emit(FILE *f, const char *name, json_t *v)
{
	int rc;

	if (!v)
		return -ENOMEM;
	json_object_set_new(v, "type", json_string(name));
	fprintf(f, "event: %s\ndata: ", name);
	rc = json_dumpf(v, f, JSON_COMPACT);
	fputs("\n\n", f);
	json_decref(v);
	return rc < 0 ? -ENOMEM : 0;
}

static int open_block(struct dt_sse_at *at, json_t *block, FILE *f)
{
	at->open = true;
	return emit(f, "content_block_start",
		    json_pack("{s:i, s:o}", "index", at->blocks, "content_block", block));
}

static int close_block(struct dt_sse_at *at, FILE *f)
{
	if (!at->open)
		return 0;
	at->open = false;
	return emit(f, "content_block_stop", json_pack("{s:i}", "index", at->blocks++));
}

static int delta(struct dt_sse_at *at, const char *type, const char *key, const char *s, size_t n, FILE *f)
{
	return emit(f, "content_block_delta",
		    json_pack("{s:i, s:{s:s, s:o}}", "index", at->blocks, "delta", "type", type, key,
			      dt_api_text(s, n)));
}

static int thought_news(struct dt_sse_at *at, const struct dt_tool_calls *calls, FILE *f)
{
	int rc = 0;

	if (calls->nthought == at->thought)
		return 0;
	if (!at->thinking)
		rc = open_block(
			at, json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""),
			f);
	at->thinking = true;
	if (rc == 0)
		rc = delta(at, "thinking_delta", "thinking", calls->thought + at->thought,
			   calls->nthought - at->thought, f);
	at->thought = calls->nthought;
	return rc;
}

static int text_news(struct dt_sse_at *at, const struct dt_tool_calls *calls, const char *text, FILE *f)
{
	size_t from = at->sent > calls->from ? at->sent : calls->from;
	int rc = 0;

	if (calls->content <= from)
		return 0;
	if (at->thinking && at->open && at->sent == 0)
		rc = close_block(at, f);
	if (rc == 0 && !at->open)
		rc = open_block(at, json_pack("{s:s, s:s}", "type", "text", "text", ""), f);
	at->sent = calls->content;
	return rc < 0 ? rc : delta(at, "text_delta", "text", text + from, calls->content - from, f);
}

static int calls_news(struct dt_sse *s, const struct dt_tool_calls *calls, FILE *f)
{
	struct dt_sse_at *at = &s->at[0];
	int rc = 0;

	for (int k = at->calls > 0 ? at->calls - 1 : 0; k < calls->n && rc == 0; k++) {
		size_t from = k == at->calls - 1 ? at->args : 0;

		if (k >= at->calls) {
			rc = close_block(at, f);
			if (rc == 0)
				rc = open_block(at, tool_use(s->c, k, &calls->call[k], false), f);
			at->calls = k + 1;
		}
		if (rc == 0 && calls->call[k].nargs > from)
			rc = delta(at, "input_json_delta", "partial_json", calls->call[k].args + from,
				   calls->call[k].nargs - from, f);
		at->args = calls->call[k].nargs;
	}
	return rc;
}

static int end(struct dt_sse *s, const struct dt_tool_calls *calls, FILE *f)
{
	struct dt_sse_at *at = &s->at[0];
	int rc = close_block(at, f);

	at->done = true;
	if (rc == 0)
		rc = emit(f, "message_delta",
			  json_pack("{s:{s:s, s:o}, s:o}", "delta", "stop_reason", stop_reason(s->c, calls),
				    "stop_sequence", stop_sequence(s->c), "usage", usage(s->c)));
	return rc < 0 ? rc : emit(f, "message_stop", json_object());
}

int dt_messages_news(struct dt_sse *s, const struct dt_api_error *failed, FILE *f)
{
	const struct dt_serve_req *r = &s->c->call->req[0];
	struct dt_sse_at *at = &s->at[0];
	bool ended = r->finish != DT_FINISH_NONE;
	struct dt_tool_calls calls;
	int rc = 0;

	if (failed)
		return emit(f, "error", dt_messages_error(failed));
	if (!at->begun) {
		at->begun = true;
		rc = emit(
			f, "message_start",
			json_pack("{s:o}", "message", message(s->c, json_array(), json_null(), json_null())));
	}
	dt_api_calls(s->c, 0, &calls);
	if (rc == 0)
		rc = thought_news(at, &calls, f);
	if (rc == 0)
		rc = text_news(at, &calls, r->detok.text, f);
	if (rc == 0)
		rc = calls_news(s, &calls, f);
	at->ready = r->detok.ready;
	return rc == 0 && ended ? end(s, &calls, f) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
