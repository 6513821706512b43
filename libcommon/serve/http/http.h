/*
 * The HTTP server: libmicrohttpd with one thread a connection (so a handler may simply wait for its call),
 * and one thread that watches the connections. It cancels the call of a client that disconnected, and closes
 * connections of clients that take too long to send a request or to read an answer. Connections, memory and
 * time are limited.
 *
 * Without API keys, browsers are served only for the server's own page and for origins in allow_origin. On a
 * loopback address the Host header must also be a name of this machine.
 */
#ifndef DT_SERVE_HTTP_H
#define DT_SERVE_HTTP_H

#include "serve/api/batches.h"
#include "serve/api/classify.h"
#include "serve/api/openai.h"

struct dt_api_key {
	const char *key;
	int tenant; /* index in the engine's table */
};

/*
 * Which part of a request a server computes (dt-serve --role, disaggregated prefill); NONE: all of it, for
 * its own clients.
 */
enum dt_http_role { DT_ROLE_NONE, DT_ROLE_BOTH, DT_ROLE_PREFILL, DT_ROLE_DECODE };

struct dt_http_params {
	const char *host; /* name or address to listen on */
	int port;	  /* 0: any free one */
	const char *tls_cert,
		*tls_key; /* PEM files: certificate chain and private key without a password; NULL: no TLS */
	json_t *defaults; /* values of keys that a body lacks (dt_api_check_defaults); NULL: none */
	const char *model_name;
	enum dt_http_role role;	       /* initial role; clients may change it unless it is NONE */
	const struct dt_api_key *keys; /* bearer keys; every route but /health and the page requires one */
	int nkeys;		       /* 0: no key is required */
	size_t max_body;	       /* bytes */
	size_t max_memory;	       /* max bytes of bodies, parsed values and answers together */
	int max_connections;	       /* above it stalled and idle connections are closed, oldest first */
	const char *allow_origin; /* origins of web pages that may send requests (CORS), separated by commas;
				 * "*": all; NULL: none */
	double read_timeout;	  /* seconds a client may take to send a request, or stay idle */
	double request_timeout;	  /* seconds a completion may take */
	double answer_timeout;	  /* seconds to receive an answer, plus the time of its size at 64 KiB/s */
};

struct dt_http;

/* Listens at once. Until the model is loaded, every route but the page, /health and /version answers 503. */
int dt_http_open(struct dt_http **ret, const struct dt_http_params *p, struct dt_err *err);
/* "http://127.0.0.1:8000" */
const char *dt_http_url(const struct dt_http *h);
/* Connection limit in effect: max_connections, or fewer if the limit of open files is low. */
int dt_http_connections(const struct dt_http *h);
/* Sets the files and batches, which outlive h. Call before dt_http_serve. */
void dt_http_keep(struct dt_http *h, struct dt_store *store, struct dt_batches *batches);
/*
 * Call when the model is loaded: requests go to e, which outlives h. chat NULL: the model has no chat
 * template.
 */
void dt_http_serve(struct dt_http *h, struct dt_engine *e, const struct dt_chat *chat);
/* The same for an image classifier, which outlives h: /v1/classify. */
void dt_http_serve_images(struct dt_http *h, struct dt_classify *c);
/* Number of requests being answered. */
int dt_http_active(struct dt_http *h);
void dt_http_close(struct dt_http *h);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
