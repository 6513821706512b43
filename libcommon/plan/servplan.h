/* Serving plans: how many devices a replica is cut over and how many replicas meet a rate and a latency. */
#ifndef DT_PLAN_SERVPLAN_H
#define DT_PLAN_SERVPLAN_H

#include "plan/fit.h"
#include "plan/steptime.h"

#include <stdio.h>

struct dt_serve_query {
	const struct dt_cluster *cluster;
	struct dt_config config;
	int weights;	   /* enum dt_weight_format */
	double cache_bits; /* an element of the cache; 0: bf16 */
	uint64_t room;
	double price;		  /* of a device hour; 0: not asked */
	int devices;		  /* that there are; 0: as many as it takes */
	double rate;		  /* requests a second */
	int64_t prompt, output;	  /* tokens of each */
	double ttft_s, tpot_s;	  /* targets */
	int64_t loras, lora_rank; /* as in dt_serve_shape */
};

struct dt_serve_plan {
	int tp, replicas;
	int64_t sequences; /* a replica decodes at a time */
	double ttft_s, tpot_s;
	double tokens_per_s; /* of one replica, new tokens */
	uint64_t peak_bytes; /* a device */
	bool fits, meets;    /* memory; both targets */
	char note[96];
};

enum { DT_SERVE_PLANS = 8 };

/*
 * One plan for every tp that divides a node and cuts the model; fewest devices first, those that miss a
 * target last. A replica's time goes to prefilling requests as they come and to decode steps between; the
 * most sequences that keep TPOT and fit are decoded together. Returns their number.
 */
int dt_serve_plans(const struct dt_serve_query *q, struct dt_serve_plan ret[DT_SERVE_PLANS],
		   struct dt_err *err);
/* All of them as a table or a JSON object; with a price also what a million new tokens cost, at full load. */
int dt_serve_plans_print(const struct dt_serve_query *q, const struct dt_serve_plan *p, int n, bool json,
			 FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
