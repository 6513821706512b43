/*
 * Simulation of the scheduler: requests of a trace go through dt_sched on several servers. A clock advances
 * by the step times that a callback returns. There is no model, no thread and no real time: equal input gives
 * equal results.
 *
 * A request goes to the server with the fewest unfinished requests; of equal ones, to the one that has had
 * the fewest. A server begins a step as soon as the one before has ended and something runs or waits. With
 * pipeline stages, as many steps are in flight as in dt-serve (serve/engine/ranks.h): the planning rank
 * computes the first stage itself, begins a step when it has computed its stage of the one before, and takes
 * the results of the oldest when there are as many steps as stages or it has nothing else to do. With prefill
 * servers, a prompt of at least prefill_min tokens is computed by the prefill server with the fewest prompts
 * in progress. The answering server then adopts its whole blocks and computes the rest (dt-serve --role
 * decode --prefill).
 */
#ifndef DT_SERVE_SIMULATE_H
#define DT_SERVE_SIMULATE_H

#include "base/flow.h"
#include "serve/sched/scheduler.h"

struct dt_sim_ask {
	double at_s;	      /* arrival time, ascending */
	int prompt, output;   /* tokens, at least 1 */
	const int64_t *block; /* [nblock] ids; equal ids have equal tokens. NULL: nothing is shared */
	int nblock, block_len;
};

struct dt_sim_params {
	int servers;	 /* servers that answer */
	int prefill;	 /* additional prefill servers */
	int prefill_min; /* shortest prompt, in tokens, that a prefill server computes */
	int max_seqs, max_tokens, nblocks, block_size, window; /* of each, as struct dt_sched and dt_kvpool */
	int stages;					       /* of each, at most DT_FLOW_STAGES; 0 is 1 */
	double ttft_s,
		tpot_s; /* stop as soon as a 99th percentile certainly exceeds its limit; 0: no limit */
	/*
	 * Sets the time of a step on each stage; prefill: on a prefill server. < 0: unknown, and err says
	 * why.
	 */
	int (*step_s)(void *arg, bool prefill, const struct dt_sched_item *items, int n, struct dt_flow *ret,
		      struct dt_err *err);
	/* Seconds to transfer a prompt's blocks after the step that computed its last n tokens. */
	double (*move_s)(void *arg, int n);
	void *arg;
};

struct dt_sim_answer {
	double first_s, end_s; /* time of the first and of the last token; < 0: refused, too long */
	int server;	       /* that answered */
};

struct dt_sim_report {
	bool stopped; /* at a limit: percentiles are infinite, refused is of all, the rest of no use */
	int done, refused, moved; /* requests; moved: prompts that prefill servers computed */
	double ttft_p50, ttft_p99, tpot_p50, tpot_p99; /* nearest rank; 0 if there are no requests */
	double end_s, busy_s; /* end_s: last answer; busy_s: steps of all servers, averaged over stages */
	int64_t steps, preemptions;
	int64_t prompt_tokens, output_tokens; /* of completed requests */
	int64_t prefix_hits; /* tokens found in the prefix cache of the server that computed the prompt */
};

/* answer [n]. -EINVAL, -ENOMEM, or the error of step_s. */
int dt_simulate(const struct dt_sim_params *p, const struct dt_sim_ask *ask, int n,
		struct dt_sim_answer *answer, struct dt_sim_report *ret, struct dt_err *err);

/* The p-quantile of v [n], ascending, by nearest rank; 0 if n is 0. */
double dt_sim_rank(const double *v, int n, double p);
/* Sets the latency percentiles of ret from answers that were not refused. -ENOMEM. */
int dt_sim_percentiles(const struct dt_sim_ask *ask, const struct dt_sim_answer *answer, int n,
		       struct dt_sim_report *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
