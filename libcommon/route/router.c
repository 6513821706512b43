#include "route/router.h"

#include "base/progress.h"
#include "base/tmpfile.h"
#include "route/priv.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK 0.05 /* seconds */
/* Seconds for which a draining router still answers on idle connections before closing them. */
#define DRAIN_GRACE 3.

/* ---- deferred freeing ---- */

void dt_route_discard(struct dt_router *r, struct dt_route_garbage *g)
{
	g->next = r->garbage;
	if (!r->garbage)
		event_active(&r->reaper, EV_TIMEOUT, 0);
	r->garbage = g;
}

static void reap(evutil_socket_t fd, short what, void *arg)
{
	struct dt_router *r = arg;

	while (r->garbage) {
		struct dt_route_garbage *g = r->garbage;

		r->garbage = g->next;
		free(g); /* it is the first member of its object */
	}
}

/* ---- periodic work ---- */

/*
 * While the first server starts, a request waits scale_hold; after that, queue_timeout from the time it is
 * up. Returns true if it was failed.
 */
static bool tick_queued(struct dt_route_x *x, double now)
{
	const struct dt_route_conf *c = &x->r->conf;
	bool starts = dt_route_may_start(x->r), held = starts && x->r->none_up;
	double since = starts && !held ? fmax(x->queued, x->r->empty) : x->queued;

	if (now - since <= (held ? c->scale_hold : c->queue_timeout))
		return false;
	if (held)
		dt_route_x_fail(x, 503, "no_server", 5, "no server was started within %g s", c->scale_hold);
	else
		dt_route_x_fail(x, 503, "overloaded", 1, "all servers were busy or down for %g s",
				c->queue_timeout);
	return true;
}

static void tick_exchange(struct dt_route_x *x, double now)
{
	const struct dt_route_conf *c = &x->r->conf;

	if (x->state == DT_X_READING)
		return;
	if (x->state == DT_X_QUEUED && tick_queued(x, now))
		return;
	for (int i = 0; i < 2; i++) {
		struct dt_route_line *l = x->line[i];

		if (!l)
			continue;
		if (l->conn.connecting && now - l->since > c->connect_timeout) {
			dt_route_x_broken(x, l, "the connection timed out", true);
			return;
		}
		if (!l->any && now - l->since > c->first_byte_timeout) {
			dt_route_x_broken(x, l, "no response within first_byte_timeout_s", false);
			return;
		}
		if (l->any && l->conn.reading && now - l->since > c->between_bytes_timeout) {
			dt_route_x_broken(x, l, "the answer stalled for between_bytes_timeout_s", false);
			return;
		}
		if (x->paused == 0 && now > x->deadline) {
			dt_route_x_broken(x, l, "the request exceeded request_timeout_s", false);
			return;
		}
	}
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct dt_router *r = arg;
	struct dt_route_client *c, *next;
	struct dt_route_x *x, *after;
	double now = dt_now();
	bool known = true, sending = false;

	for (x = TAILQ_FIRST(&r->all); x; x = after) {
		after = TAILQ_NEXT(x, in_all);
		tick_exchange(x, now);
	}
	for (c = TAILQ_FIRST(&r->clients); c; c = next) {
		next = TAILQ_NEXT(c, in_list);
		if (r->draining && !c->x && !c->reading_body && c->scanned == 0 &&
		    !dt_route_client_waits(c) && now - r->drain_since > DRAIN_GRACE) {
			dt_route_client_close(c);
		} else {
			sending |= dt_route_client_waits(c);
			dt_route_client_tick(c, now);
		}
	}
	for (int i = 0; i < r->balance.n; i++) {
		struct dt_route_server *s = r->server[i];

		if (!s)
			continue;
		dt_route_server_tick(s, now);
		known &= s->seen || s->gone;
		if (s->gone && s->nlines == 0)
			dt_route_server_remove(r, i);
	}
	if (r->nqueue > 0)
		dt_route_x_run_queue(r);
	dt_route_books_flush(r);
	if (r->deaf && !r->draining)
		event_add(&r->listener, NULL);
	r->deaf = false;
	if (known && !r->taken_over) {
		r->taken_over = true;
		dt_route_take_over();
	}
	if (r->taken_over)
		dt_route_scale_tick(r, now);
	if (!r->draining && dt_route_names_tick(r, now))
		dt_route_reload(r);
	if (r->heir > 0 && waitpid(r->heir, NULL, WNOHANG) == r->heir) {
		dt_log_msg(r->p.log, "the new process ended; this one keeps serving");
		r->heir = 0;
	}
	if (r->draining && r->nall == 0 && !sending &&
	    (r->nclients == 0 || now - r->drain_since > 2 * DRAIN_GRACE))
		event_base_loopbreak(r->base);
}

/* ---- signals, opening and closing ---- */

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
	struct dt_router *r = arg;

	if (sig == SIGHUP) {
		dt_route_reload(r);
	} else if (sig == SIGUSR2) {
		dt_route_hand_over(r);
	} else if (r->draining) {
		r->nsignals++;
		event_base_loopbreak(r->base);
	} else {
		dt_log_msg(r->p.log, "%s: accepting no new connections; waiting for %d request%s",
			   strsignal((int)sig), r->nall, r->nall == 1 ? "" : "s");
		r->draining = true;
		r->drain_since = dt_now();
		event_del(&r->listener);
		close(r->fd);
		r->fd = -1;
	}
}

static void add_events(struct dt_router *r)
{
	static const int signals[4] = {SIGTERM, SIGINT, SIGHUP, SIGUSR2};
	const struct timeval t = {.tv_usec = (suseconds_t)(TICK * 1e6)};

	for (int i = 0; i < 4; i++) {
		evsignal_assign(&r->signals[i], r->base, signals[i], on_signal, r);
		evsignal_add(&r->signals[i], NULL);
	}
	event_assign(&r->tick, r->base, -1, EV_PERSIST, on_tick, r);
	event_add(&r->tick, &t);
	event_assign(&r->listener, r->base, r->fd, EV_READ | EV_PERSIST, dt_route_accept, r);
	event_add(&r->listener, NULL);
	event_active(&r->tick, EV_TIMEOUT, 0);
}

int dt_route_open(struct dt_router **ret, const struct dt_route_params *p, struct dt_err *err)
{
	struct dt_router *r = calloc(1, sizeof(*r));
	struct dt_route_conf c;
	int rc;

	if (!r)
		return dt_err_sys(err, -ENOMEM, "cannot start the router");
	r->p = *p;
	r->fd = -1;
	r->budget = 10;
	TAILQ_INIT(&r->clients);
	TAILQ_INIT(&r->all);
	TAILQ_INIT(&r->queue);
	if (getrandom(&r->id_salt, sizeof(r->id_salt), 0) < 0)
		r->id_salt = (uint64_t)(dt_now() * 1e9);
	r->base = event_base_new();
	if (!r->base) {
		free(r);
		return dt_err_set(err, -EIO, "cannot create an event loop");
	}
	event_assign(&r->reaper, r->base, -1, 0, reap, r);
	dt_balance_init(&r->balance, DT_BALANCE_CACHE, NULL, r->id_salt);
	rc = dt_route_conf_read(&c, &p->args, err);
	if (rc == 0 && c.books && (rc = dt_out_check(c.books, err)) < 0)
		dt_route_conf_release(&c);
	if (rc == 0)
		rc = dt_route_apply(r, &c, err);
	if (rc == 0 && r->books_failed)
		rc = dt_err_set(err, -EIO, "cannot write '%s'", r->conf.books);
	if (rc == 0)
		rc = dt_route_listen(r, p->host, p->port, err);
	if (rc < 0) {
		dt_route_close(r);
		return rc;
	}
	dt_route_need_files(r);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* a parent may have ignored it, and then no child has an exit status */
	add_events(r);
	*ret = r;
	return 0;
}

const char *dt_route_url(const struct dt_router *r)
{
	return r->url;
}

int dt_route_run(struct dt_router *r, struct dt_err *err)
{
	if (event_base_dispatch(r->base) < 0)
		return dt_err_set(err, -EIO, "the event loop failed");
	if (r->nsignals > 0)
		return dt_err_set(err, -EINTR, "second signal: exiting with %d unfinished request%s", r->nall,
				  r->nall == 1 ? "" : "s");
	return 0;
}

void dt_route_close(struct dt_router *r)
{
	struct dt_route_client *c;
	struct dt_route_x *x;

	while ((c = TAILQ_FIRST(&r->clients)))
		dt_route_client_close(c);
	while ((x = TAILQ_FIRST(&r->all)))
		dt_route_x_free(x);
	dt_route_names_stop(r);
	for (int i = 0; i < DT_PREFIX_SERVERS; i++)
		if (r->server[i])
			dt_route_server_free(r->server[i]);
	reap(-1, 0, r);
	if (r->fd >= 0)
		close(r->fd);
	dt_route_books_flush(r);
	dt_route_buf_release(&r->books_out);
	if (r->books)
		fclose(r->books);
	dt_prefix_free(r->prefix);
	dt_route_conf_release(&r->conf);
	free(r->tenant);
	event_base_free(r->base);
	free(r);
}
/* SPDX-License-Identifier: Apache-2.0 */
