/*
 * Forwards a response to the client. A streamed response is held back until its first byte, any other until
 * it is complete (if it is short), so that a server that fails before that can be replaced without the client
 * noticing.
 */
#include "base/json.h"
#include "base/progress.h"
#include "route/priv.h"

#include <string.h>

#define HELD	  (1 << 20)    /* max bytes held back of a response that is not streamed */
#define BEHIND	  (512 * 1024) /* unsent bytes above which reading from the server pauses; 0 without memory */
#define MAX_EVENT (1 << 20)    /* max bytes of one event of a stream */

void dt_route_answer_begin(struct dt_route_x *x, const struct dt_route_head *h)
{
	struct dt_route_text type = dt_route_header(h, "content-type");

	x->status = h->status;
	x->is_stream = type.n >= 17 && !strncasecmp(type.s, "text/event-stream", 17);
	x->has_length = h->framing == DT_ROUTE_LENGTH || h->framing == DT_ROUTE_NO_BODY;
	x->length = h->framing == DT_ROUTE_NO_BODY ? 0 : h->length;
	x->answer_head.at = x->answer_head.n = x->held.at = x->held.n = 0; /* of an earlier attempt */
	dt_route_x_count(x);
	x->ntail = 0;
	x->events = 0;
	for (int i = 0; i < h->n; i++) {
		struct dt_route_text name = h->header[i].name, v = h->header[i].value;

		if (dt_route_hop_by_hop(h, name) || dt_route_is(name, "content-length") ||
		    dt_route_is(name, "x-request-id") ||
		    (name.n > 12 && !strncasecmp(name.s, "x-ratelimit-", 12)))
			continue;
		dt_route_buf_add(&x->answer_head, name.s, name.n);
		dt_route_buf_add(&x->answer_head, ": ", 2);
		dt_route_buf_add(&x->answer_head, v.s, v.n);
		dt_route_buf_add(&x->answer_head, "\r\n", 2);
	}
}

/* length < 0: unknown. */
static void send_head(struct dt_route_x *x, int64_t length)
{
	struct dt_route_client *c = x->client;
	struct dt_route_conn *out = &c->conn;
	char limits[512];

	x->passing = true;
	x->chunked = length < 0 && !c->http10;
	x->to_close = length < 0 && c->http10;
	if (x->to_close)
		c->keep = false;
	dt_route_conn_printf(out, "HTTP/1.1 %d %s\r\n", x->status, dt_route_reason(x->status));
	dt_route_conn_put(out, x->answer_head.s, x->answer_head.n);
	dt_route_conn_printf(out, "X-Request-Id: %s\r\n", x->id);
	if (dt_route_limit_headers(x->r, x->tenant, limits, sizeof(limits)) > 0)
		dt_route_conn_put(out, limits, strlen(limits));
	if (length >= 0 && x->status != 204) /* which has none: RFC 9110, section 8.6 */
		dt_route_conn_printf(out, "Content-Length: %lld\r\n", (long long)length);
	else if (x->chunked)
		dt_route_conn_printf(out, "Transfer-Encoding: chunked\r\n");
	dt_route_conn_printf(out, "%s\r\n", dt_route_connection(c));
}

static void send_piece(struct dt_route_x *x, const char *s, size_t n)
{
	struct dt_route_conn *out = &x->client->conn;

	if (n == 0)
		return;
	if (x->chunked)
		dt_route_conn_printf(out, "%zx\r\n", n);
	dt_route_conn_put(out, s, n);
	if (x->chunked)
		dt_route_conn_put(out, "\r\n", 2);
	x->passed += n;
}

/* ---- streamed events ---- */

/* Whether this is the usage event that the router asked for, not the client. Others have null there. */
static bool is_ours(const char *s, size_t n)
{
	return (memmem(s, n, "\"usage\":{", 9) || memmem(s, n, "\"usage\": {", 10)) &&
	       (memmem(s, n, "\"choices\":[]", 12) || memmem(s, n, "\"choices\": []", 13));
}

/* Forwards complete events, so that an error can follow the last one; drops the router's own usage event. */
static void pass_events(struct dt_route_x *x, const char *s, size_t n)
{
	struct dt_route_buf *e = &x->event;
	size_t from = dt_route_buf_size(e), whole = 0, len;

	dt_route_buf_add(e, s, n);
	from = from > 3 ? from - 3 : 0; /* an empty line may have begun there */
	while ((len = dt_route_event_size(dt_route_buf_data(e) + whole, dt_route_buf_size(e) - whole,
					  from > whole ? from - whole : 0)) > 0) {
		if (x->stripped && is_ours(dt_route_buf_data(e) + whole, len)) {
			send_piece(x, dt_route_buf_data(e), whole);
			dt_route_buf_take(e, whole + len);
			from = from > whole + len ? from - whole - len : 0;
			whole = 0;
		} else {
			whole += len;
		}
	}
	if (dt_route_buf_size(e) - whole > MAX_EVENT)
		whole = dt_route_buf_size(e);
	send_piece(x, dt_route_buf_data(e), whole);
	dt_route_buf_take(e, whole);
}

static void keep_tail(struct dt_route_x *x, const char *s, size_t n)
{
	size_t size = sizeof(x->tail);

	for (const char *at = s, *end = s + n; (at = memmem(at, (size_t)(end - at), "data:", 5)); at += 5)
		x->events++;
	if (n >= size) {
		memcpy(x->tail, s + n - size, size);
		x->ntail = size;
		return;
	}
	if (x->ntail + n > size) {
		size_t drop = x->ntail + n - size;

		memmove(x->tail, x->tail + drop, x->ntail - drop);
		x->ntail -= drop;
	}
	memcpy(x->tail + x->ntail, s, n);
	x->ntail += n;
}

static void release_held(struct dt_route_x *x)
{
	send_piece(x, dt_route_buf_data(&x->held), dt_route_buf_size(&x->held));
	dt_route_buf_release(&x->held);
	dt_route_x_count(x);
}

void dt_route_answer_add(struct dt_route_x *x, const char *s, size_t n)
{
	keep_tail(x, s, n);
	if (!x->client) /* responses to shadow copies are dropped */
		return;
	if (!x->passing && !x->is_stream && x->held.n + n <= HELD && x->r->memory < x->r->conf.memory) {
		dt_route_buf_add(&x->held, s, n);
		dt_route_x_count(x);
		return;
	}
	if (!x->passing) {
		send_head(x, x->has_length && !x->stripped ? (int64_t)x->length : -1);
		release_held(x);
	}
	if (x->is_stream)
		pass_events(x, s, n);
	else
		send_piece(x, s, n);
	dt_route_x_count(x);
	dt_route_conn_flush(&x->client->conn);
	if (dt_route_buf_size(&x->client->conn.out) > (x->r->memory < x->r->conf.memory ? BEHIND : 0))
		dt_route_line_pause(x, true);
}

void dt_route_answer_end(struct dt_route_x *x)
{
	struct dt_route_client *c = x->client;

	if (!c)
		return;
	if (!x->passing) {
		send_head(x, (int64_t)dt_route_buf_size(&x->held));
		release_held(x);
	} else {
		send_piece(x, dt_route_buf_data(&x->event), dt_route_buf_size(&x->event));
	}
	if (x->chunked)
		dt_route_conn_put(&c->conn, "0\r\n\r\n", 5);
	dt_route_conn_flush(&c->conn);
}

void dt_route_answer_break(struct dt_route_x *x, const char *why)
{
	struct dt_route_client *c = x->client;
	json_t *v;
	char *text, msg[300];

	if (!c)
		return;
	c->keep = false;
	if (x->is_stream && (x->chunked || x->to_close)) {
		snprintf(msg, sizeof(msg), "the connection to the server failed: %s", why);
		v = dt_route_error_json(c->messages, 502, "server_lost", msg);
		text = v ? json_dumps(v, JSON_COMPACT) : NULL;
		send_piece(x, "event: error\n", text && c->messages ? 13 : 0);
		send_piece(x, "data: ", text ? 6 : 0);
		send_piece(x, text ? text : "", text ? strlen(text) : 0);
		send_piece(x, "\n\n", text ? 2 : 0);
		free(text);
		json_decref(v);
		dt_route_conn_put(&c->conn, "0\r\n\r\n", x->chunked ? 5 : 0);
	} else {
		x->cut = true;
	}
	dt_route_conn_flush(&c->conn);
}

/* ---- token usage ---- */

#define MOST_TOKENS 1e12 /* a server's count beyond it is wrong, and would use up a quota for ever */

/* A count of the usage under one of two keys; -1: it is missing, or impossible. */
static double number(const json_t *o, const char *a, const char *b)
{
	const json_t *v = json_object_get(o, a) ? json_object_get(o, a) : json_object_get(o, b);
	const double n = json_is_number(v) ? json_number_value(v) : -1;

	return n >= 0 && n <= MOST_TOKENS ? n : -1;
}

void dt_route_answer_usage(const struct dt_route_x *x, double *prompt, double *cached, double *answer)
{
	const char *at = x->tail, *end = x->tail + x->ntail, *last = NULL, *brace;
	json_t *o = NULL;

	*prompt = *cached = *answer = -1;
	while ((at = memmem(at, (size_t)(end - at), "\"usage\"", 7))) {
		at += 7;
		brace = at + (at < end && *at == ':');
		brace += brace < end && *brace == ' ';
		if (brace < end && *brace == '{')
			last = brace;
	}
	if (last)
		o = json_loadb(last, (size_t)(end - last), JSON_DISABLE_EOF_CHECK, NULL);
	if (!o)
		return;
	*prompt = number(o, "prompt_tokens", "input_tokens");
	*answer = number(o, "completion_tokens", "output_tokens");
	*cached = number(json_object_get(o, "prompt_tokens_details")
				 ?: json_object_get(o, "input_tokens_details"),
			 "cached_tokens", "cached_tokens");
	if (*cached < 0 && number(o, "cache_read_input_tokens", "") >= 0) { /* Anthropic counts them apart */
		*cached = number(o, "cache_read_input_tokens", "");
		*prompt += *cached + (number(o, "cache_creation_input_tokens", "") > 0
					      ? number(o, "cache_creation_input_tokens", "")
					      : 0);
	}
	if (*answer < 0 && *prompt >= 0)
		*answer = 0; /* embeddings have no output tokens */
	json_decref(o);
}
/* SPDX-License-Identifier: Apache-2.0 */
