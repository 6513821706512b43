/* The router's metrics in the Prometheus text format. */
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
	put(out, "# HELP dt_route_%s %s\n# TYPE dt_route_%s %s\ndt_route_%s %.15g\n", name, help, name, type,
	    name, v);
}

static void bars(struct dt_route_buf *out, const char *name, const char *help, const struct dt_route_bars *b)
{
	uint64_t n = 0;

	put(out, "# HELP dt_route_%s %s\n# TYPE dt_route_%s histogram\n", name, help, name);
	for (size_t i = 0; i < NEDGES; i++) {
		n += b->n[i];
		put(out, "dt_route_%s_bucket{le=\"%g\"} %llu\n", name, edges[i], (unsigned long long)n);
	}
	n += b->n[NEDGES];
	put(out, "dt_route_%s_bucket{le=\"+Inf\"} %llu\ndt_route_%s_sum %.9g\ndt_route_%s_count %llu\n", name,
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
	case 7:
		return s->role == DT_ROUTE_PREFILLS;
	default:
		return s->drained;
	}
}

static void servers(const struct dt_router *r, struct dt_route_buf *out)
{
	static const struct {
		const char *name, *type, *help;
	} row[] = {
		{"server_up", "gauge", "1 while the server takes requests."},
		{"server_running", "gauge", "Running requests."},
		{"server_work_tokens", "gauge",
		 "Uncached prompt tokens and answer tokens of running requests."},
		{"server_requests_total", "counter",
		 "Requests sent, retries included; of a prefill server, requests whose prompts it computes."},
		{"server_errors_total", "counter", "Failed requests."},
		{"server_circuit_open", "gauge", "1 while the server gets no requests after failures."},
		{"server_events", "gauge", "1 while the server reports the blocks of its cache."},
		{"server_prefills", "gauge",
		 "1 while the server computes prompts for others and answers none."},
		{"server_drained", "gauge", "1 while the server is drained."}};

	for (int k = 0; k < (int)(sizeof(row) / sizeof(*row)); k++) {
		put(out, "# HELP dt_route_%s %s\n# TYPE dt_route_%s %s\n", row[k].name, row[k].help,
		    row[k].name, row[k].type);
		for (int i = 0; i < r->balance.n; i++)
			if (r->server[i] && !r->server[i]->gone)
				put(out, "dt_route_%s{server=\"%s\"} %.15g\n", row[k].name,
				    r->server[i]->conf.url, server_value(r, i, k));
	}
}

/* Escapes \ and " in a label's value. */
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
	static const char *const row[][2] = {{"requests", "Requests of a tenant sent to a server."},
					     {"refused", "Requests of a tenant that were refused."},
					     {"prompt_tokens", "Prompt tokens of a tenant."},
					     {"cached_tokens", "Prompt tokens of a tenant found in a cache."},
					     {"answer_tokens", "Generated tokens of a tenant."}};
	char buf[160];

	for (int k = 0; k < 5; k++) {
		put(out, "# HELP dt_route_tenant_%s_total %s\n# TYPE dt_route_tenant_%s_total counter\n",
		    row[k][0], row[k][1], row[k][0]);
		for (int i = 0; i < r->ntenants; i++) {
			const struct dt_route_tenant *t = &r->tenant[i];
			const uint64_t v[] = {t->n_requests, t->n_refused, t->n_prompt, t->n_cached,
					      t->n_answer};

			if (t->n_requests + t->n_refused > 0)
				put(out, "dt_route_tenant_%s_total{tenant=\"%s\"} %llu\n", row[k][0],
				    label(t->name, buf, sizeof(buf)), (unsigned long long)v[k]);
		}
	}
}

/* Metrics for an autoscaler: KEDA, an HPA with custom metrics, or on_scale. */
static void scaling(struct dt_router *r, struct dt_route_buf *out)
{
	const struct dt_route_stats *s = &r->stats;
	int up = dt_route_servers_up(r), load = dt_route_load(r);
	struct dt_route_x *x = TAILQ_FIRST(&r->queue);
	double oldest = 0, now = dt_now();

	for (; x; x = TAILQ_NEXT(x, in_list))
		oldest = now - x->queued > oldest ? now - x->queued : oldest;
	one(out, "servers_up", "gauge", "Servers that take requests.", up);
	one(out, "servers_wanted", "gauge", "Servers that the load needs.", r->scale.wanted);
	one(out, "load", "gauge", "Waiting and running requests.", load);
	one(out, "load_per_server", "gauge",
	    "Load divided by the servers that are up; all of the load if none is.",
	    load / (up > 0 ? (double)up : 1.));
	one(out, "queue_oldest_seconds", "gauge", "Time that the oldest request has waited.", oldest);
	one(out, "scaled_up_total", "counter", "Times that more servers were wanted.", (double)s->scaled_up);
	one(out, "scaled_down_total", "counter", "Times that fewer servers were wanted.",
	    (double)s->scaled_down);
	one(out, "scale_commands_total", "counter", "Runs of the command on_scale.",
	    (double)s->scale_commands);
	one(out, "scale_errors_total", "counter", "Runs of the command on_scale that failed.",
	    (double)s->scale_errors);
}

void dt_route_metrics(struct dt_router *r, struct dt_route_buf *out)
{
	const struct dt_route_stats *s = &r->stats;

	put(out, "# HELP dt_route_requests_total Answers by status; 499: the client disconnected.\n"
		 "# TYPE dt_route_requests_total counter\n");
	for (int i = 0; i < 600; i++)
		if (s->status[i])
			put(out, "dt_route_requests_total{code=\"%d\"} %llu\n", i,
			    (unsigned long long)s->status[i]);
	one(out, "request_errors_total", "counter", "Answers with a status of 500 and above.",
	    (double)s->errors);
	one(out, "retries_total", "counter", "Retries of requests.", (double)s->retries);
	one(out, "retries_denied_total", "counter", "Retries that the budget did not allow.",
	    (double)s->retries_denied);
	one(out, "hedges_total", "counter", "Requests sent to a second server as well.", (double)s->hedges);
	one(out, "broken_total", "counter", "Answers lost after their first byte.", (double)s->broken);
	one(out, "cancelled_total", "counter", "Requests whose client disconnected.", (double)s->cancelled);
	one(out, "shadow_total", "counter", "Copies of requests sent to a shadow.", (double)s->shadows);
	one(out, "rate_limited_total", "counter", "Requests refused because a tenant's quota is used up.",
	    (double)s->limited);
	one(out, "books_errors_total", "counter", "Requests whose line could not be written to the books.",
	    (double)s->books_errors);
	one(out, "reloads_total", "counter", "Configurations loaded.", (double)s->reloads);
	one(out, "prompt_tokens_total", "counter", "Prompt tokens, as the servers count them.", s->prompt);
	one(out, "cached_tokens_total", "counter", "Prompt tokens found in a server's cache.", s->cached);
	one(out, "generation_tokens_total", "counter", "Generated tokens, as the servers count them.",
	    s->answer);
	one(out, "queue_depth", "gauge", "Requests waiting for a server.", r->nqueue);
	scaling(r, out);
	one(out, "running", "gauge", "Requests in the router, waiting or running.", r->nall);
	one(out, "connections", "gauge", "Connections of clients.", r->nclients);
	one(out, "held_bytes", "gauge", "Bytes of bodies and answers: read, held back, or not sent yet.",
	    (double)r->memory);
	one(out, "index_blocks", "gauge", "Prompt blocks in the prefix index.",
	    r->prefix ? dt_prefix_blocks(r->prefix) : 0);
	bars(out, "ttft_seconds", "Time from a request to the first byte of the answer's body.", &s->ttft);
	bars(out, "request_seconds", "Time from a request to the end of its answer.", &s->total);
	bars(out, "queue_wait_seconds", "Time in the queue, of requests that waited.", &s->wait);
	servers(r, out);
	tenants(r, out);
}
/* SPDX-License-Identifier: Apache-2.0 */
