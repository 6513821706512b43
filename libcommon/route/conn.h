/*
 * A non-blocking connection of the event loop with a buffer each way. Bytes that are put go out with the
 * next flush, straight to the socket while it takes them. A connection may be closed inside its own
 * callbacks.
 */
#ifndef DT_ROUTE_CONN_H
#define DT_ROUTE_CONN_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct dt_route_buf { /* bytes [at, n) of s */
	char *s;
	size_t at, n, cap;
};

int dt_route_buf_add(struct dt_route_buf *b, const void *s, size_t n); /* -ENOMEM */
void dt_route_buf_take(struct dt_route_buf *b, size_t n);
void dt_route_buf_release(struct dt_route_buf *b);
static inline size_t dt_route_buf_size(const struct dt_route_buf *b)
{
	return b->n - b->at;
}
static inline char *dt_route_buf_data(const struct dt_route_buf *b)
{
	return b->s + b->at;
}

struct dt_route_conn_ops {
	void (*data)(void *arg);	  /* there is more in c->in */
	void (*ended)(void *arg, int rc); /* 0: the peer has closed; negative errno: it failed */
	void (*drained)(void *arg);	  /* everything put has gone */
};

struct dt_route_conn {
	int fd; /* -1: closed */
	struct event rd, wr;
	struct dt_route_buf in, out;
	bool connecting, reading, writing, broken;
	const struct dt_route_conn_ops *ops;
	void *arg;
};

/* Takes the socket and reads from it. */
void dt_route_conn_init(struct dt_route_conn *c, struct event_base *base, int fd,
			const struct dt_route_conn_ops *ops, void *arg);
/* Begins to connect. A negative errno: it failed at once, and nothing is left open. */
int dt_route_conn_connect(struct dt_route_conn *c, struct event_base *base, const struct sockaddr *a,
			  socklen_t n, const struct dt_route_conn_ops *ops, void *arg);
/* The error is this process's: it has no file or memory left. It says nothing of the other side. */
bool dt_route_conn_lacks(int error);
void dt_route_conn_close(struct dt_route_conn *c); /* more than once is allowed */
void dt_route_conn_put(struct dt_route_conn *c, const void *s, size_t n);
void dt_route_conn_printf(struct dt_route_conn *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* A failure here is reported by ended, from the loop. */
void dt_route_conn_flush(struct dt_route_conn *c);
void dt_route_conn_read(struct dt_route_conn *c, bool on);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
