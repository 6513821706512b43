#include "serve/http/http.h"

#include "base/cond.h"
#include "base/http.h"
#include "base/listen.h"
#include "serve/http/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_PEM	     (1 << 20) /* max bytes of a certificate or a key */
#define TLS_VERSIONS ((void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2")
#define CLOSING	     64
#define FILES	     128	   /* open files besides connections: weights, caches, batches */
#define THREAD_STACK (1024 * 1024) /* deeply nested JSON is parsed and freed by recursion */

/* ---- a request ---- */

/* Called first for each request, with the request target. */
static void *on_uri(void *cls, const char *uri, struct MHD_Connection *mhd)
{
	struct dt_http_req *q = calloc(1, sizeof(*q));

	if (!q)
		return NULL;
	q->http = cls;
	q->mhd = mhd;
	q->uri_bytes = strlen(uri);
	return q;
}

/* Leaves paths as sent: no route needs escapes. */
static size_t leave_escaped(void *cls, struct MHD_Connection *mhd, char *s)
{
	return strlen(s);
}

static enum MHD_Result begin_request(struct dt_http_req *q, const char *method, const char *path,
				     const char *version)
{
	const union MHD_ConnectionInfo *i =
		MHD_get_connection_info(q->mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
	struct dt_http *h = q->http;
	struct dt_api_error e;

	q->begun = true;
	q->conn = i ? i->socket_context : NULL;
	q->engine = atomic_load(&h->engine);
	q->params = &h->p;
	q->path = path + dt_http_before_path(path, strlen(path));
	q->classify = atomic_load(&h->classify);
	q->chat = q->engine ? h->chat : NULL;
	if (dt_http_screen(q, method, version, &e) < 0)
		return dt_http_reply_error(q, &e);
	return dt_http_is_preflight(q, method) ? dt_http_preflight(q) : MHD_YES;
}

/* Discards a refused body for a while: closing at once could lose the answer. */
static enum MHD_Result pass_over(struct dt_http_req *q, size_t n)
{
	free(q->body);
	q->body = NULL;
	q->cap = 0;
	dt_http_give_back(q);
	q->n += n;
	return q->n > 8 * q->params->max_body ? MHD_NO : MHD_YES;
}

static enum MHD_Result take_body(struct dt_http_req *q, const char *data, size_t n)
{
	if (q->route->flags & DT_ROUTE_UPLOAD) {
		q->n += n;
		q->too_large |= q->n > 2 * DT_STORE_UPLOAD; /* more than any form needs */
		if (!q->too_large && !dt_http_upload(q, data, n))
			return MHD_NO;
		return q->too_large ? MHD_NO : MHD_YES;
	}
	q->too_large |= q->n + n > q->params->max_body;
	if (q->too_large || q->no_memory)
		return pass_over(q, n);
	if (q->n + n > q->cap) {
		size_t cap = q->n + n > 2 * q->cap ? q->n + n : 2 * q->cap;
		char *p = dt_http_take(q, cap - q->cap) ? realloc(q->body, cap) : NULL;

		q->no_memory = !p;
		if (p) {
			q->body = p;
			q->cap = cap;
		}
	}
	q->no_memory |= !dt_http_take(q, dt_http_json_cost(q, data, n));
	if (q->no_memory)
		return pass_over(q, n);
	memcpy(q->body + q->n, data, n);
	q->n += n;
	return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *path, const char *method,
				  const char *version, const char *data, size_t *n, void **con_cls)
{
	struct dt_http_req *q = *con_cls;
	struct dt_api_error e;
	size_t got = *n;

	if (!q)
		return MHD_NO;
	if (!q->begun)
		return begin_request(q, method, path, version);
	if (got > 0) {
		*n = 0;
		return take_body(q, data, got);
	}
	dt_http_answering(q);
	if (q->too_large) {
		dt_api_fail(&e, 413, "invalid_request_error", "body_too_large",
			    "the body is larger than %zu bytes", q->params->max_body);
		return dt_http_reply_error(q, &e);
	}
	if (q->no_memory) {
		dt_http_no_memory(&e);
		return dt_http_reply_error(q, &e);
	}
	return q->route->answer(q);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct dt_http_req *q = *con_cls;

	if (!q)
		return;
	*con_cls = NULL;
	if (q->completion.call)
		dt_engine_cancel(q->engine, q->completion.call); /* no effect on a finished call */
	if (q->begun)
		dt_http_over(q);
	dt_http_give_back(q);
	dt_sse_release(&q->sse);
	dt_http_upload_release(q);
	dt_completion_release(&q->completion);
	free(q->pending);
	free(q->body);
	free(q);
}

/* ---- opening and closing ---- */

/* Reads the certificate and its key; libmicrohttpd uses them only when it starts. */
static int read_pem(const struct dt_http_params *p, char **cert, char **key, struct dt_err *err)
{
	size_t n;
	int rc;

	*cert = *key = NULL;
	if (!p->tls_cert)
		return 0;
	if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return dt_err_set(err, -ENOTSUP, "this machine's libmicrohttpd was built without TLS");
	rc = dt_read_file(p->tls_cert, MAX_PEM, cert, &n, err);
	return rc < 0 ? rc : dt_read_file(p->tls_key, MAX_PEM, key, &n, err);
}

static void forget(char *key)
{
	if (key)
		explicit_bzero(key, strlen(key));
	free(key);
}

/* Takes over the socket. NULL: it did not start. */
static struct MHD_Daemon *start(struct dt_http *h, int fd, char *cert, char *key)
{
	const struct dt_http_params *p = &h->p;
	const unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL;
	struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, cert},
				       {MHD_OPTION_HTTPS_MEM_KEY, 0, key},
				       {MHD_OPTION_HTTPS_PRIORITIES, 0, TLS_VERSIONS},
				       {MHD_OPTION_END, 0, NULL}};

	return MHD_start_daemon(
		flags | (cert ? MHD_USE_TLS : 0), 0, NULL, NULL, on_request, h, MHD_OPTION_LISTEN_SOCKET, fd,
		MHD_OPTION_CONNECTION_LIMIT, (unsigned)h->max_open, MHD_OPTION_STRICT_FOR_CLIENT, 1,
		MHD_OPTION_URI_LOG_CALLBACK, on_uri, h, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped, NULL,
		MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(p->request_timeout + p->answer_timeout + 1),
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_NOTIFY_CONNECTION,
		dt_http_on_connection, h, MHD_OPTION_THREAD_STACK_SIZE, (size_t)THREAD_STACK,
		MHD_OPTION_ARRAY, cert ? tls : &tls[3], MHD_OPTION_END);
}

static void http_free(struct dt_http *h)
{
	pthread_cond_destroy(&h->wake);
	pthread_mutex_destroy(&h->mu);
	free(h->polls);
	free(h->polled);
	free(h);
}

/* Sets max_open, which includes closing connections. Reduces both limits if too few files may be open. */
static void size_connections(struct dt_http *h)
{
	const int wanted = 2 * h->p.max_connections + CLOSING;

	h->max_open = dt_files_for(wanted, FILES);
	if (h->max_open < wanted)
		h->p.max_connections =
			h->max_open > 2 * CLOSING ? (h->max_open - CLOSING) / 2 : (h->max_open + 3) / 4;
}

int dt_http_open(struct dt_http **ret, const struct dt_http_params *p, struct dt_err *err)
{
	struct dt_http *h = calloc(1, sizeof(*h));
	char *cert = NULL, *key = NULL;
	int fd, rc;

	if (!h)
		return dt_err_sys(err, -ENOMEM, "cannot start the HTTP server");
	h->p = *p;
	atomic_init(&h->role, p->role);
	pthread_mutex_init(&h->mu, NULL);
	dt_cond_init_monotonic(&h->wake);
	TAILQ_INIT(&h->conns);
	size_connections(h);
	rc = read_pem(p, &cert, &key, err);
	if (rc < 0)
		goto fail;
	rc = fd = dt_listen(p->host, p->port, err);
	if (rc < 0)
		goto fail;
	rc = dt_listen_name(fd, p->tls_cert ? "https" : "http", h->url, sizeof(h->url), &h->loopback, err);
	if (rc < 0) {
		close(fd);
		goto fail;
	}
	h->daemon = start(h, fd, cert, key);
	if (!h->daemon) {
		close(fd);
		rc = cert ? dt_err_set(err, -EINVAL,
				       "cannot start TLS: '%s' and '%s' must be a certificate and its "
				       "private key, in "
				       "PEM and "
				       "without a password",
				       p->tls_cert, p->tls_key)
			  : dt_err_set(err, -EIO, "cannot start the HTTP server on %s", h->url);
		goto fail;
	}
	rc = dt_http_conns_open(h);
	if (rc < 0) {
		MHD_stop_daemon(h->daemon);
		dt_err_sys(err, rc, "cannot start the HTTP server's watcher");
		goto fail;
	}
	forget(key);
	free(cert);
	*ret = h;
	return 0;
fail:
	forget(key);
	free(cert);
	http_free(h);
	return rc;
}

int dt_http_connections(const struct dt_http *h)
{
	return h->p.max_connections;
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

void dt_http_serve_images(struct dt_http *h, struct dt_classify *c)
{
	atomic_store(&h->classify, c);
}

void dt_http_keep(struct dt_http *h, struct dt_store *store, struct dt_batches *batches)
{
	h->store = store;
	h->batches = batches;
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
	dt_http_conns_close(h);
	MHD_stop_daemon(h->daemon);
	http_free(h);
}
/* SPDX-License-Identifier: Apache-2.0 */
