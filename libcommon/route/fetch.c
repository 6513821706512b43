/* GET requests of the router itself, each on its own connection, e.g. to /health and /v1/models. */
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define MOST (4 << 20) /* max bytes of a response */

struct dt_route_fetch {
	struct dt_route_garbage garbage;
	struct dt_router *r;
	struct dt_route_conn conn;
	struct event timer;
	struct dt_route_buf body;
	bool in_body;
	size_t scanned;
	int status;
	enum dt_route_framing framing;
	uint64_t left;
	struct dt_route_chunks chunks;
	dt_route_fetched *done;
	void *arg;
};

void dt_route_fetch_cancel(struct dt_route_fetch *f)
{
	if (f->conn.fd < 0)
		return;
	event_del(&f->timer);
	dt_route_conn_close(&f->conn);
	dt_route_buf_release(&f->body);
	dt_route_discard(f->r, &f->garbage);
}

static void finish(struct dt_route_fetch *f, int status)
{
	f->done(f->arg, status, f->body.s ? f->body.s : "", f->body.n);
	dt_route_fetch_cancel(f);
}

/* 1: the body is complete, 0: not yet, < 0: it is malformed. */
static int read_body(struct dt_route_fetch *f)
{
	struct dt_route_buf *in = &f->conn.in;

	while (dt_route_buf_size(in) > 0 && !f->chunks.done) {
		size_t n = dt_route_buf_size(in), body = n;
		ssize_t used = (ssize_t)n;

		if (f->framing == DT_ROUTE_CHUNKED)
			used = dt_route_chunks_next(&f->chunks, dt_route_buf_data(in), n, &body);
		else if (f->framing == DT_ROUTE_LENGTH && body > f->left)
			used = (ssize_t)(body = (size_t)f->left);
		if (used <= 0)
			return used < 0 ? -1 : 1;
		if (f->body.n + body > MOST ||
		    dt_route_buf_add(&f->body, dt_route_buf_data(in) + (size_t)used - body, body) < 0)
			return -1;
		dt_route_buf_take(in, (size_t)used);
		f->left -= f->framing == DT_ROUTE_LENGTH ? body : 0;
	}
	return f->chunks.done || f->framing == DT_ROUTE_NO_BODY ||
	       (f->framing == DT_ROUTE_LENGTH && f->left == 0);
}

static void on_data(void *arg)
{
	struct dt_route_fetch *f = arg;
	struct dt_route_head h;
	const char *why;
	int rc;

	while (!f->in_body) {
		ssize_t n = dt_route_head_parse(dt_route_buf_data(&f->conn.in),
						dt_route_buf_size(&f->conn.in), true, &f->scanned, &h, &why);

		if (n == 0)
			return;
		if (n < 0) {
			finish(f, 0);
			return;
		}
		f->scanned = 0;
		f->in_body = h.status >= 200;
		f->status = h.status;
		f->framing = h.framing;
		f->left = h.length;
		dt_route_buf_take(&f->conn.in, (size_t)n);
	}
	rc = read_body(f);
	if (rc)
		finish(f, rc < 0 ? 0 : f->status);
}

static void on_ended(void *arg, int rc)
{
	struct dt_route_fetch *f = arg;

	finish(f, f->in_body && f->framing == DT_ROUTE_TO_CLOSE && rc == 0 ? f->status : 0);
}

static void on_drained(void *arg)
{
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	finish(arg, 0);
}

static const struct dt_route_conn_ops ops = {on_data, on_ended, on_drained};

struct dt_route_fetch *dt_route_fetch(struct dt_router *r, const struct dt_route_server_conf *to,
				      const char *path, double timeout, dt_route_fetched *done, void *arg)
{
	struct timeval t = {.tv_sec = (time_t)timeout, .tv_usec = (suseconds_t)(fmod(timeout, 1) * 1e6)};
	struct dt_route_fetch *f = calloc(1, sizeof(*f));
	int rc;

	if (!f)
		return NULL;
	f->r = r;
	f->done = done;
	f->arg = arg;
	rc = dt_route_conn_connect(&f->conn, r->base, (const struct sockaddr *)&to->addr, to->addrlen, &ops,
				   f);
	if (rc < 0) {
		free(f);
		errno = -rc;
		return NULL;
	}
	evtimer_assign(&f->timer, r->base, on_timeout, f);
	evtimer_add(&f->timer, &t);
	dt_route_conn_printf(&f->conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n", path,
			     to->host);
	if (to->key)
		dt_route_conn_printf(&f->conn, "Authorization: Bearer %s\r\n", to->key);
	dt_route_conn_put(&f->conn, "\r\n", 2);
	return f;
}
/* SPDX-License-Identifier: Apache-2.0 */
