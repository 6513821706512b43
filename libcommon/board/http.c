#include "board/board.h"

#include "base/http.h"
#include "base/listen.h"
#include "base/progress.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

extern const char dt_board_page_text[];

enum {
	LOOK_MS = 500,
	BEAT_S = 15,
	CLIENTS = 100,
	FILES = 20 /* open besides those of clients and runs */
};

struct dt_board_http {
	struct dt_board *b;
	const char *host, *key;
	pthread_mutex_t mu; /* protects b */
	double looked;
	bool stop;
	pthread_t reader; /* runs while the board is behind; joined on close */
	struct MHD_Daemon *mhd;
	char url[128];
};

/* Call with the lock held. Refreshes the board at most twice a second, however many clients ask. */
static void look(struct dt_board_http *h)
{
	struct dt_err err;

	if (h->b->behind || dt_now() < h->looked + LOOK_MS * 1e-3)
		return;		      /* the reader thread is working on it */
	dt_board_refresh(h->b, &err); /* errors, such as a removed folder, are ignored: what was read stays */
	h->looked = dt_now();
}

/*
 * Thread that reads the existing data piece by piece; meanwhile requests are answered with what has been
 * read.
 */
static void *read_on(void *arg)
{
	struct dt_board_http *h = arg;
	bool more = true;

	while (more) {
		struct dt_err err;

		pthread_mutex_lock(&h->mu);
		more = h->b->behind && !h->stop && dt_board_refresh(h->b, &err) == 0;
		h->b->behind &= more;
		pthread_mutex_unlock(&h->mu);
		/* gives requests a chance to take the lock */
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return NULL;
}

/* ---- answers ---- */

static enum MHD_Result answer(struct MHD_Connection *c, int status, const char *type, void *body, size_t n,
			      enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(n, body, mode);
	enum MHD_Result rc;

	if (!r)
		return MHD_NO;
	MHD_add_response_header(r, "Content-Type", type);
	MHD_add_response_header(r, "Cache-Control", "no-store");
	MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
	MHD_add_response_header(
		r, "Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
		"connect-src 'self'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
		"frame-ancestors 'none'");
	rc = MHD_queue_response(c, (unsigned)status, r);
	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result plain(struct MHD_Connection *c, int status, const char *text)
{
	return answer(c, status, "text/plain", (void *)text, strlen(text), MHD_RESPMEM_PERSISTENT);
}

/* Reads a number from the query into *v, which keeps its value if the query has none. */
static bool real_of(struct MHD_Connection *c, const char *name, bool whole, double least, double most,
		    double *v, char why[128])
{
	const char *s = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, name);
	char *end;
	double x = s ? strtod(s, &end) : 0;

	if (!s)
		return true;
	if (end == s || *end || !isfinite(x) || x < least || x > most || (whole && x != floor(x))) {
		if (whole)
			snprintf(why, 128, "'%s' is not a whole number from %.0f to %.0f\n", name, least,
				 most);
		else
			snprintf(why, 128, "'%s' is not a number\n", name);
		return false;
	}
	*v = x;
	return true;
}

/* Fills *q; false: why says what is wrong. */
static bool ask_of(struct MHD_Connection *c, struct dt_board_ask *q, char why[128])
{
	const char *keys = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "keys");
	double points = 600, run = -1;

	*q = (struct dt_board_ask){.keys = keys ? keys : "",
				   .spread = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "spread"),
				   .from = NAN,
				   .to = NAN,
				   .section =
					   MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "section")};
	if (!real_of(c, "from", false, -DBL_MAX, DBL_MAX, &q->from, why) ||
	    !real_of(c, "to", false, -DBL_MAX, DBL_MAX, &q->to, why) ||
	    !real_of(c, "points", true, 2, DT_BOARD_POINTS, &points, why) ||
	    !real_of(c, "run", true, 0, DT_BOARD_RUNS - 1, &run, why))
		return false;
	q->points = (int)points;
	q->run = (int)run;
	return true;
}

static void put_runs(const struct dt_board *b, const struct dt_board_ask *q, FILE *f)
{
	dt_board_put_runs(b, f);
}

static enum MHD_Result json(struct dt_board_http *h, struct MHD_Connection *c,
			    void (*put)(const struct dt_board *, const struct dt_board_ask *, FILE *))
{
	struct dt_board_ask q;
	char *text = NULL, why[128];
	size_t n = 0;
	FILE *f;

	if (!ask_of(c, &q, why))
		return answer(c, MHD_HTTP_BAD_REQUEST, "text/plain", why, strlen(why), MHD_RESPMEM_MUST_COPY);
	f = open_memstream(&text, &n);
	if (!f)
		return MHD_NO;
	pthread_mutex_lock(&h->mu);
	look(h);
	put(h->b, &q, f);
	pthread_mutex_unlock(&h->mu);
	if (fclose(f) == EOF) {
		free(text);
		return MHD_NO;
	}
	return answer(c, MHD_HTTP_OK, "application/json", text, n, MHD_RESPMEM_MUST_FREE);
}

/* ---- server-sent events: one for every change ---- */

struct listener {
	struct dt_board_http *h;
	uint64_t told;
};

static ssize_t next_event(void *arg, uint64_t pos, char *buf, size_t max)
{
	struct listener *l = arg;
	double quiet = dt_now() + BEAT_S;

	for (;;) {
		uint64_t version;
		bool stop;

		pthread_mutex_lock(&l->h->mu);
		look(l->h);
		version = l->h->b->version;
		stop = l->h->stop;
		pthread_mutex_unlock(&l->h->mu);
		if (stop)
			return MHD_CONTENT_READER_END_OF_STREAM;
		if (version != l->told || dt_now() > quiet) {
			bool changed = version != l->told;

			l->told = version;
			return changed ? snprintf(buf, max, "data: %llu\n\n", (unsigned long long)version)
				       : snprintf(buf, max, ": still here\n\n");
		}
		nanosleep(&(struct timespec){0, 200000000}, NULL);
	}
}

static enum MHD_Result events(struct dt_board_http *h, struct MHD_Connection *c)
{
	struct listener *l = calloc(1, sizeof(*l));
	struct MHD_Response *r;
	enum MHD_Result rc;

	if (!l)
		return MHD_NO;
	l->h = h;
	r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 1024, next_event, l, free);
	if (!r) {
		free(l);
		return MHD_NO;
	}
	MHD_add_response_header(r, "Content-Type", "text/event-stream");
	MHD_add_response_header(r, "Cache-Control", "no-store");
	rc = MHD_queue_response(c, MHD_HTTP_OK, r);
	MHD_destroy_response(r);
	return rc;
}

/* ---- requests ---- */

/* Without a key, answers only requests for this machine's own names, against DNS rebinding. */
static bool host_is_ours(struct dt_board_http *h, struct MHD_Connection *c)
{
	const char *host = MHD_lookup_connection_value(c, MHD_HEADER_KIND, "Host");

	return h->key || (host && dt_http_is_own_name(host, strlen(host), h->host));
}

static bool may_see(struct dt_board_http *h, struct MHD_Connection *c)
{
	const char *got = MHD_lookup_connection_value(c, MHD_GET_ARGUMENT_KIND, "key");
	size_t n = h->key ? strlen(h->key) : 0;
	unsigned char differ = 0;

	if (!h->key)
		return true;
	if (!got || strlen(got) != n)
		return false;
	for (size_t i = 0; i < n; i++)
		differ |= (unsigned char)(got[i] ^ h->key[i]);
	return !differ;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *c, const char *path, const char *method,
				  const char *version, const char *data, size_t *n, void **con_cls)
{
	static const struct {
		const char *path;
		void (*put)(const struct dt_board *, const struct dt_board_ask *, FILE *);
	} routes[] = {{"/api/runs", put_runs},
		      {"/api/series", dt_board_put_series},
		      {"/api/details", dt_board_put_details},
		      {"/api/timeline", dt_board_put_timeline}};
	static int begun;
	struct dt_board_http *h = cls;

	if (!*con_cls) { /* first call of a request: only headers so far */
		*con_cls = &begun;
		return MHD_YES;
	}
	if (*n) { /* ignore a request body */
		*n = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") && strcmp(method, "HEAD"))
		return plain(c, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET is allowed\n");
	if (!host_is_ours(h, c))
		return plain(c, MHD_HTTP_FORBIDDEN, "this host name is not served without --key\n");
	if (!strcmp(path, "/health"))
		return plain(c, MHD_HTTP_OK, "ok\n");
	if (!may_see(h, c))
		return plain(c, MHD_HTTP_UNAUTHORIZED, "?key= is missing or wrong\n");
	if (!strcmp(path, "/"))
		return answer(c, MHD_HTTP_OK, "text/html; charset=utf-8", (void *)dt_board_page_text,
			      strlen(dt_board_page_text), MHD_RESPMEM_PERSISTENT);
	if (!strcmp(path, "/events"))
		return events(h, c);
	for (size_t i = 0; i < sizeof(routes) / sizeof(*routes); i++)
		if (!strcmp(path, routes[i].path))
			return json(h, c, routes[i].put);
	return plain(c, MHD_HTTP_NOT_FOUND, "no such page\n");
}

/* ---- life ---- */

int dt_board_http_open(struct dt_board_http **ret, struct dt_board *b, const struct dt_board_http_params *p,
		       const char **ret_url, struct dt_err *err)
{
	struct dt_board_http *h = calloc(1, sizeof(*h));
	bool loopback;
	int fd, rc;

	if (!h)
		return dt_err_sys(err, -ENOMEM, "cannot serve");
	h->b = b;
	h->host = p->host;
	h->key = p->key;
	pthread_mutex_init(&h->mu, NULL);
	fd = dt_listen(p->host, p->port, err);
	rc = fd < 0 ? fd : dt_listen_name(fd, "http", h->url, sizeof(h->url), &loopback, err);
	if (rc == 0 && !loopback && !p->key)
		rc = dt_err_set(err, -ENOKEY,
				"--host %s (%s) needs --key, because other machines could read these runs",
				p->host, h->url);
	if (rc < 0) {
		if (fd >= 0)
			close(fd);
		free(h);
		return rc;
	}
	h->mhd = MHD_start_daemon(
		MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL,
		on_request, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		(unsigned)dt_files_for(CLIENTS, FILES + b->n), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
		(size_t)65536, MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_END);
	if (!h->mhd) {
		close(fd);
		free(h);
		return dt_err_set(err, -EIO, "cannot start the HTTP server");
	}
	if (pthread_create(&h->reader, NULL, read_on, h)) {
		MHD_stop_daemon(h->mhd);
		free(h);
		return dt_err_set(err, -EAGAIN, "cannot start the reader thread");
	}
	*ret = h;
	*ret_url = h->url;
	return 0;
}

void dt_board_http_close(struct dt_board_http *h)
{
	if (!h)
		return;
	pthread_mutex_lock(&h->mu);
	h->stop = true;
	pthread_mutex_unlock(&h->mu);
	MHD_stop_daemon(h->mhd);
	pthread_join(h->reader, NULL);
	pthread_mutex_destroy(&h->mu);
	free(h);
}
/* SPDX-License-Identifier: Apache-2.0 */
