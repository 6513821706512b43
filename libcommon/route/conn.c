#include "route/conn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define READ_SIZE (64 * 1024)
#define KEEP	  (256 * 1024) /* largest empty buffer, in bytes, that is not freed */

int dt_route_buf_add(struct dt_route_buf *b, const void *s, size_t n)
{
	if (b->at > 0 && b->n + n > b->cap) {
		memmove(b->s, b->s + b->at, b->n - b->at);
		b->n -= b->at;
		b->at = 0;
	}
	if (b->n + n > b->cap) {
		size_t cap = b->n + n > 2 * b->cap ? b->n + n : 2 * b->cap;
		char *p = realloc(b->s, cap < 512 ? 512 : cap);

		if (!p)
			return -ENOMEM;
		b->s = p;
		b->cap = cap < 512 ? 512 : cap;
	}
	if (n > 0)
		memcpy(b->s + b->n, s, n);
	b->n += n;
	return 0;
}

void dt_route_buf_take(struct dt_route_buf *b, size_t n)
{
	b->at += n;
	if (b->at < b->n)
		return;
	b->at = b->n = 0;
	if (b->cap > KEEP)
		dt_route_buf_release(b);
}

void dt_route_buf_release(struct dt_route_buf *b)
{
	free(b->s);
	*b = (struct dt_route_buf){0};
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	static char piece[READ_SIZE]; /* static: there is one thread and one loop */
	struct dt_route_conn *c = arg;
	ssize_t n = recv(fd, piece, sizeof(piece), 0);

	if (n > 0 && dt_route_buf_add(&c->in, piece, (size_t)n) < 0) {
		c->ops->ended(c->arg, -ENOMEM);
	} else if (n > 0) {
		c->ops->data(c->arg);
	} else if (n == 0) {
		c->ops->ended(c->arg, 0);
	} else if (errno != EAGAIN && errno != EINTR) {
		c->ops->ended(c->arg, -errno);
	}
}

static void want_write(struct dt_route_conn *c, bool on)
{
	if (c->writing == on)
		return;
	c->writing = on;
	if (on)
		event_add(&c->wr, NULL);
	else
		event_del(&c->wr);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct dt_route_conn *c = arg;
	socklen_t n = sizeof(int);
	int rc = 0;

	if (c->broken) {
		c->ops->ended(c->arg, -EPIPE);
		return;
	}
	if (c->connecting) {
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &rc, &n) < 0)
			rc = errno;
		if (rc) {
			c->ops->ended(c->arg, -rc);
			return;
		}
		c->connecting = false;
	}
	dt_route_conn_flush(c);
	if (c->fd >= 0 && !c->broken && dt_route_buf_size(&c->out) == 0)
		c->ops->drained(c->arg);
}

static void set_up(struct dt_route_conn *c, struct event_base *base, int fd,
		   const struct dt_route_conn_ops *ops, void *arg)
{
	int one = 1;

	*c = (struct dt_route_conn){.fd = fd, .ops = ops, .arg = arg};
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	event_assign(&c->rd, base, fd, EV_READ | EV_PERSIST, on_readable, c);
	event_assign(&c->wr, base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
}

void dt_route_conn_init(struct dt_route_conn *c, struct event_base *base, int fd,
			const struct dt_route_conn_ops *ops, void *arg)
{
	set_up(c, base, fd, ops, arg);
	dt_route_conn_read(c, true);
}

int dt_route_conn_connect(struct dt_route_conn *c, struct event_base *base, const struct sockaddr *a,
			  socklen_t n, const struct dt_route_conn_ops *ops, void *arg)
{
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int rc;

	c->fd = -1;
	if (fd < 0)
		return -errno;
	if (connect(fd, a, n) < 0 && errno != EINPROGRESS) {
		rc = -errno;
		close(fd);
		return rc;
	}
	set_up(c, base, fd, ops, arg);
	c->connecting = true;
	dt_route_conn_read(c, true);
	want_write(c, true);
	return 0;
}

bool dt_route_conn_lacks(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void count(struct dt_route_conn *c, int64_t bytes)
{
	if (c->held)
		*c->held += bytes;
}

void dt_route_conn_close(struct dt_route_conn *c)
{
	if (c->fd < 0)
		return;
	event_del(&c->rd);
	event_del(&c->wr);
	close(c->fd);
	c->fd = -1;
	count(c, -(int64_t)dt_route_buf_size(&c->out));
	dt_route_buf_release(&c->in);
	dt_route_buf_release(&c->out);
}

/* Reports a failed connection from the loop, never from inside a call. */
static void fail(struct dt_route_conn *c)
{
	c->broken = true;
	want_write(c, true);
	event_active(&c->wr, EV_WRITE, 0);
}

void dt_route_conn_put(struct dt_route_conn *c, const void *s, size_t n)
{
	if (c->fd < 0 || c->broken)
		return;
	if (dt_route_buf_add(&c->out, s, n) < 0)
		fail(c);
	else
		count(c, (int64_t)n);
}

void dt_route_conn_printf(struct dt_route_conn *c, const char *fmt, ...)
{
	char *text;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&text, fmt, ap); /* of any length: keys and headers of clients are in it */
	va_end(ap);
	if (n < 0) {
		if (c->fd >= 0 && !c->broken)
			fail(c);
		return;
	}
	dt_route_conn_put(c, text, (size_t)n);
	free(text);
}

void dt_route_conn_flush(struct dt_route_conn *c)
{
	if (c->fd < 0 || c->broken || c->connecting)
		return;
	while (dt_route_buf_size(&c->out) > 0) {
		ssize_t n = send(c->fd, dt_route_buf_data(&c->out), dt_route_buf_size(&c->out), MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EAGAIN) {
			fail(c);
			return;
		}
		if (n < 0)
			break;
		dt_route_buf_take(&c->out, (size_t)n);
		count(c, -(int64_t)n);
		c->sent += (uint64_t)n;
	}
	want_write(c, dt_route_buf_size(&c->out) > 0);
}

uint64_t dt_route_conn_taken(const struct dt_route_conn *c)
{
	int queued = 0; /* in the socket */

	if (ioctl(c->fd, SIOCOUTQ, &queued) < 0)
		queued = 0;
	return c->sent - (uint64_t)queued;
}

void dt_route_conn_read(struct dt_route_conn *c, bool on)
{
	if (c->fd < 0 || c->reading == on)
		return;
	c->reading = on;
	if (on)
		event_add(&c->rd, NULL);
	else
		event_del(&c->rd);
}
/* SPDX-License-Identifier: Apache-2.0 */
