/*
 * The side of the clients: accepts, reads requests under a deadline, asks for keys, and answers what needs no
 * server. What two readers could frame differently is refused and the connection closed.
 */
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIPELINED (64 * 1024) /* bytes read ahead of an answer */
#define SPARE	  16	      /* connections beyond the limit, which are told so */
#define LINGER	  2.	      /* seconds a closing connection is read, so that its answer is not lost */

static void read_requests(struct dt_route_client *c);

/* Refuses and closes, once what comes has been passed over for a while. */
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

/* ---- life ---- */

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
	c->stalled = 0;
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

void dt_route_client_tick(struct dt_route_client *c, double now)
{
	if (c->stalled > 0 && now - c->stalled > c->r->conf.body_timeout) {
		dt_route_client_close(c);
	} else if (!c->x || c->reading_body) {
		if (c->deadline == 0 || now < c->deadline)
			return;
		if (c->reading_body && !c->closing) {
			struct dt_route_x *x = c->x;

			c->reading_body = false;
			if (x)
				dt_route_x_free(x);
			refuse(c, 408, "timeout", "the body did not come in time");
		} else {
			dt_route_client_close(c);
		}
	}
}

/* ---- one request ---- */

static bool is_own_name(const struct dt_router *r, struct dt_route_text host)
{
	char name[256];
	size_t n = 0;

	if (!host.s || host.n >= sizeof(name))
		return false;
	memcpy(name, host.s, host.n);
	name[host.n] = '\0';
	if (*name == '[')
		return true;
	n = strcspn(name, ":");
	name[n] = '\0';
	return strspn(name, "0123456789.") == n || !strcasecmp(name, "localhost") ||
	       (r->p.host && !strcasecmp(name, r->p.host)) ||
	       (n > 10 && !strcasecmp(name + n - 10, ".localhost"));
}

/* The key's number; -1: none asked for, -2: wrong. */
static int key_of(const struct dt_router *r, const struct dt_route_head *h)
{
	struct dt_route_text v = dt_route_header(h, "authorization"), x = dt_route_header(h, "x-api-key");
	int at = -1;

	if (r->conf.keys.nkeys == 0)
		return -1;
	if (v.n > 7 && !strncasecmp(v.s, "Bearer ", 7))
		at = dt_keyfile_find(&r->conf.keys, v.s + 7, v.n - 7);
	else if (x.n > 0) /* Anthropic's clients */
		at = dt_keyfile_find(&r->conf.keys, x.s, x.n);
	return at < 0 ? -2 : at;
}

/* Without keys pages in a browser may not ask, nor anybody under a foreign name for this machine. */
static const char *foreign(const struct dt_router *r, const struct dt_route_head *h)
{
	if (r->conf.keys.nkeys > 0)
		return NULL;
	if (dt_route_header(h, "origin").s)
		return "pages may not ask this router, which asks for no key";
	if (r->loopback && h->minor == 1 && !is_own_name(r, dt_route_header(h, "host")))
		return "this is not a name of this router";
	return NULL;
}

/* Goes to a server: its body is read first. */
static void begin_exchange(struct dt_route_client *c, const struct dt_route_head *h, int tenant)
{
	struct dt_router *r = c->r;

	if (h->framing == DT_ROUTE_LENGTH && h->length > (uint64_t)r->conf.max_body) {
		refuse(c, 413, "body_too_large", "the body is larger than this router takes");
		return;
	}
	if (r->memory > r->conf.memory) {
		refuse(c, 503, "overloaded", "too much is held already");
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

static void begin(struct dt_route_client *c, const struct dt_route_head *h)
{
	struct dt_router *r = c->r;
	const char *why = foreign(r, h);
	int key = key_of(r, h), tenant = key >= 0 ? r->conf.keys.key[key].tenant : r->ntenants - 1;

	c->keep = h->keep_alive;
	c->http10 = h->minor == 0;
	c->is_head = dt_route_is(h->method, "HEAD");
	c->messages = h->target.n >= 12 && !memcmp(h->target.s, "/v1/messages", 12);
	if (why) {
		refuse(c, 403, "not_allowed", why);
	} else if (key == -2 && !dt_route_local_open(h->target)) {
		refuse(c, 401, "invalid_api_key", "this router asks for a key: 'Authorization: Bearer KEY'");
	} else if (h->framing != DT_ROUTE_NO_BODY && !dt_route_is(h->method, "POST")) {
		refuse(c, 400, "invalid_request", "only POST has a body here");
	} else if (dt_route_local(c, h, tenant, key == -1 || (key >= 0 && r->conf.keys.key[key].admin))) {
		c->keep = c->keep && h->framing != DT_ROUTE_CHUNKED &&
			  (h->framing == DT_ROUTE_NO_BODY || h->length == 0);
		dt_route_client_next(c);
	} else if (!dt_route_is(h->method, "POST")) {
		dt_route_reply_error(c, 404, "not_found", 0, "", "there is no such path here");
		dt_route_client_next(c);
	} else {
		begin_exchange(c, h, tenant);
	}
}

/* Moves what has come of the body. 1: it is whole, 0: not yet, < 0: refused. */
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
			why = "this is no chunked body";
			status = 400;
		} else if (x->body.n + body > (size_t)c->r->conf.max_body) {
			why = "the body is larger than this router takes";
			status = 413;
		} else if (dt_route_buf_add(&x->body, dt_route_buf_data(in) + (size_t)used - body, body) <
				   0 ||
			   c->r->memory + (int64_t)body > c->r->conf.memory) {
			c->r->memory += (int64_t)body;
			why = "too much is held already";
			status = 503;
		} else {
			c->r->memory += (int64_t)body;
			dt_route_buf_take(in, (size_t)used);
			c->left -= c->framing == DT_ROUTE_LENGTH ? body : 0;
		}
		if (used == 0 || (c->framing != DT_ROUTE_CHUNKED && c->left == 0))
			break;
	}
	if (why) {
		c->reading_body = false;
		dt_route_x_free(x);
		refuse(c, status, status == 503 ? "overloaded" : "invalid_request", why);
		return -1;
	}
	return c->chunks.done || c->framing == DT_ROUTE_NO_BODY ||
	       (c->framing == DT_ROUTE_LENGTH && c->left == 0);
}

/* Heads and bodies until one goes to a server, or there is no whole one. */
static void read_requests(struct dt_route_client *c)
{
	struct dt_route_buf *in = &c->conn.in;
	struct dt_route_head h;
	const char *why;

	c->busy = true; /* what ends at once does not call in again */
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
			refuse(c, n == -E2BIG ? 431 : 400, "invalid_request",
			       n == -E2BIG ? "the headers are too large" : why);
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

	c->stalled = 0;
	if (c->closing)
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

		if (s < 0)
			return;
		c = r->nclients < r->conf.connections + SPARE ? calloc(1, sizeof(*c)) : NULL;
		if (!c) {
			close(s);
			continue;
		}
		c->r = r;
		c->deadline = dt_now() + r->conf.head_timeout;
		dt_route_conn_init(&c->conn, r->base, s, &ops, c);
		TAILQ_INSERT_TAIL(&r->clients, c, in_list);
		if (++r->nclients > r->conf.connections)
			refuse(c, 503, "too_many_connections",
			       "this router has as many connections as it may have");
	}
}

/* ---- the socket ---- */

static int name_socket(struct dt_router *r, int fd, struct dt_err *err)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char host[256], port[16];

	if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		return dt_err_sys(err, -errno, "cannot use the socket that was passed on");
	if (getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		return dt_err_set(err, -EADDRNOTAVAIL, "the socket has no address of the internet");
	r->loopback = at.ss_family == AF_INET6
			      ? IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&at)->sin6_addr)
			      : ntohl(((struct sockaddr_in *)&at)->sin_addr.s_addr) >> 24 == 127;
	snprintf(r->url, sizeof(r->url), strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
	evutil_make_socket_nonblocking(fd);
	r->fd = fd;
	return 0;
}

int dt_route_listen(struct dt_router *r, const char *host, int port, struct dt_err *err)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
	int fd = dt_route_passed_socket(), one = 1, rc;
	char text[16];

	if (fd >= 0)
		return name_socket(r, fd, err);
	snprintf(text, sizeof(text), "%d", port);
	rc = getaddrinfo(host, text, &hint, &list);
	if (rc != 0)
		return dt_err_set(err, -EADDRNOTAVAIL, "cannot listen on '%s': %s", host, gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	rc = 0;
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, 4096) < 0)
		rc = dt_err_sys(err, -errno, "cannot listen on '%s' port %d", host, port);
	freeaddrinfo(list);
	if (rc == 0)
		rc = name_socket(r, fd, err);
	if (rc < 0 && fd >= 0)
		close(fd);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
