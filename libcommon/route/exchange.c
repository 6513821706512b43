/*
 * A request in progress: the choice of a server, attempts and the retry budget, hedging, the end. Nothing is
 * retried after the first byte has gone to the client.
 */
#include "route/priv.h"

#include "base/progress.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends a request: accounting, metrics, the client's next request. */
static void over(struct dt_route_x *x, int status)
{
	struct dt_route_client *c = x->client;
	struct dt_router *r = x->r;
	bool cut = x->cut;

	dt_route_books_add(x, status);
	dt_route_x_free(x);
	if (c && cut)
		dt_route_client_cut(c);
	else if (c)
		dt_route_client_next(c);
	dt_route_x_run_queue(r);
}

void dt_route_x_fail(struct dt_route_x *x, int status, const char *code, int retry_after, const char *fmt,
		     ...)
{
	struct dt_route_client *c = x->client;
	char msg[700], headers[800];
	va_list ap;
	int n;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	x->status = status;
	if (c) {
		n = snprintf(headers, sizeof(headers), "X-Request-Id: %s\r\n", x->id);
		dt_route_limit_headers(x->r, x->tenant, headers + n, sizeof(headers) - (size_t)n);
		dt_route_reply_error(c, status, code, retry_after, headers, msg);
	}
	over(x, status);
}

void dt_route_x_cancel(struct dt_route_x *x)
{
	struct dt_router *r = x->r;

	r->stats.cancelled++;
	dt_route_books_add(x, 499);
	x->client = NULL;
	dt_route_x_free(x);
	dt_route_x_run_queue(r);
}

/* ---- choosing a server ---- */

/* 1: being sent; 0: the server cannot be reached; < 0: this process lacks resources. */
static int start_line(struct dt_route_x *x, bool fresh)
{
	struct dt_balance_ask ask = {.hash = x->hash, .n = x->nhash, .session = x->session, .now = dt_now()};
	struct dt_balance_choice c = dt_balance_take(&x->r->balance, &ask);
	struct dt_route_server *s = c.server < 0 ? NULL : x->r->server[c.server];
	int slot = x->line[0] ? 1 : 0, rc;

	if (!s)
		return 0;
	x->line[slot] = dt_route_line_open(x, &c, &ask, fresh);
	if (!x->line[slot]) {
		rc = errno;
		dt_balance_give(&x->r->balance, &c, -1);
		if (dt_route_conn_lacks(rc))
			return -rc;
	}
	dt_balance_set_bit(x->tried, c.server, true);
	x->chosen = ask.now;
	x->lacks = 0;
	x->tries++;
	x->matched = c.matched;
	s->n_requests++;
	if (!x->line[slot]) {
		dt_route_server_failed(s, true);
		return 0;
	}
	x->line[slot]->trial = s->circuit == DT_CIRCUIT_HALF;
	s->trials += x->line[slot]->trial;
	return 1;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct dt_route_x *x = arg;

	if (x->state == DT_X_WAITING) {
		x->state = DT_X_TRYING;
		dt_route_x_try(x, false);
	} else if (x->state == DT_X_TRYING && x->first == 0 && !x->line[1] &&
		   dt_route_choice_mark(x, dt_now()) == DT_ROUTE_FOUND && x->r->budget >= 1) {
		x->r->budget--;
		x->r->stats.hedges += start_line(x, false) > 0;
	}
}

static void set_timer(struct dt_route_x *x, double s)
{
	struct timeval t = {.tv_sec = (time_t)s, .tv_usec = (suseconds_t)(fmod(s, 1) * 1e6)};

	if (!x->timer_set)
		evtimer_assign(&x->timer, x->r->base, on_timer, x);
	x->timer_set = true;
	evtimer_add(&x->timer, &t);
}

static void pause_try(struct dt_route_x *x)
{
	struct dt_router *r = x->r;
	double share = (double)(dt_prefix_hash(r->next_id++, x->id, 8) >> 11) * 0x1p-53;

	x->backoff = x->backoff > 0 ? fmin(x->backoff * 1.5, 30) : r->conf.backoff;
	x->state = DT_X_WAITING;
	set_timer(x, x->backoff * (0.8 + 0.4 * share));
}

/* This process lacks resources for a connection: tries again for as long as a request may wait. */
static void lack(struct dt_route_x *x, int error)
{
	const double now = dt_now();

	dt_route_say_lack(x->r, error);
	x->lacks = x->lacks > 0 ? x->lacks : now;
	if (!x->client)
		over(x, 503); /* a shadow copy does not wait */
	else if (now - x->lacks > x->r->conf.queue_timeout)
		dt_route_x_fail(x, 503, "overloaded", 1, "cannot open a connection to a server: %s",
				strerror(error));
	else
		pause_try(x);
}

void dt_route_x_try(struct dt_route_x *x, bool fresh)
{
	enum dt_route_found found;
	int rc;

	for (;;) {
		found = dt_route_choice_mark(x, dt_now());
		if (found == DT_ROUTE_NONE && x->tries > 0) { /* all were tried: start over */
			memset(x->tried, 0, sizeof(x->tried));
			found = dt_route_choice_mark(x, dt_now());
		}
		if (found != DT_ROUTE_FOUND)
			break;
		rc = start_line(x, fresh);
		if (rc > 0 && x->r->conf.hedge > 0 && !x->stream && x->client && !x->line[1])
			set_timer(x, x->r->conf.hedge);
		if (rc < 0)
			lack(x, -rc);
		if (rc != 0)
			return;
	}
	if (found == DT_ROUTE_UNKNOWN && x->asked)
		dt_route_x_fail(x, 404, "model_not_found", 0, "no server has the model '%.200s'", x->asked);
	else if (!x->client)
		over(x, 503); /* a shadow copy does not wait */
	else
		dt_route_x_wait(x);
}

/* ---- called by lines ---- */

static void forget_line(struct dt_route_x *x, struct dt_route_line *l, double answer)
{
	x->line[x->line[1] == l] = NULL;
	if (!x->line[0]) {
		x->line[0] = x->line[1];
		x->line[1] = NULL;
	}
	dt_route_line_leave(l, answer);
}

/*
 * Whether the request may be retried; charges the retry budget. The first retry after a server was lost is
 * free, or a crash under load would use up the budget.
 */
static bool may_retry(struct dt_route_x *x, bool lost)
{
	struct dt_router *r = x->r;
	bool free_try = lost && x->tries == 1;

	if (x->first > 0 || x->tries > r->conf.retries || !x->client || dt_now() > x->deadline)
		return false;
	if (!free_try && r->budget < 1) {
		r->stats.retries_denied++;
		return false;
	}
	r->budget -= !free_try;
	return true;
}

/* Retries at once if another server is available, else after a pause. */
static void retry(struct dt_route_x *x)
{
	struct dt_router *r = x->r;

	if (x->line[0]) /* the other line of a hedge continues */
		return;
	x->by = NULL; /* the server may be removed from the configuration before the next response */
	r->stats.retries++;
	if (dt_route_choice_mark(x, dt_now()) == DT_ROUTE_FOUND) {
		dt_route_x_try(x, false);
		return;
	}
	pause_try(x);
}

static bool is_retried(int status)
{
	return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
	       status == 504;
}

bool dt_route_x_head(struct dt_route_x *x, struct dt_route_line *l, const struct dt_route_head *h)
{
	struct dt_route_server *s = l->server;
	struct dt_route_text after = dt_route_header(h, "retry-after");

	if (is_retried(h->status)) {
		s->n_errors++;
		if (h->status != 429 && h->status != 503)
			dt_route_server_failed(s, false);
		else if (after.n > 0 && after.n < 6)
			dt_route_server_pause(s, fmin(fmax(strtod(after.s, NULL), 0), 60));
		if (x->line[1] || may_retry(x, false)) {
			forget_line(x, l, -1);
			l->x = NULL;
			retry(x);
			return false;
		}
	}
	if (x->line[1]) { /* hedging: the first response wins */
		struct dt_route_line *other = x->line[x->line[0] == l];

		forget_line(x, other, -1);
		dt_route_line_close(other);
	}
	x->by = s;
	dt_route_answer_begin(x, h);
	return true;
}

static void first_byte(struct dt_route_x *x)
{
	if (x->first > 0)
		return;
	x->first = dt_now();
	if (x->client)
		dt_route_bars_add(&x->r->stats.ttft, x->first - x->begun);
}

void dt_route_x_content(struct dt_route_x *x, struct dt_route_line *l, const char *s, size_t n)
{
	if (x->is_stream || !x->client)
		first_byte(x);
	dt_route_unpair(l);
	dt_route_answer_add(x, s, n);
	if (x->passing)
		first_byte(x);
}

void dt_route_x_done(struct dt_route_x *x, struct dt_route_line *l)
{
	double prompt, cached, answer;

	dt_route_answer_usage(x, &prompt, &cached, &answer);
	forget_line(x, l, answer);
	if (x->status < 500)
		dt_route_server_served(l->server);
	first_byte(x);
	dt_route_answer_end(x);
	over(x, x->status);
}

void dt_route_x_broken(struct dt_route_x *x, struct dt_route_line *l, const char *why, bool unreachable)
{
	struct dt_router *r = x->r;
	struct dt_route_server *s = l->server;
	bool stale = l->reused && !l->any, begun = x->first > 0 || x->passing;
	int number = l->choice.server;

	forget_line(x, l, -1);
	dt_route_line_close(l);
	if (!stale) {
		s->n_errors++;
		dt_route_server_failed(s, unreachable);
	}
	if (begun) {
		r->stats.broken++;
		x->status = 502;
		dt_route_answer_break(x, why);
		over(x, 502);
	} else if (stale && x->client) { /* the server had closed an idle connection: no failure */
		x->tried[number / 64] &= ~((uint64_t)1 << number % 64);
		x->tries--;
		if (!x->line[0])
			dt_route_x_try(x, true);
	} else if (x->line[0] || may_retry(x, true)) {
		retry(x);
	} else {
		dt_route_x_fail(x, 502, "server_lost", 1, "the connection to the server failed: %s", why);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
