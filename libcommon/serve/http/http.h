/*
 * The HTTP server: libmicrohttpd with a thread a connection (so a handler may simply wait for its call), and
 * one thread that watches the connections: a client that went away has its call cancelled, one that takes too
 * long to send its request or to read its answer is cut off. Connections, memory and time are bounded.
 *
 * Without keys only its own page and pages of allow_origin may ask, and on a loopback address only under the
 * machine's names.
 */
#ifndef DT_SERVE_HTTP_H
#define DT_SERVE_HTTP_H

#include "serve/api/batches.h"
#include "serve/api/classify.h"
#include "serve/api/openai.h"

struct dt_api_key {
	const char *key;
	int tenant; /* in the engine's table */
};

/* What a server does of the work of an answer (dt-serve --role); NONE: all of it, for itself. */
enum dt_http_role { DT_ROLE_NONE, DT_ROLE_BOTH, DT_ROLE_PREFILL, DT_ROLE_DECODE };

struct dt_http_params {
	const char *host; /* name or address to listen on */
	int port;	  /* 0: any free one */
	const char *tls_cert,
		*tls_key; /* files in PEM: the chain and its key, without a password; NULL: no TLS */
	json_t *defaults; /* values of keys that a body lacks (dt_api_check_defaults); NULL: none */
	const char *model_name;
	enum dt_http_role role;	       /* at first; clients may change it unless it is NONE */
	const struct dt_api_key *keys; /* bearer keys, one of which all but /health and the page ask for; */
	int nkeys;		       /* 0: none is asked */
	size_t max_body;	       /* bytes */
	size_t max_memory;	       /* bytes of bodies, values parsed from them, and answers together */
	int max_connections;	       /* beyond it stalled and idle ones are closed, the oldest first */
	const char
		*allow_origin;	/* origins of pages that may ask, separated by commas; "*": all; NULL: none */
	double read_timeout;	/* seconds a client may take to send a request, or stay idle */
	double request_timeout; /* seconds a completion may take */
	double answer_timeout;	/* seconds to receive an answer, plus its bytes at 64 KiB/s */
};

struct dt_http;

/* Listens at once; until there is a model every route but the page, /health and /version answers 503. */
int dt_http_open(struct dt_http **ret, const struct dt_http_params *p, struct dt_err *err);
/* "http://127.0.0.1:8000" */
const char *dt_http_url(const struct dt_http *h);
/* Those it may have: max_connections, or fewer where the limit of open files is low. */
int dt_http_connections(const struct dt_http *h);
/* Files and batches, which outlive h. Before dt_http_serve. */
void dt_http_keep(struct dt_http *h, struct dt_store *store, struct dt_batches *batches);
/* The model is loaded: completions go to e, which outlives h. chat NULL: the model has no template. */
void dt_http_serve(struct dt_http *h, struct dt_engine *e, const struct dt_chat *chat);
/* The same of a classifier of images, which outlives h: /v1/classify. */
void dt_http_serve_images(struct dt_http *h, struct dt_classify *c);
/* Requests being answered now. */
int dt_http_active(struct dt_http *h);
void dt_http_close(struct dt_http *h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
