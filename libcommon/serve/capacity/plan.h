/*
 * Capacity plans for text servers: how many devices a replica needs, and how many replicas meet a request
 * rate and latency limits. Memory and pass times are derived from the program's memory plan and costs.
 * Whether the limits hold at the 99th percentile is found by simulating the server's own scheduler over the
 * requests.
 */
#ifndef DT_SERVE_CAPACITY_PLAN_H
#define DT_SERVE_CAPACITY_PLAN_H

#include "plan/fit.h"
#include "plan/servclock.h"
#include "plan/steptime.h"
#include "serve/sched/simulate.h"

#include <stdio.h>

struct dt_serve_query {
	const struct dt_cluster *cluster;
	struct dt_config config;
	int weights;	   /* enum dt_weight_format */
	double cache_bits; /* bits of an element of the KV cache; 0: bf16 */
	uint64_t room;
	double price;		      /* of a device hour; 0: no costs wanted */
	int devices;		      /* available; 0: no limit */
	double rate;		      /* requests a second */
	int64_t prompt, output;	      /* tokens of a request, on average */
	double ttft_s, tpot_s;	      /* latency limits */
	int64_t loras, lora_rank;     /* as in dt_serve_shape */
	struct dt_scratch_on scratch; /* likewise */
	int64_t max_tokens;	      /* of a step; also the most running sequences */
	const struct dt_sim_ask *ask; /* [nask] the requests */
	int nask;
};

struct dt_serve_plan {
	int tp, pp, cp;
	int ep, replicas;  /* ep: number of replicas that share experts; replicas is a multiple of it */
	int64_t sequences; /* max running sequences of a replica (dt-serve --max-num-seqs) */
	int64_t blocks;	   /* blocks of its KV cache, which takes all remaining memory */
	/*
	 * Averages at full load, with the most sequences that keep TPOT; tokens_per_s: new tokens of one
	 * replica.
	 */
	double ttft_s, tpot_s, tokens_per_s;
	double most_per_s;	  /* tokens a second with all sequences, whatever TPOT is */
	uint64_t peak_bytes;	  /* of a device, with a cache for `sequences` sequences of average length */
	bool fits, meets;	  /* fits: in memory; meets: both limits at P99 */
	struct dt_sim_report sim; /* of all requests; all zero if the plan does not fit */
	/*
	 * The same number of devices split into prefill and decode servers (disaggregated prefill). Prefill
	 * servers have cp ranks, decode servers none of cp. prefill 0: not tried.
	 */
	struct dt_serve_apart {
		int prefill, decode, cp;
		bool meets;
		struct dt_sim_report sim;
	} apart;
	char note[96];
};

enum {
	DT_SERVE_PLANS = 256,
	DT_SERVE_BLOCK = 16,
	DT_SERVE_BLOCKS = 1 << 22, /* most blocks of a cache; no simulation uses more */
	DT_SERVE_PREFILL_MIN = 512 /* dt-serve --prefill-min */
};

/*
 * Makes one plan for each tp that divides a node. If the model does not fit so, also one with the number of
 * pipeline stages that needs the fewest devices. For mixture-of-experts models also plans with expert
 * parallelism (ep) over the rest of a node, or over as many nodes as needed to fit; a pass then takes as long
 * as one with equal rows on all replicas.
 *
 * Order: fewest devices first; plans that miss a limit last. Each plan decodes the most sequences that fit
 * and keep TPOT, and has the fewest replicas that keep TTFT and TPOT at P99. Pipelines have as many steps in
 * flight as stages.
 *
 * If at least 1 of 100 prompts fills a whole step, context parallelism (cp) over the rest of a node is tried
 * too. Each cp rank then has the whole model and cache of its tp part, and memory is counted as if it had all
 * rows. For the best plan, splits of its devices into prefill servers, with or without cp, and decode servers
 * are tried; the one closest to the limits is kept.
 *
 * Returns the number of plans.
 */
int dt_serve_plans(const struct dt_serve_query *q, struct dt_serve_plan ret[DT_SERVE_PLANS],
		   struct dt_err *err);
/*
 * Prints all plans as a table or a JSON object; with a price also the cost of a million new tokens at full
 * load.
 */
int dt_serve_plans_print(const struct dt_serve_query *q, const struct dt_serve_plan *p, int n, bool json,
			 FILE *f, struct dt_err *err);

/* ---- shared by the files of this folder ---- */

/* Sets peak_bytes of one sequence, and whether it fits. */
int dt_serve_weigh(const struct dt_serve_query *q, struct dt_serve_plan *p, struct dt_err *err);
/*
 * Sets the most sequences of a replica, its blocks and its load. *ret_good: false if it does not fit, or if a
 * single request already exceeds a limit.
 */
int dt_serve_load(const struct dt_serve_query *q, struct dt_serve_plan *p, struct dt_serve_clock *clock,
		  bool *ret_good, struct dt_err *err);
/* Writes a line of JSON that contains `plans`, whose reference it steals. */
int dt_serve_plans_json(const struct dt_serve_query *q, json_t *plans, FILE *f, struct dt_err *err);

struct dt_serve_servers { /* of a trial; prefill: additional prefill servers, with clock `prompts` */
	int n, prefill;
	struct dt_serve_clock *clock, *prompts;
	double within; /* > 0: stop when a 99th percentile exceeds so much of its limit */
};
/* Simulates the requests on these servers, each with the memory of a replica of p. */
int dt_serve_trial(const struct dt_serve_query *q, const struct dt_serve_plan *p,
		   const struct dt_serve_servers *s, struct dt_sim_report *ret, struct dt_err *err);
bool dt_serve_meets(const struct dt_serve_query *q, const struct dt_sim_report *r);
static inline int dt_serve_plan_devices(const struct dt_serve_plan *p) /* of a replica */
{
	return p->tp * p->pp * p->cp;
}
/* Servers on these devices when no rows are shared (cp 1). */
static inline int dt_serve_plan_servers(const struct dt_serve_plan *p)
{
	return p->replicas * p->cp;
}
/* The layout for dt-serve --layout; with shared experts it covers all ep replicas, as dp. */
static inline struct dt_layout dt_serve_plan_layout(const struct dt_serve_plan *p)
{
	return (struct dt_layout){.dp = p->ep, .tp = p->tp, .pp = p->pp, .cp = p->cp, .ep = p->ep};
}
/* n rounded up to a possible number of replicas. */
static inline int dt_serve_replicas(const struct dt_serve_plan *p, int n)
{
	return (n + p->ep - 1) / p->ep * p->ep;
}
/*
 * Finds the fewest replicas, at most `most`, that meet both limits, if there are any; begins at p's. Sets
 * p->sim.
 */
int dt_serve_search(const struct dt_serve_query *q, struct dt_serve_plan *p, int most,
		    struct dt_serve_clock *clock, struct dt_err *err);
/* Sets p->apart to the best split with prefill servers of cp ranks, if it is closer to the limits. */
int dt_serve_try_apart(const struct dt_serve_query *q, struct dt_serve_plan *p, int cp,
		       struct dt_serve_clock *clock, struct dt_serve_clock *prompts, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
