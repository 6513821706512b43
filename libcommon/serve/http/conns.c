/*
 * Connections and the thread that watches them. The time to send a request and the time to receive its answer
 * are limited. At the connection limit, stalled connections (whose client does not read) are closed first,
 * then idle ones, oldest first; a few connections beyond the limit are reserved for /health.
 */
#include "base/cond.h"
#include "base/progress.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define WATCH_S	    0.1
#define LOOK_EVERY  5	/* rounds between checks for stalled clients */
#define STALLED	    1.0 /* seconds without progress after which a connection may be closed to make room */
#define GRACE	    1.0 /* seconds in which a new connection must send its request */
#define SHORT_GRACE 0.1 /* the same while another request waits for room */
#define SPARE	    64	/* connections beyond the limit */
#define MIN_RATE    (64 * 1024) /* bytes a second at which a client must read an answer */

/* libmicrohttpd's thread of the connection sees the shutdown and closes it. Call with mu held. */
static void cut_off(struct dt_http *h, struct dt_http_conn *c)
{
	if (c->call)
		dt_engine_cancel(atomic_load(&h->engine), c->call);
	c->call = NULL;
	shutdown(c->fd, SHUT_RDWR);
	c->reading_since = c->answer_until = c->stalled_since = 0;
	c->cut = true;
	h->nconns--;
}

/* The connection stalled for longest, else the one idle for longest; NULL: none. Call with mu held. */
static struct dt_http_conn *victim(struct dt_http *h, const struct dt_http_conn *keep, double grace)
{
	struct dt_http_conn *stalled = NULL, *idle = NULL, *c;
	double now = dt_now();

	TAILQ_FOREACH (c, &h->conns, in_list) {
		if (c == keep || c->cut)
			continue;
		if (c->stalled_since > 0 && now - c->stalled_since > STALLED &&
		    (!stalled || c->stalled_since < stalled->stalled_since))
			stalled = c;
		if (keep && c->reading_since > keep->reading_since) /* newer: its request may be in transit */
			continue;
		if (c->reading_since > 0 && !c->asking && now - c->reading_since >= grace &&
		    (!idle || c->reading_since < idle->reading_since))
			idle = c;
	}
	return stalled ? stalled : idle;
}

/* Call with mu held. */
static void make_room(struct dt_http *h, const struct dt_http_conn *keep, int places, double grace)
{
	struct dt_http_conn *c;

	while (h->nconns > places && (c = victim(h, keep, grace)))
		cut_off(h, c);
}

bool dt_http_make_place(struct dt_http_req *q)
{
	struct dt_http *h = q->http;
	double end = dt_now() + GRACE;
	bool ok;

	for (;;) {
		pthread_mutex_lock(&h->mu);
		make_room(h, q->conn, h->p.max_connections, SHORT_GRACE);
		ok = h->nconns <= h->p.max_connections || (q->conn && q->conn->cut);
		if (q->conn)
			q->conn->asking = !ok && dt_now() < end;
		pthread_mutex_unlock(&h->mu);
		if (ok || dt_now() >= end)
			return ok;
		usleep((useconds_t)(SHORT_GRACE * 1e6));
	}
}

void dt_http_on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
			   enum MHD_ConnectionNotificationCode code)
{
	struct dt_http *h = cls;
	struct dt_http_conn *c = *ctx;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		const union MHD_ConnectionInfo *i =
			MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);

		c = calloc(1, sizeof(*c));
		*ctx = c;
		if (!c || !i) {
			free(c);
			*ctx = NULL;
			return; /* out of memory: the client is served, but not watched */
		}
		c->fd = i->connect_fd;
		c->reading_since = dt_now();
		pthread_mutex_lock(&h->mu);
		TAILQ_INSERT_HEAD(&h->conns, c, in_list);
		h->nconns++;
		make_room(h, c, h->p.max_connections, GRACE);
		make_room(h, c, h->p.max_connections + SPARE, 0);
		pthread_mutex_unlock(&h->mu);
	} else if (c) {
		pthread_mutex_lock(&h->mu);
		TAILQ_REMOVE(&h->conns, c, in_list);
		h->nconns -= !c->cut;
		pthread_mutex_unlock(&h->mu);
		free(c);
		*ctx = NULL;
	}
}

void dt_http_answering(struct dt_http_req *q)
{
	pthread_mutex_lock(&q->http->mu);
	q->http->active++;
	q->answering = true;
	if (q->conn)
		q->conn->reading_since = 0;
	pthread_mutex_unlock(&q->http->mu);
}

void dt_http_answered(struct dt_http_req *q, size_t n, bool stream)
{
	const struct dt_http_params *p = q->params;

	pthread_mutex_lock(&q->http->mu);
	if (q->conn && !q->conn->cut) {
		q->conn->streaming = stream;
		q->conn->reading_since = 0;
		q->conn->answer_until = dt_now() + p->answer_timeout + (double)n / MIN_RATE +
					(stream ? p->request_timeout : 0);
	}
	pthread_mutex_unlock(&q->http->mu);
}

void dt_http_over(struct dt_http_req *q)
{
	struct dt_http *h = q->http;
	struct dt_http_conn *c = q->conn;

	pthread_mutex_lock(&h->mu);
	if (c) {
		c->call = NULL;
		c->answer_until = c->stalled_since = 0;
		c->streaming = false;
		c->reading_since = c->cut ? 0 : dt_now();
	}
	h->active -= q->answering;
	pthread_mutex_unlock(&h->mu);
}

void dt_http_watch(struct dt_http_req *q, struct dt_call *call)
{
	pthread_mutex_lock(&q->http->mu);
	if (q->conn && q->conn->cut && call)
		dt_engine_cancel(atomic_load(&q->http->engine), call);
	else if (q->conn)
		q->conn->call = call;
	pthread_mutex_unlock(&q->http->mu);
}

/* Updates stalled_since from the socket's send queue. */
static void look_at_reader(struct dt_http_conn *c, double now)
{
	struct tcp_info i = {0};
	socklen_t n = sizeof(i);
	int waiting = 0;

	if (ioctl(c->fd, SIOCOUTQ, &waiting) < 0 || waiting == 0 ||
	    getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &i, &n) < 0) {
		c->stalled_since = 0;
	} else if (c->stalled_since == 0 || i.tcpi_bytes_acked != c->acked) {
		c->stalled_since = now;
		c->acked = i.tcpi_bytes_acked;
	}
}

/*
 * The client closed its sending side: it has disconnected, or waits for its answer. A closed peer answers any
 * byte with a reset, so an interim response is sent, which every HTTP/1.1 client skips. Call with mu held.
 */
static void probe(struct dt_http_conn *c)
{
	static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";

	if (c->half_closed)
		return;
	c->half_closed = true;
	if (!c->streaming) /* in a stream the next event is the probe */
		send(c->fd, interim, sizeof(interim) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Cancels the calls of clients that have disconnected. Call with mu held. */
static void look_for_gone(struct dt_http *h, int n)
{
	if (n == 0 || poll(h->polls, (nfds_t)n, 0) <= 0)
		return;
	for (int i = 0; i < n; i++) {
		/* With TLS no plain bytes may be sent, and clients do not close one side alone. */
		short gone = POLLHUP | POLLERR | POLLNVAL | (h->p.tls_cert ? POLLRDHUP : 0);

		if (h->polls[i].revents & gone) {
			dt_engine_cancel(atomic_load(&h->engine), h->polled[i]->call);
			h->polled[i]->call = NULL;
		} else if (h->polls[i].revents & POLLRDHUP) {
			probe(h->polled[i]);
		}
	}
}

/* One round over all connections. Call with mu held. */
static void watch(struct dt_http *h)
{
	bool look = h->round++ % LOOK_EVERY == 0;
	double now = dt_now();
	struct dt_http_conn *c;
	int n = 0;

	TAILQ_FOREACH (c, &h->conns, in_list) {
		if (c->cut)
			continue;
		if (look && c->answer_until > 0)
			look_at_reader(c, now);
		if ((c->reading_since > 0 && now - c->reading_since > h->p.read_timeout) ||
		    (c->answer_until > 0 && now > c->answer_until) ||
		    (c->stalled_since > 0 && now - c->stalled_since > h->p.answer_timeout)) {
			cut_off(h, c);
		} else if (c->call && n < h->max_open) {
			h->polls[n] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
			h->polled[n++] = c;
		}
	}
	make_room(h, NULL, h->p.max_connections, GRACE);
	look_for_gone(h, n);
}

static void *watcher_main(void *arg)
{
	struct dt_http *h = arg;

	pthread_mutex_lock(&h->mu);
	while (!h->stop) {
		dt_cond_wait_s(&h->wake, &h->mu, WATCH_S);
		watch(h);
	}
	pthread_mutex_unlock(&h->mu);
	return NULL;
}

int dt_http_conns_open(struct dt_http *h)
{
	h->polls = calloc((size_t)h->max_open, sizeof(*h->polls));
	h->polled = calloc((size_t)h->max_open, sizeof(*h->polled));
	if (!h->polls || !h->polled)
		return -ENOMEM;
	return -pthread_create(&h->watcher, NULL, watcher_main, h);
}

void dt_http_conns_close(struct dt_http *h)
{
	pthread_mutex_lock(&h->mu);
	h->stop = true;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->mu);
	pthread_join(h->watcher, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
