/*
 * Health of servers: probes of /health, results of requests (a refused connection marks a server as down at
 * once), a circuit breaker for servers that return errors, and the models that each server has.
 */
#include "base/json.h"
#include "base/progress.h"
#include "route/priv.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDLE	     30. /* seconds after which an idle line is closed, before the server closes it */
#define RETRY_PROBE  0.2 /* seconds between probes of a server that has just gone down; grows */
#define MODELS_EVERY 8	 /* probes */

static int copy_conf(struct dt_route_server_conf *to, struct dt_route_server_conf *from)
{
	*to = *from;
	to->url = strdup(from->url);
	to->key = from->key ? strdup(from->key) : NULL;
	to->model = from->nmodels ? calloc((size_t)from->nmodels, sizeof(*to->model)) : NULL;
	for (int i = 0; to->model && i < from->nmodels; i++)
		to->model[i] = strdup(from->model[i]);
	return to->url && (!from->nmodels || to->model) ? 0 : -1;
}

static void free_conf(struct dt_route_server_conf *c)
{
	for (int i = 0; c->model && i < c->nmodels; i++)
		free((char *)c->model[i]);
	free(c->model);
	free((char *)c->key);
	free(c->url);
}

static void free_models(struct dt_route_server *s)
{
	for (int i = 0; i < s->nmodels; i++)
		free(s->model[i]);
	free(s->model);
	free(s->context);
	s->model = NULL;
	s->context = NULL;
	s->nmodels = -1;
	s->r->changes++;
}

struct dt_route_server *dt_route_server_new(struct dt_router *r, int number,
					    struct dt_route_server_conf *conf)
{
	struct dt_route_server *s = calloc(1, sizeof(*s));

	if (!s || copy_conf(&s->conf, conf) < 0) {
		if (s)
			free_conf(&s->conf);
		free(s);
		return NULL;
	}
	s->r = r;
	s->number = number;
	s->nmodels = -1;
	s->drained = conf->drained;
	r->changes++;
	TAILQ_INIT(&s->idle);
	return s;
}

void dt_route_server_free(struct dt_route_server *s)
{
	struct dt_route_line *l;

	if (s->probe)
		dt_route_fetch_cancel(s->probe);
	dt_route_events_stop(s);
	while ((l = TAILQ_FIRST(&s->idle)))
		dt_route_line_close(l);
	free_models(s);
	free_conf(&s->conf);
	free(s);
}

void dt_route_server_remove(struct dt_router *r, int i)
{
	dt_route_server_free(r->server[i]);
	r->server[i] = NULL;
	if (r->prefix)
		dt_prefix_forget(r->prefix, i);
}

/* ---- up or down ---- */

static void go_down(struct dt_route_server *s, const char *why)
{
	struct dt_route_line *l;

	if (!s->up)
		return;
	s->up = false;
	s->good = 0;
	dt_route_scale_seen(s); /* updates the sets too */
	dt_route_events_stop(s);
	dt_log_msg(s->r->p.log, "%s is down: %s", s->conf.url, why);
	while ((l = TAILQ_FIRST(&s->idle)))
		dt_route_line_close(l);
	if (s->r->prefix) /* a restarted server has an empty cache */
		dt_prefix_forget(s->r->prefix, s->number);
	s->next_probe = dt_now() + RETRY_PROBE;
}

static void go_up(struct dt_route_server *s)
{
	if (s->up)
		return;
	dt_log_msg(s->r->p.log, "%s is up", s->conf.url);
	s->up = true;
	s->bad = 0;
	dt_route_scale_seen(s);
	s->avoid_until = 0;
	s->circuit = DT_CIRCUIT_CLOSED;
	s->failures = 0;
	dt_route_server_changed(s);
	dt_route_x_run_queue(s->r);
}

/* ---- the circuit breaker ---- */

static void open_circuit(struct dt_route_server *s, double now)
{
	s->circuit = DT_CIRCUIT_OPEN;
	s->opened = now;
	s->successes = 0;
	dt_route_server_changed(s);
	dt_log_msg(s->r->p.log, "%s gets no requests for %g s after %d failures", s->conf.url,
		   s->r->conf.circuit_open, s->failures);
}

void dt_route_server_failed(struct dt_route_server *s, bool unreachable)
{
	const struct dt_route_conf *c = &s->r->conf;
	double now = dt_now();

	if (unreachable) {
		go_down(s, "connection failed");
		return;
	}
	s->next_probe = fmin(s->next_probe, now); /* a lost connection may mean a lost server */
	if (s->circuit == DT_CIRCUIT_HALF) {
		open_circuit(s, now);
		return;
	}
	if (now - s->window_start > c->circuit_window) {
		s->window_start = now;
		s->failures = 0;
	}
	if (++s->failures >= c->circuit_failures && s->circuit == DT_CIRCUIT_CLOSED)
		open_circuit(s, now);
}

void dt_route_server_served(struct dt_route_server *s)
{
	if (s->circuit != DT_CIRCUIT_HALF)
		return;
	if (++s->successes >= s->r->conf.circuit_successes) {
		s->circuit = DT_CIRCUIT_CLOSED;
		s->failures = 0;
		dt_route_server_changed(s);
		dt_log_msg(s->r->p.log, "%s answers again", s->conf.url);
	}
}

/* ---- probes ---- */

static void take_models(struct dt_route_server *s, const char *body, size_t n)
{
	json_t *o = json_loadb(body, n, 0, NULL), *list = json_object_get(o, "data");
	char **model = calloc(json_array_size(list) + 1, sizeof(*model));
	int *context = calloc(json_array_size(list) + 1, sizeof(*context));
	int many = 0;

	for (size_t i = 0; model && context && i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);
		const char *id = json_string_value(json_object_get(v, "id"));
		const json_int_t len = json_integer_value(json_object_get(v, "max_model_len"));

		if (id && (model[many] = strdup(id)))
			context[many++] = len > 0 && len <= INT_MAX ? (int)len : 0;
	}
	json_decref(o);
	if (!model || !context) {
		free(model);
		free(context);
	} else {
		free_models(s);
		s->model = model;
		s->context = context;
		s->nmodels = many;
		dt_route_server_changed(s);
	}
}

static void well(struct dt_route_server *s)
{
	/*
	 * The first interval is shortened by a fraction that depends on the server, to spread probes of many
	 * servers over time.
	 */
	double u = s->up ? 1 : (double)(s->r->balance.server[s->number].name >> 11) * 0x1p-53;

	s->bad = 0;
	s->next_probe = dt_now() + (s->asked == DT_ASKED_STOP ? RETRY_PROBE : u * s->r->conf.health_interval);
	if (!s->seen || ++s->good >= s->r->conf.rise) {
		s->seen = true;
		go_up(s);
	}
}

static void unwell(struct dt_route_server *s)
{
	double soon = RETRY_PROBE * (1 << (s->bad < 10 ? s->bad : 10));

	s->good = 0;
	s->seen = true;
	s->bad++;
	s->next_probe = dt_now() + fmin(soon, s->r->conf.health_interval);
	if (s->bad >= s->r->conf.fall || s->asked == DT_ASKED_STOP)
		go_down(s, "health check failed");
}

static void on_models(void *arg, int status, const char *body, size_t n)
{
	struct dt_route_server *s = arg;
	char said[24] = "no answer";

	s->probe = NULL;
	if (status > 0)
		snprintf(said, sizeof(said), "status %d", status);
	if (status != 200 && s->nmodels < 0 && !s->mute)
		dt_log_msg(s->r->p.log,
			   "%s does not list its models (%s): set its \"key\" or \"models\" in --config",
			   s->conf.url, said);
	s->mute = status != 200;
	if (status == 200)
		take_models(s, body, n);
	else if (s->nmodels < 0 && status > 0 && status < 500) /* it lists none; else it is asked again */
		s->nmodels = 0;
	dt_route_server_changed(s);
	well(s);
}

static void on_health(void *arg, int status, const char *body, size_t n)
{
	struct dt_route_server *s = arg;

	s->probe = NULL;
	if (status != 200 && status != 404) { /* 404: no such route, but the server is there */
		unwell(s);
		return;
	}
	if (status == 200)
		dt_route_take_role(s, body, n);
	if (s->conf.nmodels == 0 && (!s->up || s->nmodels <= 0 || s->asks++ % MODELS_EVERY == 0))
		s->probe =
			dt_route_fetch(s->r, &s->conf, "/v1/models", s->r->conf.health_timeout, on_models, s);
	if (!s->probe)
		well(s);
}

void dt_route_server_tick(struct dt_route_server *s, double now)
{
	struct dt_route_line *l;

	while ((l = TAILQ_LAST(&s->idle, dt_route_lines)) && now - l->since > IDLE)
		dt_route_line_close(l);
	dt_route_events_tick(s, now);
	if (s->gone || s->probe || now < s->next_probe)
		return;
	s->probe = dt_route_fetch(s->r, &s->conf, "/health", s->r->conf.health_timeout, on_health, s);
	if (!s->probe && dt_route_conn_lacks(errno))
		s->next_probe = now + RETRY_PROBE;
	else if (!s->probe)
		unwell(s);
}

/* Ends what goes on with the process: lines without a request, a probe, cache events. */
static void let_go(struct dt_route_server *s)
{
	struct dt_route_line *l;

	dt_route_events_stop(s);
	if (s->probe)
		dt_route_fetch_cancel(s->probe);
	s->probe = NULL;
	while ((l = TAILQ_FIRST(&s->idle)))
		dt_route_line_close(l);
}

void dt_route_server_leave(struct dt_route_server *s)
{
	s->gone = true;
	dt_route_server_changed(s);
	let_go(s);
}

void dt_route_server_moved(struct dt_route_server *s)
{
	dt_log_msg(s->r->p.log, "%s has another address", s->conf.url);
	s->moves++;
	s->next_probe = 0;
	let_go(s);
	if (s->r->prefix)
		dt_prefix_forget(s->r->prefix, s->number);
}
/* SPDX-License-Identifier: Apache-2.0 */
