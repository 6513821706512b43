/* Counters, gauges and histograms in the text format of Prometheus. Names are those of vLLM with dt_serve_
 * in place of vllm:, so that its dashboards need one replacement. Any thread may call every function. */
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

enum { DT_MEMORY_KINDS = 4 }; /* weights, kv-cache, workspace, logits */

struct dt_weights_read {
	uint64_t bytes;
	double wait_s;	       /* of passes, for them */
	uint64_t hits, misses; /* experts that a pass chose, in memory and not */
};

struct dt_metrics {
	pthread_mutex_t mu;
	int running, waiting;
	uint64_t memory[DT_MEMORY_KINDS];
	double kv_usage; /* 0 to 1 */
	uint64_t prompt_tokens, generation_tokens, preemptions, finished[DT_FINISH_N];
	uint64_t prefix_queries, prefix_hits; /* tokens */
	bool has_beyond;
	struct dt_beyond_counts {
		int64_t queries, hits; /* tokens */
		int host_blocks;
		double compute_s; /* a block's tokens, as a part of a prompt */
		struct dt_kvio_counts disk;
		bool asks; /* other servers */
		struct dt_kvpeers_counts peers;
	} beyond;
	bool has_weights;
	struct dt_weights_read weights;
	uint64_t sent; /* blocks that other servers have asked for */
	uint64_t drafts, draft_tokens, accepted_tokens, drawn_steps;
	struct dt_hist ttft, itl, e2e, queue, prefill, decode, inference, prompt, generation, iteration;
};

void dt_metrics_init(struct dt_metrics *m);
void dt_metrics_release(struct dt_metrics *m);

/* Bytes allocated, by dt-memest's categories. */
void dt_metrics_memory(struct dt_metrics *m, uint64_t weights, uint64_t cache, uint64_t work,
		       uint64_t logits);
/* After each step: what the scheduler holds, and the tokens this step computed. */
void dt_metrics_step(struct dt_metrics *m, const struct dt_sched *s, int tokens);
/* What was looked for beyond the pool and what came of it. */
void dt_metrics_beyond(struct dt_metrics *m, const struct dt_beyond_counts *c);
/* After each step of a model whose weights memory does not hold. */
void dt_metrics_weights(struct dt_metrics *m, const struct dt_weights_read *read);
/* Counts blocks that were copied out for another server. */
void dt_metrics_sent(struct dt_metrics *m, int blocks);
/* One generated token; gap: seconds since the one before it, < 0 for the first. */
void dt_metrics_token(struct dt_metrics *m, const struct dt_serve_req *r, double gap);
/* Counts one verification: `accepted` of `guessed` draft tokens were right. */
void dt_metrics_guessed(struct dt_metrics *m, int guessed, int accepted);
/* Counts a step whose tokens the model drew itself. */
void dt_metrics_drawn(struct dt_metrics *m);
/* Counts the end of a request at time now. */
void dt_metrics_finish(struct dt_metrics *m, const struct dt_serve_req *r, enum dt_finish why, double now);

/* Writes everything to f; model is the label model_name. */
void dt_metrics_write(struct dt_metrics *m, const char *model, FILE *f);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
