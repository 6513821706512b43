/*
 * Serving plans: how many devices a replica is cut over and how many replicas meet a rate and a
 * latency. What a replica holds and how long its passes take come from the program's memory and costs;
 * whether limits hold at the 99th percentile is seen by the server's own scheduler, run over the
 * requests on paper.
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
	double cache_bits; /* an element of the cache; 0: bf16 */
	uint64_t room;
	double price;		      /* of a device hour; 0: not asked */
	int devices;		      /* that there are; 0: as many as it takes */
	double rate;		      /* requests a second */
	int64_t prompt, output;	      /* tokens of each, on average */
	double ttft_s, tpot_s;	      /* limits */
	int64_t loras, lora_rank;     /* as in dt_serve_shape */
	int64_t max_tokens;	      /* of a step; no more sequences run together */
	const struct dt_sim_ask *ask; /* [nask] the requests themselves */
	int nask;
};

struct dt_serve_plan {
	int tp, pp, cp;
	int ep, replicas;  /* so many replicas share experts; a multiple of these */
	int64_t sequences; /* that a replica runs together at most (dt-serve --max-num-seqs) */
	int64_t blocks;	   /* of its cache, all the memory that is left */
	/* At full load, on average, with as many sequences as keep TPOT; new tokens of one replica. */
	double ttft_s, tpot_s, tokens_per_s;
	double most_per_s;	  /* tokens a second with all sequences, whatever TPOT is then */
	uint64_t peak_bytes;	  /* a device, with a cache for `sequences` of average length */
	bool fits, meets;	  /* memory; both limits, at P99 */
	struct dt_sim_report sim; /* of all requests; all zero where it does not fit */
	/*
	 * On as many devices, servers of which some compute prompts alone, their rows shared by cp ranks
	 * each; those that decode share none. prefill 0: not tried.
	 */
	struct dt_serve_apart {
		int prefill, decode, cp;
		bool meets;
		struct dt_sim_report sim;
	} apart;
	char note[96];
};

enum { DT_SERVE_PLANS = 32, DT_SERVE_BLOCK = 16, DT_SERVE_PREFILL_MIN = 512 /* dt-serve --prefill-min */ };

/*
 * One plan for every tp that divides a node, and for every pp that cuts the model further where the whole
 * on tp alone does not fit. Of mixtures also replicas that share experts (ep) over the rest of a node, or
 * over as many nodes as it takes to fit; a pass is then as long as one of equal rows on all. Fewest
 * devices first, those that miss a limit last. The most sequences that keep TPOT and fit are decoded
 * together; replicas are the fewest that keep P99 of TTFT and TPOT. Stages of a pipeline have as many
 * steps under way as there are. Where 1 of 100 prompts takes a whole step and more, ranks that share the
 * rows of a step (cp) are tried over the rest of a node too; each then has the model and the cache that
 * tp leaves of them, and memory is counted as if it had all rows. On the best plan's devices the split into
 * servers for prompts, over cp or not, and servers for decoding is tried that comes closest to the limits.
 * Returns their number.
 */
int dt_serve_plans(const struct dt_serve_query *q, struct dt_serve_plan ret[DT_SERVE_PLANS],
		   struct dt_err *err);
/* All of them as a table or a JSON object; with a price also what a million new tokens cost, at full load. */
int dt_serve_plans_print(const struct dt_serve_query *q, const struct dt_serve_plan *p, int n, bool json,
			 FILE *f, struct dt_err *err);

/* ---- between the files of this folder ---- */

/* A line of JSON with `plans` in it, whose reference it takes. */
int dt_serve_plans_json(const struct dt_serve_query *q, json_t *plans, FILE *f, struct dt_err *err);

struct dt_serve_servers { /* of a trial; prefill: further ones for prompts alone, and their clock */
	int n, prefill;
	struct dt_serve_clock *clock, *prompts;
};
/* The requests on these servers, each of which holds what one of p does. */
int dt_serve_trial(const struct dt_serve_query *q, const struct dt_serve_plan *p,
		   const struct dt_serve_servers *s, struct dt_sim_report *ret, struct dt_err *err);
bool dt_serve_meets(const struct dt_serve_query *q, const struct dt_sim_report *r);
static inline int dt_serve_plan_devices(const struct dt_serve_plan *p) /* of a replica */
{
	return p->tp * p->pp * p->cp;
}
/* Servers of these devices that share no rows. */
static inline int dt_serve_plan_servers(const struct dt_serve_plan *p)
{
	return p->replicas * p->cp;
}
/* As dt-serve --layout takes it; of replicas that share experts all of these, with dp. */
static inline struct dt_layout dt_serve_plan_layout(const struct dt_serve_plan *p)
{
	return (struct dt_layout){.dp = p->ep, .tp = p->tp, .pp = p->pp, .cp = p->cp, .ep = p->ep};
}
/* n, or the next number of replicas that there can be. */
static inline int dt_serve_replicas(const struct dt_serve_plan *p, int n)
{
	return (n + p->ep - 1) / p->ep * p->ep;
}
/* Replicas that meet both limits where so many do, at least those of p, at most `most`; p->sim is theirs. */
int dt_serve_search(const struct dt_serve_query *q, struct dt_serve_plan *p, int most,
		    struct dt_serve_clock *clock, struct dt_err *err);
/* p->apart becomes the best split with prompts over cp ranks, where it comes closer to the limits. */
int dt_serve_try_apart(const struct dt_serve_query *q, struct dt_serve_plan *p, int cp,
		       struct dt_serve_clock *clock, struct dt_serve_clock *prompts, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
