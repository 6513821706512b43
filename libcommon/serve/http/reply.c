/* Replies. */
#include "serve/api/messages.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PING_SECONDS 15

json_t *dt_http_body(struct dt_http_req *q, struct dt_api_error *e)
{
	json_error_t je;
	json_t *v = json_loadb(q->body ? q->body : "", q->n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);

	if (!v)
		dt_api_fail(e, 400, "invalid_request_error", NULL,
			    "the body is not JSON: line %d, column %d: %s", je.line, je.column, je.text);
	return v;
}

enum MHD_Result dt_http_reply(struct dt_http_req *q, unsigned status, struct MHD_Response *r,
			      const char *type)
{
	enum MHD_Result rc;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", type);
	if (q->params->allow_origin)
		MHD_add_response_header(r, "Vary", "Origin");
	if (q->origin)
		MHD_add_response_header(r, "Access-Control-Allow-Origin", q->origin);
	rc = MHD_queue_response(q->mhd, status, r);
	MHD_destroy_response(r);
	return rc;
}

int dt_http_no_memory(struct dt_api_error *e)
{
	dt_api_fail(e, 503, "server_error", "server_busy",
		    "the memory for requests and answers (--http-mem) is used up");
	e->retry_after = 1;
	return -EINVAL;
}

enum MHD_Result dt_http_reply_text(struct dt_http_req *q, unsigned status, const char *type, char *text,
				   size_t n)
{
	struct MHD_Response *r;

	if (!text)
		return MHD_NO;
	if (status == 200 && !dt_http_take(q, n)) { /* errors are small and always sent */
		struct dt_api_error e;

		free(text);
		dt_http_no_memory(&e);
		return dt_http_reply_error(q, &e);
	}
	r = MHD_create_response_from_buffer(n, text, MHD_RESPMEM_MUST_FREE);
	if (!r)
		free(text);
	dt_http_answered(q, n, false);
	return dt_http_reply(q, status, r, type);
}

enum MHD_Result dt_http_reply_json(struct dt_http_req *q, unsigned status, json_t *v)
{
	char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;

	json_decref(v);
	dt_http_give_back(q); /* the JSON values are freed; the text is charged next */
	return dt_http_reply_text(q, status, "application/json", text, text ? strlen(text) : 0);
}

enum MHD_Result dt_http_reply_error(struct dt_http_req *q, const struct dt_api_error *e)
{
	bool messages = q->path && !strncmp(q->path, "/v1/messages", 12);
	json_t *v = messages ? dt_messages_error(e) : dt_api_error_json(e);
	char *text = v ? json_dumps(v, JSON_COMPACT) : NULL, retry[16];
	struct MHD_Response *r = NULL;

	json_decref(v);
	if (text)
		r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (!r) {
		free(text);
		return MHD_NO;
	}
	if (e->retry_after > 0) {
		snprintf(retry, sizeof(retry), "%d", e->retry_after);
		MHD_add_response_header(r, "Retry-After", retry);
	}
	if (e->status == 401)
		MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
	if (e->status == 405 && q->allow)
		MHD_add_response_header(r, "Allow", q->allow);
	if (!q->answering) /* its body is not read */
		MHD_add_response_header(r, "Connection", "close");
	dt_http_answered(q, strlen(text), false);
	return dt_http_reply(q, (unsigned)e->status, r, "application/json");
}

/* Charges events to the request, until libmicrohttpd has taken them. */
static bool take_events(void *arg, size_t n)
{
	struct dt_http_req *q = arg;

	if (!dt_http_take(q, n))
		return false;
	q->pending_memory += n;
	return true;
}

static ssize_t read_events(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct dt_http_req *q = cls;
	size_t n;

	if (q->pending_off == q->pending_n) {
		int rc;

		free(q->pending);
		q->pending = NULL;
		q->pending_off = q->pending_n = 0;
		dt_http_give(q, q->pending_memory);
		q->pending_memory = 0;
		rc = dt_sse_next(&q->sse, PING_SECONDS, &q->pending, &q->pending_n);
		if (rc == 0)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (rc < 0)
			return MHD_CONTENT_READER_END_WITH_ERROR;
	}
	n = q->pending_n - q->pending_off;
	n = n < max ? n : max;
	memcpy(buf, q->pending + q->pending_off, n);
	q->pending_off += n;
	return (ssize_t)n;
}

enum MHD_Result dt_http_reply_stream(struct dt_http_req *q)
{
	struct MHD_Response *r =
		MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_events, q, NULL);

	if (!r)
		return MHD_NO;
	q->sse.take = take_events;
	q->sse.arg = q;
	MHD_add_response_header(r, "Cache-Control", "no-cache");
	dt_http_answered(q, 0, true);
	return dt_http_reply(q, 200, r, "text/event-stream; charset=utf-8");
}
/* SPDX-License-Identifier: Apache-2.0 */
