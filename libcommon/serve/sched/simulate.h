/*
 * The scheduler on paper: requests of a trace go through dt_sched on several servers, on a clock that
 * moves by what a function says that a step takes. No model, no thread, no real time: equal input, equal
 * result.
 *
 * A request goes to the server with the fewest unfinished ones, of equal ones to the one that has had the
 * fewest. A server begins a step as soon as the one before has ended and something runs or waits. Over
 * stages of a pipeline as many steps are under way, of different sequences, as dt-serve has them
 * (serve/engine/ranks.h): what plans them computes the first stage itself, begins a step when it has
 * computed its stage of the one before, and takes the results of the oldest when there are as many as
 * stages or nothing else to do. With prefill servers, a prompt of prefill_min tokens and more is computed
 * by the one with the fewest prompts under way; its whole blocks are then adopted by the server that
 * answers, which computes what is left (dt-serve --role decode --prefill).
 */
#ifndef DT_SERVE_SIMULATE_H
#define DT_SERVE_SIMULATE_H

#include "base/flow.h"
#include "serve/sched/scheduler.h"

struct dt_sim_ask {
	double at_s;	      /* ascending */
	int prompt, output;   /* tokens, at least 1 */
	const int64_t *block; /* [nblock] ids; blocks of one id have the same tokens. NULL: none is shared */
	int nblock, block_len;
};

struct dt_sim_params {
	int servers;	 /* that answer */
	int prefill;	 /* further ones that compute prompts for them */
	int prefill_min; /* tokens */
	int max_seqs, max_tokens, nblocks, block_size, window; /* of each, as struct dt_sched and dt_kvpool */
	int stages;					       /* of each, at most DT_FLOW_STAGES; 0 is 1 */
	/*
	 * What a step takes of each stage, on a server for prompts alone or another; < 0: it cannot be said,
	 * and err says why.
	 */
	int (*step_s)(void *arg, bool prefill, const struct dt_sched_item *items, int n, struct dt_flow *ret,
		      struct dt_err *err);
	/* Seconds from the end of the step with the last n tokens of a prompt until they have moved. */
	double (*move_s)(void *arg, int n);
	void *arg;
};

struct dt_sim_answer {
	double first_s, end_s; /* when the first and the last token were there; < 0: refused, too long */
	int server;	       /* that answered */
};

struct dt_sim_report {
	int done, refused, moved; /* requests; of these, prompts that prefill servers computed */
	double ttft_p50, ttft_p99, tpot_p50, tpot_p99; /* nearest rank; 0 where there is none */
	double end_s,
		busy_s; /* the last answer; seconds of steps of all servers together, a stage's on average */
	int64_t steps, preemptions;
	int64_t prompt_tokens, output_tokens; /* of those done */
	int64_t prefix_hits; /* tokens found in the cache of the server that computed the prompt */
};

/* answer [n]. -EINVAL, -ENOMEM, or what step_s failed with. */
int dt_simulate(const struct dt_sim_params *p, const struct dt_sim_ask *ask, int n,
		struct dt_sim_answer *answer, struct dt_sim_report *ret, struct dt_err *err);

/* The smallest of v [n], ascending, that a share p of them does not exceed; 0 where n is. */
double dt_sim_rank(const double *v, int n, double p);
/* Sets the latencies of ret, of answers that were not refused. -ENOMEM. */
int dt_sim_percentiles(const struct dt_sim_ask *ask, const struct dt_sim_answer *answer, int n,
		       struct dt_sim_report *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
