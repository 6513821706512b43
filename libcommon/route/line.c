/* A connection to a server: sends a request, reads the response, and is reused for the next one. */
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_IDLE 256 /* max idle lines of a server */

static void broken(struct dt_route_line *l, const char *why, bool unreachable)
{
	struct dt_route_x *x = l->x;

	if (x)
		dt_route_x_broken(x, l, why, unreachable);
	else
		dt_route_line_close(l);
}

/* The response is complete: the line becomes idle, or is closed if it cannot be reused. */
static void finish(struct dt_route_line *l)
{
	struct dt_route_server *s = l->server;
	struct dt_route_x *x = l->x;

	l->x = NULL;
	if (!l->keep || dt_route_buf_size(&l->conn.in) > 0 || dt_route_buf_size(&l->conn.out) > 0 ||
	    s->nidle >= MAX_IDLE || s->gone || s->moves != l->moves || s->r->draining) {
		l->x = x;
		dt_route_x_done(x, l);
		dt_route_line_close(l);
		return;
	}
	dt_route_conn_read(&l->conn, true);
	l->since = dt_now();
	l->in_body = false;
	TAILQ_INSERT_HEAD(&s->idle, l, in_idle);
	s->nidle++;
	dt_route_x_done(x, l);
}

/* Returns false when the line no longer belongs to this exchange. */
static bool content(struct dt_route_line *l, const char *s, size_t n)
{
	struct dt_route_x *x = l->x;

	if (n > 0)
		dt_route_x_content(x, l, s, n);
	return l->x == x && l->conn.fd >= 0;
}

static void read_body(struct dt_route_line *l)
{
	struct dt_route_buf *in = &l->conn.in;

	/* what follows a head that has no body (status 204) is no content; `finish` closes such a line */
	while (l->framing != DT_ROUTE_NO_BODY && dt_route_buf_size(in) > 0 && !l->chunks.done) {
		size_t n = dt_route_buf_size(in), body = n;
		ssize_t used = (ssize_t)n;

		if (l->framing == DT_ROUTE_CHUNKED)
			used = dt_route_chunks_next(&l->chunks, dt_route_buf_data(in), n, &body);
		else if (l->framing == DT_ROUTE_LENGTH && body > l->left)
			used = (ssize_t)(body = (size_t)l->left);
		if (used < 0) {
			broken(l, "invalid chunked encoding", false);
			return;
		}
		if (!content(l, dt_route_buf_data(in) + (size_t)used - body, body))
			return;
		dt_route_buf_take(in, (size_t)used);
		l->left -= l->framing == DT_ROUTE_LENGTH ? body : 0;
		if (l->framing == DT_ROUTE_LENGTH && l->left == 0)
			break;
	}
	if (l->chunks.done || l->framing == DT_ROUTE_NO_BODY ||
	    (l->framing == DT_ROUTE_LENGTH && l->left == 0))
		finish(l);
}

static void on_data(void *arg)
{
	struct dt_route_line *l = arg;
	struct dt_route_buf *in = &l->conn.in;
	struct dt_route_head h;
	const char *why = NULL;

	if (!l->x) { /* unexpected data on an idle line */
		dt_route_line_close(l);
		return;
	}
	l->any = true;
	l->since = dt_now();
	while (!l->in_body) {
		ssize_t n = dt_route_head_parse(dt_route_buf_data(in), dt_route_buf_size(in), true,
						&l->scanned, &h, &why);

		if (n == 0)
			return;
		if (n < 0) {
			broken(l, why, false);
			return;
		}
		l->scanned = 0;
		if (h.status >= 100 && h.status < 200) {
			dt_route_buf_take(in, (size_t)n);
			continue;
		}
		l->in_body = true;
		l->framing = h.framing;
		l->left = h.length;
		l->chunks = (struct dt_route_chunks){0};
		l->keep = h.keep_alive && h.framing != DT_ROUTE_TO_CLOSE;
		if (!dt_route_x_head(l->x, l, &h)) {
			dt_route_line_close(l);
			return;
		}
		dt_route_buf_take(in, (size_t)n);
	}
	read_body(l);
}

static void on_ended(void *arg, int rc)
{
	struct dt_route_line *l = arg;

	if (l->x && l->in_body && l->framing == DT_ROUTE_TO_CLOSE && rc == 0)
		finish(l);
	else
		broken(l,
		       l->conn.connecting ? strerror(-rc)
		       : rc < 0		  ? strerror(-rc)
					  : "the server closed the connection",
		       l->conn.connecting);
}

static void on_drained(void *arg)
{
}

static const struct dt_route_conn_ops ops = {on_data, on_ended, on_drained};

static struct dt_route_line *reuse(struct dt_route_server *s)
{
	struct dt_route_line *l = TAILQ_FIRST(&s->idle);

	if (!l)
		return NULL;
	TAILQ_REMOVE(&s->idle, l, in_idle);
	s->nidle--;
	l->reused = true;
	return l;
}

static struct dt_route_line *connect_to(struct dt_route_server *s)
{
	struct dt_route_line *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return NULL;
	l->server = s;
	l->moves = s->moves;
	rc = dt_route_conn_connect(&l->conn, s->r->base, (struct sockaddr *)&s->conf.addr, s->conf.addrlen,
				   &ops, l);
	if (rc < 0) {
		free(l);
		errno = -rc;
		return NULL;
	}
	l->conn.held = &s->r->memory;
	s->nlines++;
	return l;
}

/*
 * Sends the body. Inserts the marks as first member if the server reports cache events, and the prefill
 * server's URL if there is one.
 */
static void send_body(struct dt_route_line *l, const struct dt_route_buf *body)
{
	static char marks[DT_ROUTE_MARKS_ROOM + 600]; /* static: there is one thread and one loop */
	const char *s = dt_route_buf_data(body), *open = NULL;
	size_t size = dt_route_buf_size(body), lead = 0, n = 0;

	if (l->server->tells && l->x->cached && l->x->nhash > 0)
		n = dt_route_events_marks(l->x, marks);
	n += dt_route_pair_member(l, marks + n, sizeof(marks) - n);
	if (n > 0)
		open = memchr(s, '{', size);
	if (open)
		lead = (size_t)(open - s) + 1;
	else
		n = 0;
	dt_route_conn_printf(&l->conn, "Content-Length: %zu\r\n\r\n", size + n);
	dt_route_conn_put(&l->conn, s, lead);
	dt_route_conn_put(&l->conn, marks, n);
	dt_route_conn_put(&l->conn, s + lead, size - lead);
}

static void send_request(struct dt_route_line *l)
{
	struct dt_route_x *x = l->x;
	const struct dt_route_buf *body = x->edit.n ? &x->edit : &x->body;
	const char *key = l->server->conf.key;

	dt_route_conn_put(&l->conn, "POST ", 5);
	dt_route_conn_put(&l->conn, x->target, strlen(x->target));
	dt_route_conn_printf(&l->conn, " HTTP/1.1\r\nHost: %s\r\n", l->server->conf.host);
	if (key)
		dt_route_conn_printf(&l->conn, "Authorization: Bearer %s\r\n", key);
	else
		dt_route_conn_put(&l->conn, x->key.s, x->key.n);
	dt_route_conn_put(&l->conn, x->head.s, x->head.n);
	send_body(l, body);
	dt_route_conn_flush(&l->conn);
}

struct dt_route_line *dt_route_line_open(struct dt_route_x *x, const struct dt_balance_choice *c,
					 const struct dt_balance_ask *ask, bool fresh)
{
	struct dt_route_server *s = x->r->server[c->server];
	struct dt_route_line *l = fresh ? NULL : reuse(s);

	if (!l)
		l = connect_to(s);
	if (!l)
		return NULL;
	l->x = x;
	l->choice = *c;
	l->any = l->in_body = false;
	l->scanned = 0;
	l->since = dt_now();
	dt_route_pair(x, l, ask);
	send_request(l);
	return l;
}

void dt_route_line_leave(struct dt_route_line *l, double answer)
{
	l->server->trials -= l->trial;
	l->trial = false;
	dt_route_unpair(l);
	dt_balance_give(&l->server->r->balance, &l->choice, answer);
}

void dt_route_line_close(struct dt_route_line *l)
{
	if (l->conn.fd < 0)
		return;
	if (!l->x && TAILQ_FIRST(&l->server->idle)) {
		struct dt_route_line *i;

		TAILQ_FOREACH (i, &l->server->idle, in_idle)
			if (i == l) {
				TAILQ_REMOVE(&l->server->idle, l, in_idle);
				l->server->nidle--;
				break;
			}
	}
	l->x = NULL;
	dt_route_conn_close(&l->conn);
	l->server->nlines--;
	dt_route_discard(l->server->r, &l->garbage);
}

void dt_route_line_pause(struct dt_route_x *x, bool on)
{
	const double now = dt_now();

	if (!on && x->paused > 0)
		x->deadline += now - x->paused; /* it limits the server's time, not the client's */
	x->paused = !on ? 0 : x->paused > 0 ? x->paused : now;
	for (int i = 0; i < 2; i++) {
		struct dt_route_line *l = x->line[i];

		if (!l)
			continue;
		dt_route_conn_read(&l->conn, !on);
		if (!on && l->any)
			l->since = now;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
