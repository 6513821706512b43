/*
 * Counters, gauges and histograms in the Prometheus text format. Names are those of vLLM with dt_serve_ in
 * place of vllm:, so that its dashboards need one replacement. Every function may be called from any thread.
 */
#ifndef DT_SERVE_METRICS_H
#define DT_SERVE_METRICS_H

#include "serve/engine/kvio.h"
#include "serve/engine/kvpeers.h"
#include "serve/engine/request.h"

#include <stdio.h>

#define DT_HIST_MAX 24

struct dt_hist {
	int nbounds;
	const double *bounds;
	uint64_t count[DT_HIST_MAX + 1]; /* not cumulative; the last is +Inf */
	double sum;
};

/* Categories of memory; scratch where a processor computes, last. */
enum {
	DT_MEMORY_WEIGHTS,
	DT_MEMORY_CACHE,
	DT_MEMORY_WORK,
	DT_MEMORY_LOGITS,
	DT_MEMORY_SCRATCH,
	DT_MEMORY_KINDS
};

struct dt_weights_read {
	uint64_t bytes;
	double wait_s;	       /* seconds that forward passes waited for reads */
	uint64_t hits, misses; /* experts that a pass selected: found in memory, read from disk */
};

struct dt_metrics {
	pthread_mutex_t mu;
	int running, waiting;
	uint64_t memory[DT_MEMORY_KINDS];
	int threads;
	double kv_usage; /* 0 to 1 */
	uint64_t prompt_tokens, generation_tokens, preemptions, finished[DT_FINISH_N];
	uint64_t prefix_queries, prefix_hits; /* tokens */
	bool has_beyond;
	struct dt_beyond_counts {
		int64_t queries, hits; /* tokens */
		int host_blocks;
		double compute_s; /* seconds to compute one block of a prompt */
		struct dt_kvio_counts disk;
		bool asks; /* other servers are asked for blocks */
		struct dt_kvpeers_counts peers;
	} beyond;
	bool has_weights;
	struct dt_weights_read weights;
	uint64_t sent; /* blocks sent to other servers */
	uint64_t drafts, draft_tokens, accepted_tokens, drawn_steps;
	struct dt_hist ttft, itl, e2e, queue, prefill, decode, inference, prompt, generation, iteration;
};

void dt_metrics_init(struct dt_metrics *m);
void dt_metrics_release(struct dt_metrics *m);

/* Sets the bytes allocated, by the categories of dt-memest; threads: of the processor, 0 on a card. */
void dt_metrics_memory(struct dt_metrics *m, const uint64_t bytes[DT_MEMORY_KINDS], int threads);
/* Called after each step: takes the scheduler's state and adds the tokens of the step. */
void dt_metrics_step(struct dt_metrics *m, const struct dt_sched *s, int tokens);
/* Sets the counts of the prefix cache beyond the pool. */
void dt_metrics_beyond(struct dt_metrics *m, const struct dt_beyond_counts *c);
/* Called after each step of a model whose weights do not all fit in memory. */
void dt_metrics_weights(struct dt_metrics *m, const struct dt_weights_read *read);
/* Counts blocks copied out for another server. */
void dt_metrics_sent(struct dt_metrics *m, int blocks);
/* Counts one generated token; gap: seconds since the previous one, < 0 for the first. */
void dt_metrics_token(struct dt_metrics *m, const struct dt_serve_req *r, double gap);
/* Counts one verification of draft tokens: `accepted` of `guessed` were accepted. */
void dt_metrics_guessed(struct dt_metrics *m, int guessed, int accepted);
/* Counts a step in which the model drew the tokens itself. */
void dt_metrics_drawn(struct dt_metrics *m);
/* Counts a request that ended at time now. */
void dt_metrics_finish(struct dt_metrics *m, const struct dt_serve_req *r, enum dt_finish why, double now);

/* Writes all metrics to f; model is the value of the label model_name. */
void dt_metrics_write(struct dt_metrics *m, const char *model, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
