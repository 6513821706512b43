#include "serve/http/http.h"

#include "base/progress.h"
#include "serve/http/routes.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WATCH_MS     100
#define THREAD_STACK (1024 * 1024) /* deep JSON is parsed and freed by recursion */

/* One open connection. Guarded by dt_http.mu. */
struct dt_http_conn {
	int fd;
	double reading_since; /* when it began to owe us a request; 0 while one is answered */
	struct dt_call *call; /* to cancel when the client goes away */
	bool cut;	      /* closing */
	struct dt_http_conn *prev, *next;
};

struct dt_http {
	struct dt_http_params p;
	struct MHD_Daemon *daemon;
	char url[320];
	const struct dt_chat *chat; /* set before engine is */
	_Atomic(struct dt_engine *) engine;

	pthread_t watcher;
	pthread_mutex_t mu;
	pthread_cond_t wake; /* CLOCK_MONOTONIC */
	struct dt_http_conn *conns;
	int nconns;		      /* that are not closing */
	struct pollfd *polls;	      /* [max_connections] */
	struct dt_http_conn **polled; /* [max_connections] */
	int active;
	bool stop;
};

/* ---- replies ---- */

static enum MHD_Result queue(struct dt_http_req *q, unsigned status, struct MHD_Response *r, const char *type)
{
	enum MHD_Result rc;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", type);
	rc = MHD_queue_response(q->mhd, status, r);
	MHD_destroy_response(r);
	return rc;
}

static struct MHD_Response *json_response(json_t *v)
{
	char *text = v ? json_dumps(v, JSON_COMPACT) : NULL;
	struct MHD_Response *r = NULL;

	json_decref(v);
	if (text)
		r = MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
	if (!r)
		free(text);
	return r;
}

enum MHD_Result dt_http_reply_json(struct dt_http_req *q, unsigned status, json_t *v)
{
	return queue(q, status, json_response(v), "application/json");
}

enum MHD_Result dt_http_reply_text(struct dt_http_req *q, unsigned status, const char *type, char *text,
				   size_t n)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(n, text, MHD_RESPMEM_MUST_FREE);

	if (!r)
		free(text);
	return queue(q, status, r, type);
}

enum MHD_Result dt_http_reply_error(struct dt_http_req *q, const struct dt_api_error *e)
{
	struct MHD_Response *r = json_response(dt_api_error_json(e));
	char retry[16];

	if (r && e->retry_after > 0) {
		snprintf(retry, sizeof(retry), "%d", e->retry_after);
		MHD_add_response_header(r, "Retry-After", retry);
	}
	if (r && e->status == 401)
		MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
	if (r && e->status == 405)
		MHD_add_response_header(r, "Allow", e->param);
	return queue(q, (unsigned)e->status, r, "application/json");
}

/* ---- one request ---- */

static bool equal_keys(const char *a, const char *b)
{
	size_t n = strlen(a), m = strlen(b);
	unsigned diff = n != m;

	/* Every byte of a is looked at whatever b holds: the time says nothing about the key. */
	for (size_t i = 0; i < n; i++)
		diff |= (unsigned char)a[i] ^ (unsigned char)b[m ? i % m : 0];
	return diff == 0;
}

/* Finds the client's tenant. */
static bool authorised(struct dt_http_req *q)
{
	const char *h = MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, "Authorization");
	bool ok = q->params->nkeys == 0;

	if (ok || !h || strncasecmp(h, "Bearer ", 7))
		return ok;
	for (int i = 0; i < q->params->nkeys; i++)
		if (equal_keys(h + 7, q->params->keys[i].key)) {
			q->tenant = q->params->keys[i].tenant;
			ok = true;
		}
	return ok;
}

/* What can be said from the request line and the headers alone; 0 or -EINVAL with e filled. */
static int screen(struct dt_http_req *q, const char *method, const char *path, struct dt_api_error *e)
{
	const char *allow, *length = MHD_lookup_connection_value(q->mhd, MHD_HEADER_KIND, "Content-Length");

	bool known = authorised(q);

	q->route = dt_route_find(method, path, &allow);
	if (!(q->route && q->route->open) && !known)
		return dt_api_fail(e, 401, "authentication_error", "invalid_api_key",
				   "this server asks for a key: 'Authorization: Bearer KEY'");
	if (!allow)
		return dt_api_fail(e, 404, "invalid_request_error", "not_found", "there is no '%.200s' here",
				   path);
	if (!q->route) {
		dt_api_fail(e, 405, "invalid_request_error", "method_not_allowed", "'%.200s' takes %s", path,
			    allow);
		snprintf(e->param, sizeof(e->param), "%s", allow);
		return -EINVAL;
	}
	if (!q->engine && !q->route->while_loading) {
		dt_api_fail(e, 503, "server_error", "loading", "the model is still loading");
		e->retry_after = 5;
		return -EINVAL;
	}
	if (length && strtoull(length, NULL, 10) > q->params->max_body)
		return dt_api_fail(e, 413, "invalid_request_error", "body_too_large",
				   "a body may have %zu bytes", q->params->max_body);
	return 0;
}

static enum MHD_Result begin_request(struct dt_http *h, struct MHD_Connection *mhd, const char *method,
				     const char *path, void **con_cls)
{
	struct dt_http_req *q = calloc(1, sizeof(*q));
	const union MHD_ConnectionInfo *i;
	struct dt_api_error e;

	if (!q)
		return MHD_NO;
	i = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	q->http = h;
	q->mhd = mhd;
	q->conn = i ? i->socket_context : NULL;
	q->engine = atomic_load(&h->engine);
	q->params = &h->p;
	q->chat = q->engine ? h->chat : NULL;
	*con_cls = q;
	if (screen(q, method, path, &e) < 0)
		return dt_http_reply_error(q, &e);
	return MHD_YES;
}

/* A body of unknown length is read on for a while so that its sender gets to see the 413. */
static enum MHD_Result take_body(struct dt_http_req *q, const char *data, size_t n)
{
	size_t max = q->params->max_body;

	if (q->n + n > max) {
		q->too_large = true;
		q->n += n;
		return q->n > 8 * max ? MHD_NO : MHD_YES;
	}
	if (q->n + n > q->cap) {
		size_t cap = q->n + n > 2 * q->cap ? q->n + n : 2 * q->cap;
		char *p = realloc(q->body, cap);

		if (!p)
			return MHD_NO;
		q->body = p;
		q->cap = cap;
	}
	memcpy(q->body + q->n, data, n);
	q->n += n;
	return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *path, const char *method,
				  const char *http, const char *data, size_t *n, void **con_cls)
{
	struct dt_http *h = cls;
	struct dt_http_req *q = *con_cls;
	struct dt_api_error e;
	size_t got = *n;

	if (!q)
		return begin_request(h, mhd, method, path, con_cls);
	if (got > 0) {
		*n = 0;
		return take_body(q, data, got);
	}
	pthread_mutex_lock(&h->mu);
	h->active++;
	q->answering = true;
	if (q->conn)
		q->conn->reading_since = 0;
	pthread_mutex_unlock(&h->mu);
	if (q->too_large) {
		dt_api_fail(&e, 413, "invalid_request_error", "body_too_large", "a body may have %zu bytes",
			    h->p.max_body);
		return dt_http_reply_error(q, &e);
	}
	return q->route->answer(q);
}

void dt_http_watch(struct dt_http_req *q, struct dt_call *call)
{
	pthread_mutex_lock(&q->http->mu);
	if (q->conn)
		q->conn->call = call;
	pthread_mutex_unlock(&q->http->mu);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct dt_http *h = cls;
	struct dt_http_req *q = *con_cls;

	if (!q)
		return;
	*con_cls = NULL;
	if (q->completion.call)
		dt_engine_cancel(q->engine, q->completion.call); /* nothing, when it is done */
	pthread_mutex_lock(&h->mu);
	if (q->conn) {
		q->conn->call = NULL;
		q->conn->reading_since = q->conn->cut ? 0 : dt_now();
	}
	h->active -= q->answering;
	pthread_mutex_unlock(&h->mu);
	dt_sse_release(&q->sse);
	dt_completion_release(&q->completion);
	free(q->pending);
	free(q->body);
	free(q);
}

/* ---- connections ---- */

/* Its own thread sees the end and closes. mu held. */
static void cut_off(struct dt_http *h, struct dt_http_conn *c)
{
	shutdown(c->fd, SHUT_RDWR);
	c->reading_since = 0;
	c->cut = true;
	h->nconns--;
}

/* Makes room for newcomers: who has owed a request longest goes first. mu held. */
static void make_room(struct dt_http *h)
{
	while (h->nconns > h->p.max_connections) {
		struct dt_http_conn *oldest = NULL;

		for (struct dt_http_conn *c = h->conns; c; c = c->next)
			if (c->reading_since > 0 && (!oldest || c->reading_since < oldest->reading_since))
				oldest = c;
		if (!oldest)
			return;
		cut_off(h, oldest);
	}
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
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
			return; /* without it the client is served, only not watched */
		}
		c->fd = i->connect_fd;
		c->reading_since = dt_now();
		pthread_mutex_lock(&h->mu);
		c->next = h->conns;
		if (c->next)
			c->next->prev = c;
		h->conns = c;
		h->nconns++;
		make_room(h);
		pthread_mutex_unlock(&h->mu);
	} else if (c) {
		pthread_mutex_lock(&h->mu);
		*(c->prev ? &c->prev->next : &h->conns) = c->next;
		if (c->next)
			c->next->prev = c->prev;
		h->nconns -= !c->cut;
		pthread_mutex_unlock(&h->mu);
		free(c);
		*ctx = NULL;
	}
}

/* One round over the connections, mu held. */
static void watch(struct dt_http *h)
{
	struct dt_engine *e = atomic_load(&h->engine);
	double now = dt_now();
	int n = 0;

	for (struct dt_http_conn *c = h->conns; c; c = c->next) {
		if (c->call && n < h->p.max_connections) {
			h->polls[n] = (struct pollfd){.fd = c->fd, .events = POLLRDHUP};
			h->polled[n++] = c;
		} else if (c->reading_since > 0 && now - c->reading_since > h->p.read_timeout) {
			cut_off(h, c);
		}
	}
	make_room(h);
	if (n == 0 || poll(h->polls, (nfds_t)n, 0) <= 0)
		return;
	for (int i = 0; i < n; i++) {
		if (!h->polls[i].revents)
			continue;
		dt_engine_cancel(e, h->polled[i]->call);
		h->polled[i]->call = NULL;
	}
}

static void *watcher_main(void *arg)
{
	struct dt_http *h = arg;

	pthread_mutex_lock(&h->mu);
	while (!h->stop) {
		struct timespec t;

		clock_gettime(CLOCK_MONOTONIC, &t);
		t.tv_nsec += WATCH_MS * 1000000L;
		if (t.tv_nsec >= 1000000000) {
			t.tv_sec++;
			t.tv_nsec -= 1000000000;
		}
		pthread_cond_timedwait(&h->wake, &h->mu, &t);
		watch(h);
	}
	pthread_mutex_unlock(&h->mu);
	return NULL;
}

/* ---- life ---- */

/* A listening socket on host:port; its address as a URL. */
static int listen_on(const struct dt_http_params *p, char *url, size_t n, struct dt_err *err)
{
	struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char port[16], host[256];
	int fd, rc, one = 1;

	snprintf(port, sizeof(port), "%d", p->port);
	rc = getaddrinfo(p->host, port, &hint, &list);
	if (rc != 0)
		return dt_err_set(err, -EADDRNOTAVAIL, "cannot listen on '%s': %s", p->host,
				  gai_strerror(rc));
	fd = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		rc = -errno;
	if (fd >= 0 && (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
			bind(fd, list->ai_addr, list->ai_addrlen) < 0 || listen(fd, 1024) < 0 ||
			getsockname(fd, (struct sockaddr *)&at, &len) < 0))
		rc = -errno;
	freeaddrinfo(list);
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		return dt_err_sys(err, rc, "cannot listen on '%s' port %d", p->host, p->port);
	}
	rc = getnameinfo((struct sockaddr *)&at, len, host, sizeof(host), port, sizeof(port),
			 NI_NUMERICHOST | NI_NUMERICSERV);
	if (rc != 0) {
		close(fd);
		return dt_err_set(err, -EADDRNOTAVAIL, "cannot name '%s': %s", p->host, gai_strerror(rc));
	}
	snprintf(url, n, strchr(host, ':') ? "http://[%s]:%s" : "http://%s:%s", host, port);
	return fd;
}

static void http_free(struct dt_http *h)
{
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->mu);
	free(h->polls);
	free(h->polled);
	free(h);
}

int dt_http_open(struct dt_http **ret, const struct dt_http_params *p, struct dt_err *err)
{
	struct dt_http *h = calloc(1, sizeof(*h));
	pthread_condattr_t a;
	int fd, rc;

	if (!h)
		return dt_err_sys(err, -ENOMEM, "cannot start the HTTP server");
	h->p = *p;
	pthread_mutex_init(&h->mu, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &a);
	pthread_condattr_destroy(&a);
	h->polls = calloc((size_t)p->max_connections, sizeof(*h->polls));
	h->polled = calloc((size_t)p->max_connections, sizeof(*h->polled));
	if (!h->polls || !h->polled) {
		http_free(h);
		return dt_err_sys(err, -ENOMEM, "cannot start the HTTP server");
	}
	rc = fd = listen_on(p, h->url, sizeof(h->url), err);
	if (rc < 0)
		goto fail;
	h->daemon = MHD_start_daemon(
		MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL, 0, NULL, NULL,
		on_request, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		2 * (unsigned)p->max_connections + 64, /* and those that are closing */
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(p->request_timeout + 60),
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
		MHD_OPTION_THREAD_STACK_SIZE, (size_t)THREAD_STACK, MHD_OPTION_END);
	if (!h->daemon) {
		close(fd);
		rc = dt_err_set(err, -EIO, "cannot start the HTTP server on %s", h->url);
		goto fail;
	}
	rc = -pthread_create(&h->watcher, NULL, watcher_main, h);
	if (rc < 0) {
		MHD_stop_daemon(h->daemon);
		dt_err_sys(err, rc, "cannot start the HTTP server's watcher");
		goto fail;
	}
	*ret = h;
	return 0;
fail:
	http_free(h);
	return rc;
}

const char *dt_http_url(const struct dt_http *h)
{
	return h->url;
}

void dt_http_serve(struct dt_http *h, struct dt_engine *e, const struct dt_chat *chat)
{
	h->chat = chat;
	atomic_store(&h->engine, e);
}

int dt_http_active(struct dt_http *h)
{
	int n;

	pthread_mutex_lock(&h->mu);
	n = h->active;
	pthread_mutex_unlock(&h->mu);
	return n;
}

void dt_http_close(struct dt_http *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->mu);
	h->stop = true;
	pthread_cond_signal(&h->wake);
	pthread_mutex_unlock(&h->mu);
	pthread_join(h->watcher, NULL);
	MHD_stop_daemon(h->daemon);
	http_free(h);
}
