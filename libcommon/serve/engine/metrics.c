#include "serve/engine/metrics.h"

#include <inttypes.h>
#include <string.h>

static const double ttft_bounds[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,	.75,
				     1,	   2.5,	 5,   7.5, 10,	20,  40,  80, 160, 640, 2560};
static const double itl_bounds[] = {.001, .002, .005, .01, .02, .03, .04, .05, .075, .1, .15,
				    .2,	  .3,	.4,   .5,  .75, 1,   2.5, 5,   7.5,  10, 20};
static const double span_bounds[] = {.01, .05, .1, .3, .5, .8, 1,  1.5, 2,   2.5, 5,
				     10,  15,  20, 30, 40, 50, 60, 120, 240, 480, 960};
static const double token_bounds[] = {1,    2,	  5,	10,    20,    50,    100,    200,   500,
				      1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};

static struct dt_hist hist(const double *bounds, int n)
{
	return (struct dt_hist){.nbounds = n, .bounds = bounds};
}
#define HIST(b) hist(b, (int)(sizeof(b) / sizeof((b)[0])))

void dt_metrics_init(struct dt_metrics *m)
{
	memset(m, 0, sizeof(*m));
	pthread_mutex_init(&m->mu, NULL);
	m->ttft = HIST(ttft_bounds);
	m->itl = HIST(itl_bounds);
	m->e2e = m->queue = m->prefill = m->decode = m->inference = HIST(span_bounds);
	m->prompt = m->generation = m->iteration = HIST(token_bounds);
}

void dt_metrics_release(struct dt_metrics *m)
{
	pthread_mutex_destroy(&m->mu);
}

static void observe(struct dt_hist *h, double v)
{
	int i = 0;

	while (i < h->nbounds && v > h->bounds[i])
		i++;
	h->count[i]++;
	h->sum += v;
}

void dt_metrics_memory(struct dt_metrics *m, const uint64_t bytes[DT_MEMORY_KINDS], int threads)
{
	pthread_mutex_lock(&m->mu);
	memcpy(m->memory, bytes, sizeof(m->memory));
	m->threads = threads;
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_step(struct dt_metrics *m, const struct dt_sched *s, int tokens)
{
	double unused = 0;

	for (int i = 0; i < s->replicas; i++)
		unused += (double)s->pool[i].nfree / s->pool[i].nblocks / s->replicas;
	pthread_mutex_lock(&m->mu);
	m->running = s->nrunning;
	m->waiting = s->waiting;
	m->kv_usage = 1 - unused;
	m->preemptions = (uint64_t)s->preemptions;
	m->prefix_queries = (uint64_t)s->prefix_queries;
	m->prefix_hits = (uint64_t)s->prefix_hits;
	if (tokens > 0)
		observe(&m->iteration, tokens);
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_beyond(struct dt_metrics *m, const struct dt_beyond_counts *c)
{
	pthread_mutex_lock(&m->mu);
	m->has_beyond = true;
	m->beyond = *c;
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_weights(struct dt_metrics *m, const struct dt_weights_read *read)
{
	pthread_mutex_lock(&m->mu);
	m->has_weights = true;
	m->weights = *read;
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_sent(struct dt_metrics *m, int blocks)
{
	pthread_mutex_lock(&m->mu);
	m->sent += (uint64_t)blocks;
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_token(struct dt_metrics *m, const struct dt_serve_req *r, double gap)
{
	pthread_mutex_lock(&m->mu);
	m->generation_tokens++;
	if (gap < 0) {
		m->prompt_tokens += (uint64_t)r->nprompt;
		observe(&m->ttft, r->t_first - r->t_arrive);
	} else {
		observe(&m->itl, gap);
	}
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_guessed(struct dt_metrics *m, int guessed, int accepted)
{
	pthread_mutex_lock(&m->mu);
	m->drafts++;
	m->draft_tokens += (uint64_t)guessed;
	m->accepted_tokens += (uint64_t)accepted;
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_drawn(struct dt_metrics *m)
{
	pthread_mutex_lock(&m->mu);
	m->drawn_steps++;
	pthread_mutex_unlock(&m->mu);
}

void dt_metrics_finish(struct dt_metrics *m, const struct dt_serve_req *r, enum dt_finish why, double now)
{
	pthread_mutex_lock(&m->mu);
	m->finished[why]++;
	if (why == DT_FINISH_STOP || why == DT_FINISH_LENGTH) {
		observe(&m->e2e, now - r->t_arrive);
		observe(&m->queue, r->t_start - r->t_arrive);
		observe(&m->inference, now - r->t_start);
		observe(&m->prompt, r->nprompt);
		observe(&m->generation, r->nout);
		if (r->nout > 0) {
			observe(&m->prefill, r->t_first - r->t_start);
			observe(&m->decode, now - r->t_first);
		}
	}
	pthread_mutex_unlock(&m->mu);
}

struct page {
	FILE *f;
	char model[300]; /* escaped for a label */
};

static void head(const struct page *p, const char *name, const char *type, const char *help)
{
	fprintf(p->f, "# HELP dt_serve_%s %s\n# TYPE dt_serve_%s %s\n", name, help, name, type);
}

static void value(const struct page *p, const char *name, const char *type, const char *help, double v)
{
	head(p, name, type, help);
	fprintf(p->f, "dt_serve_%s{model_name=\"%s\"} %.10g\n", name, p->model, v);
}

static void write_hist(const struct page *p, const char *name, const char *help, const struct dt_hist *h)
{
	uint64_t n = 0;

	head(p, name, "histogram", help);
	for (int i = 0; i < h->nbounds; i++) {
		n += h->count[i];
		fprintf(p->f, "dt_serve_%s_bucket{model_name=\"%s\",le=\"%g\"} %" PRIu64 "\n", name, p->model,
			h->bounds[i], n);
	}
	n += h->count[h->nbounds];
	fprintf(p->f, "dt_serve_%s_bucket{model_name=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, p->model, n);
	fprintf(p->f, "dt_serve_%s_sum{model_name=\"%s\"} %.10g\n", name, p->model, h->sum);
	fprintf(p->f, "dt_serve_%s_count{model_name=\"%s\"} %" PRIu64 "\n", name, p->model, n);
}

static void escape_label(const char *s, char *out, size_t n)
{
	size_t o = 0;

	for (; *s && o + 3 < n; s++) {
		if (*s == '"' || *s == '\\' || *s == '\n')
			out[o++] = '\\';
		out[o++] = *s == '\n' ? 'n' : *s;
	}
	out[o] = '\0';
}

static void write_memory(const struct page *p, const struct dt_metrics *m)
{
	static const char *const kinds[DT_MEMORY_KINDS] = {"weights", "kv-cache", "workspace", "logits",
							   "scratch"};

	if (m->threads)
		value(p, "threads", "gauge", "Threads of the processor that compute.", m->threads);
	head(p, "memory_bytes", "gauge", "Bytes allocated, by dt-memest's categories.");
	for (int i = 0; i < DT_MEMORY_KINDS - !m->threads; i++)
		fprintf(p->f, "dt_serve_memory_bytes{model_name=\"%s\",category=\"%s\"} %" PRIu64 "\n",
			p->model, kinds[i], m->memory[i]);
}

/* Writes the metrics of the lower cache levels, if there are any. */
static void write_beyond(const struct page *p, const struct dt_metrics *m)
{
	const struct dt_beyond_counts *c = &m->beyond;

	if (!m->has_beyond)
		return;
	value(p, "external_prefix_cache_queries_total", "counter",
	      "Prompt tokens searched in host memory and on disk.", (double)c->queries);
	value(p, "external_prefix_cache_hits_total", "counter",
	      "Prompt tokens found there and not in the KV cache.", (double)c->hits);
	value(p, "kv_host_blocks", "gauge", "Cache blocks in host memory.", c->host_blocks);
	value(p, "kv_disk_blocks_read_total", "counter", "Cache blocks read from disk.",
	      (double)c->disk.read);
	value(p, "kv_disk_blocks_written_total", "counter", "Cache blocks written to disk.",
	      (double)c->disk.written);
	value(p, "kv_disk_failures_total", "counter",
	      "Cache blocks on disk that were damaged, or that could not be written.",
	      (double)c->disk.failed);
	value(p, "kv_disk_block_read_seconds", "gauge", "Recent time to read a block.", c->disk.read_s);
	value(p, "kv_block_compute_seconds", "gauge", "Recent time to compute a block.", c->compute_s);
}

/* Writes the metrics of weights on disk, if there are any. */
static void write_weights(const struct page *p, const struct dt_metrics *m)
{
	const struct dt_weights_read *r = &m->weights;

	if (!m->has_weights)
		return;
	value(p, "weights_read_bytes_total", "counter", "Bytes of weights read from disk.", (double)r->bytes);
	value(p, "weights_read_wait_seconds_total", "counter",
	      "Seconds that steps waited for weights from disk.", r->wait_s);
	value(p, "experts_hits_total", "counter", "Experts chosen by a step and found in memory.",
	      (double)r->hits);
	value(p, "experts_misses_total", "counter", "Experts chosen by a step and read from disk.",
	      (double)r->misses);
}

/*
 * Writes the metrics of disaggregated prefill: prompts computed by other servers for this one, and by this
 * one for others.
 */
static void write_remote(const struct page *p, const struct dt_metrics *m)
{
	const struct dt_kvpeers_counts *c = &m->beyond.peers;

	value(p, "prefill_blocks_sent_total", "counter", "Cache blocks sent to other servers.",
	      (double)m->sent);
	if (!m->beyond.asks)
		return;
	value(p, "remote_prefill_requests_total", "counter", "Prompts requested from prefill servers.",
	      (double)c->asked);
	value(p, "remote_prefill_failures_total", "counter",
	      "Requested prompts that did not arrive completely.", (double)c->failed);
	value(p, "remote_prefill_running", "gauge", "Requested prompts in progress.", c->running);
	value(p, "remote_prefill_blocks_total", "counter", "Cache blocks received from prefill servers.",
	      (double)c->blocks);
	value(p, "remote_prefill_shared_blocks_total", "counter",
	      "Cache blocks received through shared memory.", (double)c->shared);
	value(p, "remote_prefill_seconds_total", "counter",
	      "Time from the request to the last block, summed over complete prompts.", c->seconds);
}

static void write_histograms(const struct page *p, const struct dt_metrics *m)
{
	write_hist(p, "time_to_first_token_seconds", "Time from arrival to the first token.", &m->ttft);
	write_hist(p, "inter_token_latency_seconds", "Time between consecutive tokens of a request.",
		   &m->itl);
	write_hist(p, "e2e_request_latency_seconds", "Time from arrival to the end.", &m->e2e);
	write_hist(p, "request_queue_time_seconds", "Time from arrival to the first step.", &m->queue);
	write_hist(p, "request_prefill_time_seconds", "Time from the first step to the first token.",
		   &m->prefill);
	write_hist(p, "request_decode_time_seconds", "Time from the first token to the end.", &m->decode);
	write_hist(p, "request_inference_time_seconds", "Time from the first step to the end.",
		   &m->inference);
	write_hist(p, "request_prompt_tokens", "Prompt tokens of a request.", &m->prompt);
	write_hist(p, "request_generation_tokens", "Generated tokens of a request.", &m->generation);
	write_hist(p, "iteration_tokens", "Tokens of one forward pass.", &m->iteration);
}

void dt_metrics_write(struct dt_metrics *shared, const char *model, FILE *f)
{
	struct page p = {.f = f};
	struct dt_metrics copy, *m = &copy;

	pthread_mutex_lock(&shared->mu);
	memcpy(m, shared, sizeof(*m));
	pthread_mutex_unlock(&shared->mu);
	escape_label(model, p.model, sizeof(p.model));
	value(&p, "num_requests_running", "gauge", "Requests in the running batch.", m->running);
	value(&p, "num_requests_waiting", "gauge", "Requests waiting for a place in the running batch.",
	      m->waiting);
	value(&p, "kv_cache_usage_perc", "gauge", "Share of KV cache blocks in use, 0 to 1.", m->kv_usage);
	write_memory(&p, m);
	value(&p, "num_preemptions_total", "counter", "Preemptions of requests for lack of KV cache blocks.",
	      (double)m->preemptions);
	value(&p, "prefix_cache_queries_total", "counter", "Prompt tokens searched in the prefix cache.",
	      (double)m->prefix_queries);
	value(&p, "prefix_cache_hits_total", "counter", "Prompt tokens found in the prefix cache.",
	      (double)m->prefix_hits);
	write_beyond(&p, m);
	write_remote(&p, m);
	write_weights(&p, m);
	value(&p, "spec_decode_num_drafts_total", "counter", "Number of drafts.", (double)m->drafts);
	value(&p, "spec_decode_num_draft_tokens_total", "counter", "Draft tokens.", (double)m->draft_tokens);
	value(&p, "spec_decode_num_accepted_tokens_total", "counter", "Accepted draft tokens.",
	      (double)m->accepted_tokens);
	value(&p, "drawn_steps_total", "counter",
	      "Steps whose tokens were sampled on the device of the model.", (double)m->drawn_steps);
	value(&p, "prompt_tokens_total", "counter", "Prompt tokens of requests that got a token.",
	      (double)m->prompt_tokens);
	value(&p, "generation_tokens_total", "counter", "Generated tokens.", (double)m->generation_tokens);
	head(&p, "request_success_total", "counter", "Requests that ended, by reason.");
	for (int i = DT_FINISH_STOP; i < DT_FINISH_N; i++)
		fprintf(f,
			"dt_serve_request_success_total{model_name=\"%s\",finished_reason=\"%s\"} %" PRIu64
			"\n",
			p.model, dt_finish_name((enum dt_finish)i), m->finished[i]);
	write_histograms(&p, m);
}
/* SPDX-License-Identifier: Apache-2.0 */
