/*
 * The client side: accepts connections, reads requests within time limits, checks keys, and answers what
 * needs no server. Requests that two parsers could frame differently are refused, and the connection is
 * closed.
 */
#include "base/http.h"
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIPELINED (64 * 1024) /* max bytes read ahead while a response is sent */
#define LINGER	  2.	      /* seconds for which a closing connection is read, to not lose the response */

static void read_requests(struct dt_route_client *c);

/* Sends an error and closes the connection, after discarding input for a while. */
static void refuse(struct dt_route_client *c, int status, const char *code, const char *msg)
{
	c->keep = false;
	dt_route_reply_error(c, status, code, status == 503, "", msg);
	c->closing = true;
	c->deadline = dt_now() + LINGER;
	dt_route_buf_take(&c->conn.in, dt_route_buf_size(&c->conn.in));
	dt_route_conn_flush(&c->conn);
	if (c->conn.fd >= 0 && dt_route_buf_size(&c->conn.out) == 0)
		shutdown(c->conn.fd, SHUT_WR);
}

/* ---- opening and closing ---- */

void dt_route_client_close(struct dt_route_client *c)
{
	if (c->conn.fd < 0)
		return;
	dt_route_conn_close(&c->conn);
	TAILQ_REMOVE(&c->r->clients, c, in_list);
	c->r->nclients--;
	if (c->x)
		dt_route_x_cancel(c->x);
	c->x = NULL;
	dt_route_discard(c->r, &c->garbage);
}

void dt_route_client_next(struct dt_route_client *c)
{
	c->x = NULL;
	c->deadline = dt_now() + c->r->conf.idle_timeout;
	if (!c->keep) {
		c->closing = true;
		c->deadline = dt_now() + LINGER;
		if (dt_route_buf_size(&c->conn.out) == 0)
			shutdown(c->conn.fd, SHUT_WR);
		return;
	}
	dt_route_conn_read(&c->conn, true);
	if (!c->busy && dt_route_buf_size(&c->conn.in) > 0)
		read_requests(c);
}

void dt_route_client_cut(struct dt_route_client *c)
{
	const struct linger at_once = {.l_onoff = 1};

	c->closing = c->cut = true;
	if (c->http10) /* it may take a regular end of the connection for the end of the answer */
		setsockopt(c->conn.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
	if (!dt_route_client_waits(c))
		dt_route_client_close(c);
}

/* Whether the client has not read for too long, although bytes wait to be sent to it. */
static bool stalls(struct dt_route_client *c, double now)
{
	uint64_t taken;

	if (!dt_route_client_waits(c)) {
		c->stalled = 0;
		return false;
	}
	taken = dt_route_conn_taken(&c->conn);
	if (c->stalled == 0 || taken != c->taken) {
		c->stalled = now;
		c->taken = taken;
	}
	return now - c->stalled > c->r->conf.body_timeout;
}

void dt_route_client_tick(struct dt_route_client *c, double now)
{
	if (stalls(c, now)) {
		dt_route_client_close(c);
	} else if (c->stalled > 0 && !c->x) { /* its next request is awaited when it has read the answer */
		c->deadline = now + (c->closing ? LINGER : c->r->conf.idle_timeout);
	} else if (!c->x || c->reading_body) {
		if (c->deadline == 0 || now < c->deadline)
			return;
		if (c->reading_body && !c->closing) {
			struct dt_route_x *x = c->x;

			c->reading_body = false;
			if (x)
				dt_route_x_free(x);
			refuse(c, 408, "timeout", "the body did not arrive in time");
		} else {
			dt_route_client_close(c);
		}
	}
}

/* ---- requests ---- */

/* The index of the key; -1: none required, -2: none given, -3: unknown. */
static int key_of(const struct dt_router *r, const struct dt_route_head *h)
{
	struct dt_route_text v = dt_route_header(h, "authorization"), x = dt_route_header(h, "x-api-key");
	int at = -1;

	if (r->conf.keys.nkeys == 0)
		return -1;
	if (v.n > 7 && !strncasecmp(v.s, "Bearer ", 7))
		at = dt_keyfile_find(&r->conf.keys, v.s + 7, v.n - 7);
	else if (x.n > 0) /* used by Anthropic's clients */
		at = dt_keyfile_find(&r->conf.keys, x.s, x.n);
	else
		return -2;
	return at < 0 ? -3 : at;
}

/* Without keys, requests from web pages are refused, and so are foreign host names for this machine. */
static const char *foreign(const struct dt_router *r, const struct dt_route_head *h)
{
	struct dt_route_text host;

	if (r->conf.keys.nkeys > 0)
		return NULL;
	host = dt_route_header(h, "host");
	if (dt_route_header(h, "origin").s)
		return "web pages may not use this router, because it requires no API key";
	if (r->loopback && h->minor == 1 && !(host.s && dt_http_is_own_name(host.s, host.n, r->p.host)))
		return "the Host header does not name this router";
	return NULL;
}

/* Starts a request for a server; its body is read first. */
static void begin_exchange(struct dt_route_client *c, const struct dt_route_head *h, int tenant)
{
	struct dt_router *r = c->r;

	if (h->framing == DT_ROUTE_LENGTH && h->length > (uint64_t)r->conf.max_body) {
		refuse(c, 413, "body_too_large", "the body is larger than max_body_bytes");
		return;
	}
	if (r->memory > r->conf.memory) {
		refuse(c, 503, "overloaded",
		       "the memory for requests and answers (max_memory_bytes) is used up");
		return;
	}
	c->x = dt_route_x_new(r, c, h, tenant);
	if (!c->x) {
		refuse(c, 503, "overloaded", "out of memory");
		return;
	}
	c->reading_body = true;
	c->framing = h->framing;
	c->left = h->length;
	c->chunks = (struct dt_route_chunks){0};
	c->deadline = dt_now() + r->conf.body_timeout;
	if (h->expects)
		dt_route_conn_put(&c->conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
	dt_route_conn_flush(&c->conn);
}

/* Answers a request that needs no server; false: it needs one. */
static bool answer(struct dt_route_client *c, const struct dt_route_head *h, int tenant, bool admin)
{
	if (!dt_route_local(c, h, tenant, admin)) {
		if (dt_route_is(h->method, "POST"))
			return false;
		dt_route_reply_error(c, 404, "not_found", 0, "", "unknown route");
	}
	dt_route_client_next(c);
	return true;
}

static void begin(struct dt_route_client *c, const struct dt_route_head *h)
{
	struct dt_router *r = c->r;
	const char *why = foreign(r, h);
	const bool bodied =
		h->framing == DT_ROUTE_CHUNKED || (h->framing == DT_ROUTE_LENGTH && h->length > 0);
	int key = key_of(r, h), tenant = key >= 0 ? r->conf.keys.key[key].tenant : r->ntenants - 1;

	c->keep = h->keep_alive;
	c->http10 = h->minor == 0;
	c->is_head = dt_route_is(h->method, "HEAD");
	c->messages = h->target.n >= 12 && !memcmp(h->target.s, "/v1/messages", 12);
	if (why) {
		refuse(c, 403, "not_allowed", why);
	} else if (key < -1 && !dt_route_local_open(h->target)) {
		refuse(c, 401, "invalid_api_key",
		       key == -2 ? "this router requires an API key: 'Authorization: Bearer KEY'"
				 : "this router does not know this API key");
	} else if (bodied && !dt_route_is(h->method, "POST")) {
		refuse(c, 400, "invalid_request", "only POST may have a body");
	} else if (dt_route_of_one_server(h->target)) {
		refuse(c, 404, "not_found",
		       "the router does not forward this route, which reads or changes the state of one "
		       "server: send the request to that server");
	} else {
		c->keep = h->keep_alive && !bodied; /* the router reads no body that it does not forward */
		if (answer(c, h, tenant, key == -1 || (key >= 0 && r->conf.keys.key[key].admin)))
			return;
		c->keep = h->keep_alive;
		begin_exchange(c, h, tenant);
	}
}

/* Reads the available part of the body. 1: it is complete, 0: not yet, < 0: refused. */
static int take_body(struct dt_route_client *c)
{
	struct dt_route_buf *in = &c->conn.in;
	struct dt_route_x *x = c->x;
	const char *why = NULL;
	int status = 0;

	while (dt_route_buf_size(in) > 0 && !c->chunks.done && !why) {
		size_t n = dt_route_buf_size(in), body = n;
		ssize_t used = (ssize_t)n;

		if (c->framing == DT_ROUTE_CHUNKED)
			used = dt_route_chunks_next(&c->chunks, dt_route_buf_data(in), n, &body);
		else if (body > c->left)
			used = (ssize_t)(body = (size_t)c->left);
		if (used < 0) {
			why = "the body is not valid chunked encoding";
			status = 400;
		} else if (x->body.n + body > (size_t)c->r->conf.max_body) {
			why = "the body is larger than max_body_bytes";
			status = 413;
		} else if (c->r->memory + (int64_t)body > c->r->conf.memory ||
			   dt_route_buf_add(&x->body, dt_route_buf_data(in) + (size_t)used - body, body) <
				   0) {
			why = "the memory for requests and answers (max_memory_bytes) is used up";
			status = 503;
		} else {
			dt_route_x_count(x);
			dt_route_buf_take(in, (size_t)used);
			c->left -= c->framing == DT_ROUTE_LENGTH ? body : 0;
		}
		if (used == 0 || (c->framing != DT_ROUTE_CHUNKED && c->left == 0))
			break;
	}
	if (why) {
		c->reading_body = false;
		dt_route_x_free(x);
		refuse(c, status,
		       status == 503   ? "overloaded"
		       : status == 413 ? "body_too_large"
				       : "invalid_request",
		       why);
		return -1;
	}
	return c->chunks.done || c->framing == DT_ROUTE_NO_BODY ||
	       (c->framing == DT_ROUTE_LENGTH && c->left == 0);
}

/* Reads requests until one goes to a server or the next one is incomplete. */
static void read_requests(struct dt_route_client *c)
{
	struct dt_route_buf *in = &c->conn.in;
	struct dt_route_head h;
	const char *why;

	c->busy = true; /* a request that ends at once must not reenter this function */
	while (c->conn.fd >= 0 && !c->closing && (!c->x || c->reading_body)) {
		ssize_t n;

		if (c->reading_body) {
			if (take_body(c) <= 0)
				break;
			c->reading_body = false;
			c->deadline = 0;
			dt_route_x_start(c->x);
			continue;
		}
		while (c->scanned == 0 && dt_route_buf_size(in) >= 2 &&
		       !memcmp(dt_route_buf_data(in), "\r\n", 2))
			dt_route_buf_take(in, 2); /* empty lines before a request: RFC 9112, section 2.2 */
		if (dt_route_buf_size(in) == 0)
			break;
		if (c->scanned == 0) /* its first byte */
			c->deadline = dt_now() + c->r->conf.head_timeout;
		n = dt_route_head_parse(dt_route_buf_data(in), dt_route_buf_size(in), false, &c->scanned, &h,
					&why);
		if (n == 0)
			break;
		c->scanned = 0;
		if (n < 0) {
			c->is_head = false; /* of the request before */
			refuse(c, n == -E2BIG ? 431 : 400, "invalid_request", why);
			break;
		}
		begin(c, &h);
		if (c->conn.fd >= 0 && !c->closing)
			dt_route_buf_take(in, (size_t)n);
	}
	c->busy = false;
}

static void on_data(void *arg)
{
	struct dt_route_client *c = arg;
	struct dt_route_buf *in = &c->conn.in;

	if (c->closing)
		dt_route_buf_take(in, dt_route_buf_size(in));
	else if (!c->x || c->reading_body)
		read_requests(c);
	else if (dt_route_buf_size(in) > PIPELINED)
		dt_route_conn_read(&c->conn, false);
}

static void on_ended(void *arg, int rc)
{
	dt_route_client_close(arg);
}

static void on_drained(void *arg)
{
	struct dt_route_client *c = arg;

	if (c->cut)
		dt_route_client_close(c);
	else if (c->closing)
		shutdown(c->conn.fd, SHUT_WR);
	else if (c->x)
		dt_route_line_pause(c->x, false);
}

static const struct dt_route_conn_ops ops = {on_data, on_ended, on_drained};

void dt_route_accept(evutil_socket_t fd, short what, void *arg)
{
	struct dt_router *r = arg;

	for (int i = 0; i < 64; i++) {
		int s = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct dt_route_client *c;

		if (s < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (s < 0 && dt_route_conn_lacks(errno)) { /* until the next tick */
			event_del(&r->listener);
			r->deaf = true;
			dt_route_say_lack(r, errno);
		}
		if (s < 0)
			return;
		c = r->nclients < r->conf.connections + DT_ROUTE_BEYOND ? calloc(1, sizeof(*c)) : NULL;
		if (!c) {
			close(s);
			continue;
		}
		c->r = r;
		c->deadline = dt_now() + r->conf.head_timeout;
		dt_route_conn_init(&c->conn, r->base, s, &ops, c);
		c->conn.held = &r->memory;
		TAILQ_INSERT_TAIL(&r->clients, c, in_list);
		if (++r->nclients > r->conf.connections)
			refuse(c, 503, "too_many_connections",
			       "this router has reached its limit of connections");
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
