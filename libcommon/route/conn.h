/*
 * A non-blocking connection in the event loop, with a buffer in each direction. Bytes put into it are sent by
 * the next flush, directly to the socket as far as it accepts them. A connection may be closed inside its own
 * callbacks.
 */
#ifndef DT_ROUTE_CONN_H
#define DT_ROUTE_CONN_H

#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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
	void (*data)(void *arg);	  /* new bytes are in c->in */
	void (*ended)(void *arg, int rc); /* 0: the peer closed the connection; negative errno: it failed */
	void (*drained)(void *arg);	  /* all bytes put were sent */
};

struct dt_route_conn {
	int fd; /* -1: closed */
	struct event rd, wr;
	struct dt_route_buf in, out;
	bool connecting, reading, writing, broken;
	uint64_t sent; /* bytes */
	int64_t *held; /* the bytes of `out` are counted there, from its setting on; NULL: nowhere */
	const struct dt_route_conn_ops *ops;
	void *arg;
};

/* Takes over the socket and starts reading. */
void dt_route_conn_init(struct dt_route_conn *c, struct event_base *base, int fd,
			const struct dt_route_conn_ops *ops, void *arg);
/* Starts a connection. Negative errno: it failed at once; nothing is left open. */
int dt_route_conn_connect(struct dt_route_conn *c, struct event_base *base, const struct sockaddr *a,
			  socklen_t n, const struct dt_route_conn_ops *ops, void *arg);
/*
 * Whether an error means that this process is out of file descriptors or memory, and so is not the peer's
 * fault.
 */
bool dt_route_conn_lacks(int error);
void dt_route_conn_close(struct dt_route_conn *c); /* more than once is allowed */
void dt_route_conn_put(struct dt_route_conn *c, const void *s, size_t n);
void dt_route_conn_printf(struct dt_route_conn *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Failures are reported by ops->ended, from the event loop. */
void dt_route_conn_flush(struct dt_route_conn *c);
/* Bytes that the peer has acknowledged; grows while it reads. */
uint64_t dt_route_conn_taken(const struct dt_route_conn *c);
void dt_route_conn_read(struct dt_route_conn *c, bool on);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
