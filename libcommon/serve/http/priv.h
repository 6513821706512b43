/* The HTTP server's state. Private to serve/http. */
#ifndef DT_SERVE_HTTP_PRIV_H
#define DT_SERVE_HTTP_PRIV_H

#include "serve/api/openai.h"
#include "serve/http/http.h"

#include <microhttpd.h>
#include <stdatomic.h>
#include <sys/queue.h>

/* One open connection. Guarded by dt_http.mu. */
struct dt_http_conn {
	int fd;
	double reading_since; /* start of the wait for a request; 0 while one is answered */
	double answer_until;  /* deadline for the client to receive the answer; 0: no answer is ready */
	double stalled_since; /* since when queued bytes have not been acknowledged; 0: there is progress */
	uint64_t acked;	      /* bytes acknowledged at the last check */
	struct dt_call *call; /* to cancel when the client goes away */
	bool streaming;	      /* the response's head has been sent */
	bool asking;	      /* its request waits in dt_http_make_place */
	bool half_closed;     /* the client closed its sending side; a probe was sent */
	bool cut;	      /* being closed */
	TAILQ_ENTRY(dt_http_conn) in_list;
};

TAILQ_HEAD(dt_http_conns, dt_http_conn);

struct dt_http {
	struct dt_http_params p;
	struct MHD_Daemon *daemon;
	char url[320];
	bool loopback;		    /* it listens on a loopback address */
	const struct dt_chat *chat; /* set before engine */
	struct dt_store *store;	    /* set before engine; NULL: none */
	struct dt_batches *batches;
	_Atomic(struct dt_engine *) engine;
	_Atomic(struct dt_classify *) classify; /* only one of engine and classify is set */
	_Atomic int role;			/* enum dt_http_role */
	atomic_size_t memory;			/* bytes of bodies, values parsed from them, and answers */

	pthread_t watcher;
	pthread_mutex_t mu;
	pthread_cond_t wake; /* CLOCK_MONOTONIC */
	struct dt_http_conns conns;
	int nconns; /* connections that are not being closed */
	int max_open;
	struct pollfd *polls;	      /* [max_open] */
	struct dt_http_conn **polled; /* [max_open] */
	int round;		      /* counts rounds of the watcher */
	int active;
	bool stop;
};

struct dt_http_req { /* one request being answered */
	struct dt_http *http;
	struct MHD_Connection *mhd;
	struct dt_http_conn *conn;
	const struct dt_route *route;
	struct dt_engine *engine; /* NULL while the model loads */
	struct dt_classify *classify;
	const struct dt_http_params *params;
	size_t uri_bytes; /* bytes of the request target, as sent */
	const char *path;
	const char *origin; /* Origin that --allow-origin admits; NULL: no Origin header, or not admitted */
	const char *allow;  /* methods of the path, for the Allow header of a 405 */
	char *body;
	size_t n, cap;
	size_t memory;	/* its part of dt_http.memory */
	bool in_string; /* state of the scan that estimates the JSON's memory */
	bool escaped;
	bool begun, too_large, no_memory, answering;
	int tenant;
	const struct dt_chat *chat;
	struct dt_completion completion;
	struct dt_sse sse;
	struct dt_http_upload *upload;
	/* prefill.c: the record being sent, bytes sent of it and its block, and blocks sent */
	struct dt_kvrecord kv_rec;
	size_t kv_off;
	int kv_sent;
	bool kv_here, kv_ended; /* blocks go over the connection; the last record was made */
	char *pending;		/* events that libmicrohttpd has not taken yet */
	size_t pending_n, pending_off;
	size_t pending_memory; /* its part of memory */
};

struct dt_route {
	const char *method, *path; /* a path that ends in '/' matches all paths with that prefix */
	enum MHD_Result (*answer)(struct dt_http_req *q);
	enum dt_route_flags {
		DT_ROUTE_OPEN = 1,   /* needs no key */
		DT_ROUTE_SPARE = 2,  /* is exempt from the connection limit */
		DT_ROUTE_EARLY = 4,  /* answers before the model is loaded */
		DT_ROUTE_UPLOAD = 8, /* its body is written to disk */
		DT_ROUTE_ANY = 16,   /* also for servers that classify images; without it: for text */
	} flags;
};

/* files.c: takes the next bytes of an upload; false: out of memory. */
bool dt_http_upload(struct dt_http_req *q, const char *data, size_t n);
void dt_http_upload_release(struct dt_http_req *q);
enum { DT_HTTP_FILE_ROUTES = 8 };
extern const struct dt_route dt_http_file_routes[DT_HTTP_FILE_ROUTES];

/*
 * routes.c: NULL: unknown path, or the method is not allowed (*ret_allow: those that are). HEAD is treated as
 * GET.
 */
const struct dt_route *dt_route_find(const char *method, const char *path, const char **ret_allow);

extern const char dt_http_page_text[]; /* page/ */
/* page.c: the page for browsers, and the scheduler's state. */
enum MHD_Result dt_http_page(struct dt_http_req *q);
enum MHD_Result dt_http_slots(struct dt_http_req *q);
enum MHD_Result dt_http_props(struct dt_http_req *q);

/* events.c: removes kv_marks from the body; the marks are passed to the call. -EINVAL with e filled. */
struct dt_http_marks {
	uint64_t *mark; /* [n] */
	int n;
	double share;
};
int dt_http_marks(json_t *body, struct dt_http_marks *ret, struct dt_api_error *e);
void dt_http_marks_give(struct dt_http_marks *m, struct dt_completion *c); /* takes over the memory of m */
/*
 * prefill.c: removes kv_prefill from the body; *ret is the index of the server that it names among those of
 * --prefill, from 1, or 0 if it is not one of them. -EINVAL with e filled.
 */
int dt_http_peer(const struct dt_http_req *q, json_t *body, int *ret, struct dt_api_error *e);
enum MHD_Result dt_http_events(struct dt_http_req *q);

/* classify.c: routes of an image classifier. */
enum MHD_Result dt_http_classify(struct dt_http_req *q);
enum MHD_Result dt_http_classify_models(struct dt_http_req *q);
enum MHD_Result dt_http_classify_metrics(struct dt_http_req *q);

/* models.c: lists served models; loads and unloads adapters. */
enum MHD_Result dt_http_models(struct dt_http_req *q);
enum MHD_Result dt_http_model(struct dt_http_req *q);
enum MHD_Result dt_http_load_adapter(struct dt_http_req *q);
enum MHD_Result dt_http_unload_adapter(struct dt_http_req *q);

/* prefill.c: computes prompts for other servers; shows and changes the role. */
const char *dt_http_role_name(enum dt_http_role r);
enum MHD_Result dt_http_prefill(struct dt_http_req *q);
enum MHD_Result dt_http_role(struct dt_http_req *q);
enum MHD_Result dt_http_set_role(struct dt_http_req *q);
/* routes.c: submits q's call and watches the connection for it. -EINVAL with e filled. */
int dt_http_submit(struct dt_http_req *q, struct dt_api_error *e);

/* screen.c: checks the request line and the headers. 0, or -EINVAL with e filled. */
int dt_http_screen(struct dt_http_req *q, const char *method, const char *version, struct dt_api_error *e);
/* A CORS preflight request (OPTIONS). */
bool dt_http_is_preflight(struct dt_http_req *q, const char *method);
enum MHD_Result dt_http_preflight(struct dt_http_req *q);

/* reply.c: parses the body as JSON. NULL with e filled, also if receiving the body failed. */
json_t *dt_http_body(struct dt_http_req *q, struct dt_api_error *e);
/* Queue a reply; steal r, v and text. */
enum MHD_Result dt_http_reply(struct dt_http_req *q, unsigned status, struct MHD_Response *r,
			      const char *type);
enum MHD_Result dt_http_reply_json(struct dt_http_req *q, unsigned status, json_t *v);
enum MHD_Result dt_http_reply_text(struct dt_http_req *q, unsigned status, const char *type, char *text,
				   size_t n);
enum MHD_Result dt_http_reply_error(struct dt_http_req *q, const struct dt_api_error *e);
/* Queues the server-sent events of q->sse. */
enum MHD_Result dt_http_reply_stream(struct dt_http_req *q);
int dt_http_no_memory(struct dt_api_error *e); /* -EINVAL */

/* memory.c: charges n bytes of the memory budget to q. false: the budget is exhausted. */
bool dt_http_take(struct dt_http_req *q, size_t n);
void dt_http_give(struct dt_http_req *q, size_t n); /* returns n bytes of what q was charged */
void dt_http_give_back(struct dt_http_req *q);	    /* all of it */
/* Refuses, before it is computed, an answer that --http-mem could never hold. -EINVAL with e filled. */
int dt_http_too_large(struct dt_http_req *q, struct dt_api_error *e);
/*
 * Charges what a stream begins with, a prompt with its log-probabilities, and the answer's log-probabilities,
 * which are kept for a slow reader. -EINVAL with e filled.
 */
int dt_http_charge_stream(struct dt_http_req *q, struct dt_api_error *e);
/* Charges the memory of the images of a call until it has ended. -EINVAL with e filled. */
int dt_http_charge_images(struct dt_http_req *q, struct dt_api_error *e);
/* Upper bound of the memory needed to parse the next n bytes of the body. */
size_t dt_http_json_cost(struct dt_http_req *q, const char *s, size_t n);

/* conns.c */
int dt_http_conns_open(struct dt_http *h); /* -ENOMEM, -EAGAIN */
void dt_http_conns_close(struct dt_http *h);
void dt_http_on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
			   enum MHD_ConnectionNotificationCode code);
/* Waits up to a second until the number of connections is within the limit; closes idle and stalled ones. */
bool dt_http_make_place(struct dt_http_req *q);
/* answering: the request is complete; answered: its answer of n bytes is queued; over: it has ended. */
void dt_http_answering(struct dt_http_req *q);
void dt_http_answered(struct dt_http_req *q, size_t n, bool stream);
void dt_http_over(struct dt_http_req *q);
/* The watcher cancels this call when the client disconnects, at once if it has; NULL: nothing to cancel any
 * more. */
void dt_http_watch(struct dt_http_req *q, struct dt_call *call);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
