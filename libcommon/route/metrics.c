/* The router's metrics as Prometheus reads them. */
#include "base/progress.h"
#include "route/priv.h"

#include <stdarg.h>
#include <stdio.h>

static const double edges[] = {.001, .002, .005, .01, .02, .04, .06, .08, .1,  .25, .5,	 .75,
			       1,    2.5,  5,	 7.5, 10,  20,	40,  80,  160, 640, 2560};
#define NEDGES (sizeof(edges) / sizeof(*edges))

void dt_route_bars_add(struct dt_route_bars *b, double v)
{
	size_t i = 0;

	while (i < NEDGES && v > edges[i])
		i++;
	b->n[i]++;
	b->sum += v;
}

static void put(struct dt_route_buf *out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(struct dt_route_buf *out, const char *fmt, ...)
{
	char line[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	dt_route_buf_add(out, line, n < (int)sizeof(line) ? (size_t)n : sizeof(line) - 1);
}

static void one(struct dt_route_buf *out, const char *name, const char *type, const char *help, double v)
{
	put(out, "# HELP dt:%s %s\n# TYPE dt:%s %s\ndt:%s %.15g\n", name, help, name, type, name, v);
}

static void bars(struct dt_route_buf *out, const char *name, const char *help, const struct dt_route_bars *b)
{
	uint64_t n = 0;

	put(out, "# HELP dt:%s %s\n# TYPE dt:%s histogram\n", name, help, name);
	for (size_t i = 0; i < NEDGES; i++) {
		n += b->n[i];
		put(out, "dt:%s_bucket{le=\"%g\"} %llu\n", name, edges[i], (unsigned long long)n);
	}
	n += b->n[NEDGES];
	put(out, "dt:%s_bucket{le=\"+Inf\"} %llu\ndt:%s_sum %.9g\ndt:%s_count %llu\n", name,
	    (unsigned long long)n, name, b->sum, name, (unsigned long long)n);
}

static double server_value(const struct dt_router *r, int i, int which)
{
	struct dt_route_server *s = r->server[i];
	const struct dt_balance_server *b = &r->balance.server[i];

	switch (which) {
	case 0:
		return s->up;
	case 1:
		return b->running;
	case 2:
		return b->work;
	case 3:
		return (double)s->n_requests;
	case 4:
		return (double)s->n_errors;
	case 5:
		return s->circuit != DT_CIRCUIT_CLOSED;
	case 6:
		return s->tells;
	default:
		return s->drained;
	}
}

static void servers(const struct dt_router *r, struct dt_route_buf *out)
{
	static const struct {
		const char *name, *type, *help;
	} row[] = {{"router_server_up", "gauge", "1: takes requests"},
		   {"router_server_running", "gauge", "requests under way"},
		   {"router_server_work_tokens", "gauge", "tokens under way that were not cached"},
		   {"router_server_requests_total", "counter", "requests sent, retries among them"},
		   {"router_server_errors_total", "counter", "failures"},
		   {"router_server_circuit_open", "gauge", "1: left alone after failures"},
		   {"router_server_events", "gauge", "1: it tells what is in its cache"},
		   {"router_server_drained", "gauge", "1: takes nothing new"}};

	for (int k = 0; k < (int)(sizeof(row) / sizeof(*row)); k++) {
		put(out, "# HELP dt:%s %s\n# TYPE dt:%s %s\n", row[k].name, row[k].help, row[k].name,
		    row[k].type);
		for (int i = 0; i < r->balance.n; i++)
			if (r->server[i] && !r->server[i]->gone)
				put(out, "dt:%s{server=\"%s\"} %.15g\n", row[k].name, r->server[i]->conf.url,
				    server_value(r, i, k));
	}
}

/* A label's value with \, " and line ends written as Prometheus wants them. */
static const char *label(const char *s, char *buf, size_t n)
{
	size_t k = 0;

	for (; *s && k + 3 < n; s++) {
		if (*s == '\\' || *s == '"')
			buf[k++] = '\\';
		buf[k++] = *s;
	}
	buf[k] = '\0';
	return buf;
}

static void tenants(const struct dt_router *r, struct dt_route_buf *out)
{
	static const char *const name[] = {"requests", "refused", "prompt_tokens", "cached_tokens",
					   "answer_tokens"};
	char buf[160];

	for (int k = 0; k < 5; k++) {
		put(out,
		    "# HELP dt:router_tenant_%s_total by tenant\n# TYPE dt:router_tenant_%s_total counter\n",
		    name[k], name[k]);
		for (int i = 0; i < r->ntenants; i++) {
			const struct dt_route_tenant *t = &r->tenant[i];
			const uint64_t v[] = {t->n_requests, t->n_refused, t->n_prompt, t->n_cached,
					      t->n_answer};

			if (t->n_requests + t->n_refused > 0)
				put(out, "dt:router_tenant_%s_total{tenant=\"%s\"} %llu\n", name[k],
				    label(t->name, buf, sizeof(buf)), (unsigned long long)v[k]);
		}
	}
}

/* What an autoscaler reads: KEDA, an HPA over custom metrics, or on_scale itself. */
static void scaling(struct dt_router *r, struct dt_route_buf *out)
{
	const struct dt_route_stats *s = &r->stats;
	int up = dt_route_servers_up(r), load = dt_route_load(r);
	struct dt_route_x *x = TAILQ_FIRST(&r->queue);
	double oldest = 0, now = dt_now();

	for (; x; x = TAILQ_NEXT(x, in_list))
		oldest = now - x->queued > oldest ? now - x->queued : oldest;
	one(out, "router_servers_up", "gauge", "servers that take requests", up);
	one(out, "router_servers_wanted", "gauge", "servers that the load asks for", r->scale.wanted);
	one(out, "router_load", "gauge", "requests that wait and that are under way", load);
	one(out, "router_load_per_server", "gauge", "of one server that is up; of all where none is",
	    load / (up > 0 ? (double)up : 1.));
	one(out, "router_queue_oldest_seconds", "gauge", "how long the oldest request has waited", oldest);
	one(out, "router_scaled_up_total", "counter", "times that more servers were wanted",
	    (double)s->scaled_up);
	one(out, "router_scaled_down_total", "counter", "times that fewer were wanted",
	    (double)s->scaled_down);
	one(out, "router_scale_commands_total", "counter", "runs of on_scale", (double)s->scale_commands);
	one(out, "router_scale_errors_total", "counter", "of these, failed", (double)s->scale_errors);
}

void dt_route_metrics(struct dt_router *r, struct dt_route_buf *out)
{
	const struct dt_route_stats *s = &r->stats;

	put(out, "# HELP dt:router_requests_total answers by status; 499: the client went away\n"
		 "# TYPE dt:router_requests_total counter\n");
	for (int i = 0; i < 600; i++)
		if (s->status[i])
			put(out, "dt:router_requests_total{code=\"%d\"} %llu\n", i,
			    (unsigned long long)s->status[i]);
	one(out, "router_request_errors_total", "counter", "answers of 500 and above", (double)s->errors);
	one(out, "router_retries_total", "counter", "requests sent to a server again", (double)s->retries);
	one(out, "router_retries_denied_total", "counter", "retries that the budget did not have",
	    (double)s->retries_denied);
	one(out, "router_hedges_total", "counter", "requests sent to a second server", (double)s->hedges);
	one(out, "router_broken_total", "counter", "answers lost after their first byte", (double)s->broken);
	one(out, "router_cancelled_total", "counter", "clients that went away", (double)s->cancelled);
	one(out, "router_shadow_total", "counter", "copies sent to a shadow", (double)s->shadows);
	one(out, "http_rate_limit_total", "counter", "requests past a tenant's limit", (double)s->limited);
	one(out, "router_books_errors_total", "counter", "requests that are not in the books",
	    (double)s->books_errors);
	one(out, "router_reloads_total", "counter", "changes of configuration", (double)s->reloads);
	one(out, "router_prompt_tokens_total", "counter", "as the servers count them", s->prompt);
	one(out, "router_cached_tokens_total", "counter", "of these, found in a server's cache", s->cached);
	one(out, "router_generation_tokens_total", "counter", "as the servers count them", s->answer);
	one(out, "scheduler_queue_depth", "gauge", "requests that wait for a server", r->nqueue);
	scaling(r, out);
	one(out, "router_running", "gauge", "requests here", r->nall);
	one(out, "router_connections", "gauge", "clients", r->nclients);
	one(out, "router_held_bytes", "gauge", "bodies and answers", (double)r->memory);
	one(out, "router_index_blocks", "gauge", "blocks of prompts whose servers are known",
	    r->prefix ? dt_prefix_blocks(r->prefix) : 0);
	bars(out, "router_ttft_seconds", "to the first byte of an answer's body", &s->ttft);
	bars(out, "router_request_seconds", "to the end of the answer", &s->total);
	bars(out, "queue_wait_seconds", "of requests that waited", &s->wait);
	servers(r, out);
	tenants(r, out);
}
/* SPDX-License-Identifier: Apache-2.0 */
