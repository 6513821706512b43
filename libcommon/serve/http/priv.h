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
	double stalled_since; /* since when queued bytes are not acknowledged; 0: they move */
	uint64_t acked;	      /* bytes acknowledged at the last check */
	struct dt_call *call; /* to cancel when the client goes away */
	bool streaming;	      /* the response's head has been sent */
	bool asking;	      /* its request waits for a place: dt_http_make_place */
	bool half_closed;     /* the client closed its sending side; a probe was sent */
	bool cut;	      /* closing */
	TAILQ_ENTRY(dt_http_conn) in_list;
};

TAILQ_HEAD(dt_http_conns, dt_http_conn);

struct dt_http {
	struct dt_http_params p;
	struct MHD_Daemon *daemon;
	char url[320];
	bool loopback;		    /* it listens on an address that only this machine reaches */
	const struct dt_chat *chat; /* set before engine is */
	struct dt_store *store;	    /* the same; NULL: there is none */
	struct dt_batches *batches;
	_Atomic(struct dt_engine *) engine;
	_Atomic(struct dt_classify *) classify; /* the one or the other */
	_Atomic int role;			/* enum dt_http_role */
	atomic_size_t memory; /* bytes of bodies, of what is parsed from them, and of answers */

	pthread_t watcher;
	pthread_mutex_t mu;
	pthread_cond_t wake; /* CLOCK_MONOTONIC */
	struct dt_http_conns conns;
	int nconns; /* that are not closing */
	int max_open;
	struct pollfd *polls;	      /* [max_open] */
	struct dt_http_conn **polled; /* [max_open] */
	int round;		      /* of the watcher */
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
	size_t uri_bytes; /* of the request line's second word, as sent */
	const char *path;
	const char *origin; /* Origin that --allow-origin admits; NULL: no Origin header, or not admitted */
	const char *allow;  /* methods of the path, for a 405 */
	char *body;
	size_t n, cap;
	size_t memory;	/* its share of dt_http.memory */
	bool in_string; /* state of the scan of the body's JSON */
	bool escaped;
	bool begun, too_large, no_memory, answering;
	int tenant;
	const struct dt_chat *chat;
	struct dt_completion completion;
	struct dt_sse sse;
	struct dt_http_upload *upload;
	/* prefill.c: the record that is being sent, and bytes of it and its block that were; blocks sent */
	struct dt_kvrecord kv_rec;
	size_t kv_off;
	int kv_sent;
	bool kv_here, kv_ended; /* blocks go over the connection; the last record has been made */
	char *pending;		/* events not yet taken by libmicrohttpd */
	size_t pending_n, pending_off;
};

struct dt_route {
	const char *method, *path; /* a path that ends in '/' stands for all that begin so */
	enum MHD_Result (*answer)(struct dt_http_req *q);
	enum dt_route_flags {
		DT_ROUTE_OPEN = 1,    /* needs no key */
		DT_ROUTE_SPARE = 2,   /* is exempt from the connection limit */
		DT_ROUTE_EARLY = 4,   /* answers before there is a model */
		DT_ROUTE_UPLOAD = 8,  /* its body goes to the disk */
		DT_ROUTE_IMAGES = 16, /* of servers that classify images alone */
		DT_ROUTE_ANY = 32,    /* of these too; all others are of text */
	} flags;
};

/* files.c. Takes a piece of an upload; false: out of memory. */
bool dt_http_upload(struct dt_http_req *q, const char *data, size_t n);
void dt_http_upload_release(struct dt_http_req *q);
enum { DT_HTTP_FILE_ROUTES = 8 };
extern const struct dt_route dt_http_file_routes[DT_HTTP_FILE_ROUTES];

/* routes.c. NULL: no such path, or (*ret_allow: its methods) not with this method. HEAD is GET. */
const struct dt_route *dt_route_find(const char *method, const char *path, const char **ret_allow);

extern const char dt_http_page_text[]; /* page.html */
/* page.c: the page for browsers, and what the scheduler holds. */
enum MHD_Result dt_http_page(struct dt_http_req *q);
enum MHD_Result dt_http_slots(struct dt_http_req *q);

/* events.c: kv_marks is taken out of the body, and given to the call. -EINVAL with e filled. */
struct dt_http_marks {
	uint64_t *mark; /* [n] */
	int n;
	double share;
};
int dt_http_marks(json_t *body, struct dt_http_marks *ret, struct dt_api_error *e);
void dt_http_marks_give(struct dt_http_marks *m, struct dt_completion *c); /* takes it over */
/*
 * prefill.c: the number of the server that kv_prefill names among those of --prefill, from 1; 0: none of
 * them. It is taken out of the body. -EINVAL with e filled.
 */
int dt_http_peer(const struct dt_http_req *q, json_t *body, int *ret, struct dt_api_error *e);
enum MHD_Result dt_http_events(struct dt_http_req *q);

/* classify.c: the routes of a classifier of images. */
enum MHD_Result dt_http_classify(struct dt_http_req *q);
enum MHD_Result dt_http_classify_models(struct dt_http_req *q);
enum MHD_Result dt_http_classify_metrics(struct dt_http_req *q);

/* models.c: what is served, and adapters that come and go. */
enum MHD_Result dt_http_models(struct dt_http_req *q);
enum MHD_Result dt_http_model(struct dt_http_req *q);
enum MHD_Result dt_http_load_adapter(struct dt_http_req *q);
enum MHD_Result dt_http_unload_adapter(struct dt_http_req *q);

/* prefill.c: prompts for other servers; what this one does. */
const char *dt_http_role_name(enum dt_http_role r);
enum MHD_Result dt_http_prefill(struct dt_http_req *q);
enum MHD_Result dt_http_role(struct dt_http_req *q);
enum MHD_Result dt_http_set_role(struct dt_http_req *q);
/* routes.c: submits q's call, which is watched from then on. -EINVAL with e filled. */
int dt_http_submit(struct dt_http_req *q, struct dt_api_error *e);

/* screen.c: checks the request line and the headers: 0, or -EINVAL with e filled. */
int dt_http_screen(struct dt_http_req *q, const char *method, const char *version, struct dt_api_error *e);
/* An OPTIONS request by which a browser asks for permission (CORS). */
bool dt_http_is_preflight(struct dt_http_req *q, const char *method);
enum MHD_Result dt_http_preflight(struct dt_http_req *q);

/* reply.c. The body as JSON; NULL with e filled, where it went wrong included. */
json_t *dt_http_body(struct dt_http_req *q, struct dt_api_error *e);
/* Queue a reply. Steals r, v and text. */
enum MHD_Result dt_http_reply(struct dt_http_req *q, unsigned status, struct MHD_Response *r,
			      const char *type);
enum MHD_Result dt_http_reply_json(struct dt_http_req *q, unsigned status, json_t *v);
enum MHD_Result dt_http_reply_text(struct dt_http_req *q, unsigned status, const char *type, char *text,
				   size_t n);
enum MHD_Result dt_http_reply_error(struct dt_http_req *q, const struct dt_api_error *e);
/* Server-sent events of q->sse. */
enum MHD_Result dt_http_reply_stream(struct dt_http_req *q);
int dt_http_no_memory(struct dt_api_error *e); /* -EINVAL */

/* memory.c: charges n bytes to the budget for q. False: the budget is exhausted. */
bool dt_http_take(struct dt_http_req *q, size_t n);
void dt_http_give_back(struct dt_http_req *q); /* all of them */
/* Upper bound of the memory that parsing the next n bytes of the body takes. */
size_t dt_http_json_cost(struct dt_http_req *q, const char *s, size_t n);

/* conns.c */
int dt_http_conns_open(struct dt_http *h); /* -ENOMEM, -EAGAIN */
void dt_http_conns_close(struct dt_http *h);
void dt_http_on_connection(void *cls, struct MHD_Connection *mhd, void **ctx,
			   enum MHD_ConnectionNotificationCode code);
/* Waits up to a second until the connections are within the limit; idle and stalled ones are closed. */
bool dt_http_make_place(struct dt_http_req *q);
/* The request is complete and is being answered; its answer of n bytes is queued; it has ended. */
void dt_http_answering(struct dt_http_req *q);
void dt_http_answered(struct dt_http_req *q, size_t n, bool stream);
void dt_http_over(struct dt_http_req *q);
/* The watcher cancels this call when the client goes away; NULL: nothing to cancel any more. */
void dt_http_watch(struct dt_http_req *q, struct dt_call *call);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
