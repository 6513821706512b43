/*
 * Internals of the router. A client (front.c) has one exchange at a time. An exchange (exchange.c) has a
 * line, i.e. a connection to a server (line.c), or two while it hedges. A server (server.c) has idle lines.
 * Objects closed inside a callback are freed later by the event loop (dt_route_discard).
 */
#ifndef DT_ROUTE_PRIV_H
#define DT_ROUTE_PRIV_H

#include "base/quota.h"
#include "route/conn.h"
#include "route/http1.h"
#include "route/members.h"
#include "route/router.h"
#include "route/scale.h"

#include <sys/queue.h>

struct dt_route_garbage {
	struct dt_route_garbage *next;
};

struct dt_route_bars { /* a histogram */
	uint64_t n[24];
	double sum;
};

struct dt_route_tenant {
	char name[64];
	struct dt_quota tokens, requests;
	double weight, served; /* served: tokens divided by weight, for fair queueing */
	int priority, waiting;
	uint64_t n_requests, n_refused, n_prompt, n_cached, n_answer;
};

/* ---- servers and their lines ---- */

enum dt_route_circuit { DT_CIRCUIT_CLOSED, DT_CIRCUIT_OPEN, DT_CIRCUIT_HALF };
enum dt_route_role { DT_ROUTE_ALONE, DT_ROUTE_BOTH, DT_ROUTE_PREFILLS, DT_ROUTE_DECODES };
enum dt_route_asked { DT_ASKED_NOTHING, DT_ASKED_START, DT_ASKED_STOP };

struct dt_route_server {
	struct dt_router *r;
	int number;			  /* index in the balancer and the prefix index */
	struct dt_route_server_conf conf; /* owns its strings */
	/* Inputs of dt_route_sets: call dt_route_server_changed after each change. */
	bool gone;    /* removed from the configuration; freed with its last line */
	bool drained; /* by an administrator or by the configuration */
	bool off;     /* the scaler does not want it to run */
	bool up, seen;
	enum dt_route_asked asked; /* what on_scale was asked to do and is not done yet */
	enum dt_route_circuit circuit;
	enum dt_route_role role;
	int trials;		    /* requests in progress that test a half-open circuit */
	int moves;		    /* how often its address has changed */
	int nmodels;		    /* -1: unknown */
	double avoid_until, opened; /* avoid_until 0: no response has asked for a pause */

	char **model;
	int *context; /* [nmodels] maximum length of a sequence in tokens; 0: the server does not say */
	bool mute;    /* it did not list its models when it was asked last */
	double ask_again;
	int bad, good; /* consecutive failed and successful probes */
	struct dt_route_fetch *probe;
	double next_probe;
	uint64_t asks;		       /* probes so far; one in eight asks for the models */
	struct dt_route_fetch *asking; /* request for cache events */
	double next_events;
	char events_at[64]; /* position in its event stream */
	bool tells;	    /* it reports cache events */
	int failures, successes;
	double window_start;
	TAILQ_HEAD(dt_route_lines, dt_route_line) idle;
	int nidle, nlines;
	uint64_t n_requests, n_errors;
};

struct dt_route_line {
	struct dt_route_garbage garbage;
	struct dt_route_conn conn;
	struct dt_route_server *server;
	struct dt_route_x *x; /* NULL: idle */
	TAILQ_ENTRY(dt_route_line) in_idle;
	bool reused, any, in_body, keep;
	bool trial; /* its request tests a half-open circuit */
	int moves;  /* of the server, when it was opened */
	size_t scanned;
	enum dt_route_framing framing;
	uint64_t left;
	struct dt_route_chunks chunks;
	struct dt_balance_choice choice, pair; /* pair.server: prefill server of the prompt; -1: none */
	double since;			       /* start of being idle, connecting, or waiting for data */
};

struct dt_route_x;

/* server.c */
struct dt_route_server *dt_route_server_new(struct dt_router *r, int number,
					    struct dt_route_server_conf *conf);
void dt_route_server_free(struct dt_route_server *s);
/* Frees a server and its number. It must have no requests in progress. */
void dt_route_server_remove(struct dt_router *r, int number);
void dt_route_server_failed(struct dt_route_server *s, bool unreachable);
void dt_route_server_served(struct dt_route_server *s);
void dt_route_server_tick(struct dt_route_server *s, double now); /* probes; closes old idle lines */
void dt_route_server_leave(struct dt_route_server *s);		  /* removed from the configuration */
/* Its host name has another address: what was known of the process at the old one does not hold. */
void dt_route_server_moved(struct dt_route_server *s);

/* choice.c: bit sets of servers by state, so that a choice among 256 servers costs as much as among 2. */
struct dt_route_sets {
	uint64_t there[DT_BALANCE_WORDS];    /* configured */
	uint64_t unlisted[DT_BALANCE_WORDS]; /* of those, servers whose models are unknown */
	uint64_t prefills[DT_BALANCE_WORDS]; /* of those, prefill servers, which answer no clients */
	uint64_t takes[DT_BALANCE_WORDS];    /* accept requests, independent of time */
	uint64_t perhaps[DT_BALANCE_WORDS];  /* paused or circuit not closed: see dt_route_server_takes */
};
void dt_route_server_changed(struct dt_route_server *s);
/* Which servers have a model; cached until the servers or their models change. */
struct dt_route_having {
	char model[128]; /* "": empty entry */
	uint64_t changes;
	uint64_t has[DT_BALANCE_WORDS];
};
/* Returns the servers that have a model. Valid until the next call. */
const struct dt_route_having *dt_route_having(struct dt_router *r, const char *model);
void dt_route_server_pause(struct dt_route_server *s, double seconds); /* the server asked for a pause */
/*
 * Sets the candidates for a request. FULL: servers that could take it are at their limits; NONE: none is
 * available; UNKNOWN: no server has the model.
 */
enum dt_route_found { DT_ROUTE_FOUND, DT_ROUTE_FULL, DT_ROUTE_NONE, DT_ROUTE_UNKNOWN };
enum dt_route_found dt_route_choice_mark(struct dt_route_x *x, double now);
/* Sets the candidates to the prefill servers for a request's prompt. */
void dt_route_choice_mark_prefills(struct dt_route_x *x, double now);

/* events.c */
#define DT_ROUTE_MARKS_ROOM (DT_PREFIX_DEEPEST * 16 + 100)
void dt_route_events_tick(struct dt_route_server *s, double now);
void dt_route_events_stop(struct dt_route_server *s);		      /* forgets what its cache has */
size_t dt_route_events_marks(const struct dt_route_x *x, char *text); /* [DT_ROUTE_MARKS_ROOM] */

/* pairs.c: chooses prefill servers. take_role: reads it from a /health body. pair: for a line that begins. */
void dt_route_take_role(struct dt_route_server *s, const char *health, size_t n);
const char *dt_route_role_name(const struct dt_route_server *s);
void dt_route_pair(struct dt_route_x *x, struct dt_route_line *l, const struct dt_balance_ask *ask);
void dt_route_unpair(struct dt_route_line *l);
/* Writes the JSON member that names the prefill server, with a trailing comma; returns its bytes, 0: none. */
size_t dt_route_pair_member(const struct dt_route_line *l, char *text, size_t room);

/* names.c: looks up host names; true: the addresses of one have changed. */
bool dt_route_names_tick(struct dt_router *r, double now);
void dt_route_names_stop(struct dt_router *r);

/* scaler.c */
int dt_route_servers_up(const struct dt_router *r);  /* not counting drained ones */
int dt_route_load(const struct dt_router *r);	     /* waiting and running requests */
bool dt_route_may_start(const struct dt_router *r);  /* more servers may appear */
void dt_route_scale_seen(struct dt_route_server *s); /* the server came up or went down */
void dt_route_scale_tick(struct dt_router *r, double now);

/* fetch.c: an asynchronous GET request. done with status 0: it failed. Returns NULL with errno. */
typedef void dt_route_fetched(void *arg, int status, const char *body, size_t n);
struct dt_route_fetch *dt_route_fetch(struct dt_router *r, const struct dt_route_server_conf *to,
				      const char *path, double timeout, dt_route_fetched *done, void *arg);
void dt_route_fetch_cancel(struct dt_route_fetch *f);

/* ---- an exchange: one request ---- */

enum dt_route_state { DT_X_READING, DT_X_QUEUED, DT_X_TRYING, DT_X_WAITING, DT_X_OVER };

struct dt_route_x {
	struct dt_route_garbage garbage;
	struct dt_router *r;
	struct dt_route_client *client; /* NULL: shadow copy */
	enum dt_route_state state;
	TAILQ_ENTRY(dt_route_x) in_list; /* in all, or in the queue */
	TAILQ_ENTRY(dt_route_x) in_all;
	char id[132];
	char *target;		       /* path */
	struct dt_route_buf head;      /* headers to forward */
	struct dt_route_buf key;       /* the client's headers with a key, if the router requires none */
	struct dt_route_buf body;      /* as the client sent it */
	struct dt_route_buf edit;      /* the body to send, if it is not the client's */
	char *asked, *model;	       /* model names: the client's, the server's; NULL: none */
	bool stream, counts, stripped; /* the router asked for usage and removes it */
	int tenant;
	double guess; /* estimated prompt tokens: a quarter of the bytes */
	double asks;  /* guess plus the longest answer that the body allows: an upper bound */
	double quota; /* tokens charged in advance */
	uint64_t session;
	uint64_t *hash;
	int nhash;
	double mark_share; /* distance of hashes, as a fraction of the prompt */
	bool cached;	   /* dt-serve computes the prompt by its cache: the body may get our own members */
	struct dt_route_line *line[2];
	uint64_t tried[DT_BALANCE_WORDS];
	int tries;
	double backoff;
	struct event timer; /* backoff, hedge */
	bool timer_set;
	double begun, chosen, first, deadline, queued; /* times; first 0: no byte yet */
	double paused; /* since when reading the answer waits for the client; 0: it does not */
	double lacks;  /* since when this process lacks resources to connect to a server; 0: it does not */
	/* the response */
	int status;
	struct dt_route_buf answer_head, held, event;
	int64_t holds; /* bytes of these buffers and the bodies, counted in r->memory */
	bool passing, chunked, is_stream, has_length, cut;
	bool to_close; /* the answer ends with the connection: neither chunked nor of a known length */
	uint64_t length, passed;
	char tail[4096];
	size_t ntail;
	uint64_t events;
	int matched;
	struct dt_route_server *by; /* the server that answers */
};
TAILQ_HEAD(dt_route_xs, dt_route_x);

/* exchange.c, exchange_new.c, exchange_start.c */
struct dt_route_x *dt_route_x_new(struct dt_router *r, struct dt_route_client *c,
				  const struct dt_route_head *h, int tenant);
void dt_route_x_start(struct dt_route_x *x);  /* its body is complete */
void dt_route_x_cancel(struct dt_route_x *x); /* the client has disconnected */
void dt_route_x_run_queue(struct dt_router *r);
/* Queues x until a server has room; fails it if the queue is full. */
void dt_route_x_wait(struct dt_route_x *x);
/* Sends x to the server chosen by the policy, or queues it; fresh: on a new connection. */
void dt_route_x_try(struct dt_route_x *x, bool fresh);
void dt_route_x_fail(struct dt_route_x *x, int status, const char *code, int retry_after, const char *fmt,
		     ...) __attribute__((format(printf, 5, 6)));
void dt_route_x_free(struct dt_route_x *x);
void dt_route_x_count(struct dt_route_x *x); /* call it when a buffer of it has grown or shrunk */
/* Called by its line: the head of a response (false: close the line), content, the end, a failure. */
bool dt_route_x_head(struct dt_route_x *x, struct dt_route_line *l, const struct dt_route_head *h);
void dt_route_x_content(struct dt_route_x *x, struct dt_route_line *l, const char *s, size_t n);
void dt_route_x_done(struct dt_route_x *x, struct dt_route_line *l);
void dt_route_x_broken(struct dt_route_x *x, struct dt_route_line *l, const char *why, bool unreachable);

/* request.c: parses the body. Returns NULL, or what is wrong. */
const char *dt_route_x_read(struct dt_route_x *x);
const struct dt_route_name *dt_route_x_name(struct dt_route_x *x);

/* answer.c */
void dt_route_answer_begin(struct dt_route_x *x, const struct dt_route_head *h);
void dt_route_answer_add(struct dt_route_x *x, const char *s, size_t n);
void dt_route_answer_end(struct dt_route_x *x);
void dt_route_answer_break(struct dt_route_x *x, const char *why); /* after the first byte */
void dt_route_answer_usage(const struct dt_route_x *x, double *prompt, double *cached,
			   double *answer); /* < 0: unknown */

/* line.c: returns NULL with errno on failure */
struct dt_route_line *dt_route_line_open(struct dt_route_x *x, const struct dt_balance_choice *c,
					 const struct dt_balance_ask *ask, bool fresh);
void dt_route_line_close(struct dt_route_line *l);
/* The request on the line has ended: it is no longer load. answer: tokens of its answer, < 0: unknown. */
void dt_route_line_leave(struct dt_route_line *l, double answer);
void dt_route_line_pause(struct dt_route_x *x, bool on);

/* ---- a client ---- */

struct dt_route_client {
	struct dt_route_garbage garbage;
	struct dt_router *r;
	struct dt_route_conn conn;
	TAILQ_ENTRY(dt_route_client) in_list;
	struct dt_route_x *x;
	size_t scanned;
	enum dt_route_framing framing;
	uint64_t left;
	struct dt_route_chunks chunks;
	bool keep, reading_body, closing, cut, http10, busy, is_head;
	bool messages;	 /* uses Anthropic's API */
	double deadline; /* for sending what is awaited; 0: none */
	double stalled;	 /* since when it has not read, although bytes wait to be sent; 0: none wait */
	uint64_t taken;	 /* bytes that it had acknowledged at that time */
};

/* Client connections beyond max_connections, which get an error response. */
#define DT_ROUTE_BEYOND 16

/* socket.c */
int dt_route_listen(struct dt_router *r, const char *host, int port, struct dt_err *err);
/* Raises the limit of open files; logs a line if it stays too low for the configured connections. */
void dt_route_need_files(struct dt_router *r);
/* Logs, at most once a minute, that this process has no file descriptor or memory left for a connection. */
void dt_route_say_lack(struct dt_router *r, int error);

/* front.c */
void dt_route_accept(evutil_socket_t fd, short what, void *arg);
void dt_route_client_close(struct dt_route_client *c);
/* Whether bytes wait to be sent to the client. */
static inline bool dt_route_client_waits(const struct dt_route_client *c)
{
	return dt_route_buf_size(&c->conn.out) > 0;
}
void dt_route_client_tick(struct dt_route_client *c, double now);
/* The response is complete: continues with the next request, or closes. */
void dt_route_client_next(struct dt_route_client *c);
/* Closes the connection within an answer when what was put is sent: no client takes it for a whole answer. */
void dt_route_client_cut(struct dt_route_client *c);
/*
 * The header line of an answer that says whether the connection stays open: an HTTP/1.0 client that asked for
 * keep-alive waits for the end of the connection unless it is told. "" if it needs none.
 */
const char *dt_route_connection(struct dt_route_client *c);
void dt_route_reply(struct dt_route_client *c, int status, const char *type, const char *body, size_t n,
		    const char *headers);
void dt_route_reply_error(struct dt_route_client *c, int status, const char *code, int retry_after,
			  const char *headers, const char *msg);
/* An error object in the format of the client's API. */
json_t *dt_route_error_json(bool messages, int status, const char *code, const char *msg);
const char *dt_route_reason(int status);

/* local.c: answers routes of the router itself; false: it is none of them. */
bool dt_route_local(struct dt_route_client *c, const struct dt_route_head *h, int tenant, bool admin);
bool dt_route_local_open(struct dt_route_text target); /* needs no key */
/* A route that reads or changes the state of one server: not forwarded, since any server could get it. */
bool dt_route_of_one_server(struct dt_route_text target);
/* limits.c */
/* make: builds the tenants and returns their number, without changing r; take: installs them. */
int dt_route_tenants_make(const struct dt_router *r, const struct dt_keyfile *keys,
			  struct dt_route_tenant **ret, struct dt_err *err);
void dt_route_tenants_take(struct dt_router *r, struct dt_route_tenant *made, int n);
/* take: charges the tenant or returns the seconds to wait (0: charged). headers: x-ratelimit-*. */
double dt_route_limit_take(struct dt_router *r, int tenant, double tokens, double *ret_taken);
/* The tenant's tokens a minute if they are fewer than `tokens`, so that waiting cannot help; else 0. */
double dt_route_limit_below(const struct dt_router *r, int tenant, double tokens);
int dt_route_limit_headers(const struct dt_router *r, int tenant, char *buf, size_t n);
/* reload.c: takes over c; on failure releases c and changes nothing. */
int dt_route_apply(struct dt_router *r, struct dt_route_conf *c, struct dt_err *err);
void dt_route_reload(struct dt_router *r);
/* books.c */
void dt_route_books_open(struct dt_router *r);
void dt_route_books_flush(struct dt_router *r);
void dt_route_books_add(struct dt_route_x *x, int status);
/* metrics.c */
void dt_route_bars_add(struct dt_route_bars *b, double v);
void dt_route_metrics(struct dt_router *r, struct dt_route_buf *out);
/* handover.c */
int dt_route_passed_socket(void);
void dt_route_hand_over(struct dt_router *r);
void dt_route_take_over(void);

struct dt_router {
	struct dt_route_params p;
	struct dt_route_conf conf;
	struct event_base *base;
	struct event listener, tick, reaper, signals[4];
	int fd;
	char url[300];
	bool loopback, draining, taken_over;
	bool deaf;	  /* the listener is removed from the loop until the next tick */
	double said_lack; /* time of the last message; 0: never */
	double drain_since;
	int nsignals;
	pid_t heir;
	struct dt_route_lookup *lookup; /* lookup in progress; NULL: none */
	int next_name;			/* index in conf.watched */
	uint64_t names_of;		/* number of reloads when it began */
	double next_lookup;
	bool scaling;
	struct dt_scale scale;
	pid_t command; /* the running on_scale command */
	bool none_up;  /* no server is up */
	double empty;  /* when that was last true */
	struct dt_prefix *prefix;
	struct dt_balance balance;
	struct dt_prefix_chain chain; /* scratch memory for hashing a prompt */
	struct dt_route_server *server[DT_PREFIX_SERVERS];
	struct dt_route_sets sets;
	struct dt_route_having having[8]; /* hash table by model */
	uint64_t changes;		  /* counts changes of servers and of their models */
	TAILQ_HEAD(, dt_route_client) clients;
	int nclients;
	struct dt_route_xs all, queue;
	int nqueue, nall;
	struct dt_route_tenant *tenant; /* [ntenants], the last one for requests without a key */
	int ntenants;
	double budget;	/* retries left */
	int64_t memory; /* bytes of bodies and answers: read, held back, not sent yet */
	struct dt_route_garbage *garbage;
	uint64_t next_id, id_salt;
	FILE *books; /* only opened by stdio: lines are written whole, by dt_route_books_flush */
	struct dt_route_buf books_out;
	bool books_failed, books_torn; /* torn: the file ends within a line */
	struct dt_route_stats {
		uint64_t status[600], errors, retries, retries_denied, limited, cancelled, broken, shadows,
			hedges, queued, books_errors, reloads, held, scaled_up, scaled_down, scale_commands,
			scale_errors;
		double prompt, cached, answer;
		struct dt_route_bars ttft, total, wait;
	} stats;
};

void dt_route_discard(struct dt_router *r, struct dt_route_garbage *g);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
