/*
 * Whether a model fits: the estimate of every stage of a layout, and the search for the edge. dt-memest
 * prints it, and asks it again with other numbers.
 */
#ifndef DT_PLAN_FIT_H
#define DT_PLAN_FIT_H

#include "base/json.h"
#include "plan/estimate.h"

struct dt_fit_query {
	struct dt_run run; /* model, layout and compute type; of training, all that defines it */
	bool serve;
	struct dt_extras extras;
	enum dt_weight_format precision; /* of weights; training takes the first three */
	/* training */
	bool any_account; /* account dt where it covers the layout, else generic */
	enum dt_account account;
	/* serving */
	double cache_bits;     /* an element of the cache; 0: as compute */
	uint64_t weight_bytes; /* known from a file; 0: by precision */
	const int8_t *stored;  /* as in dt_serve_shape */
	int64_t max_seqs, max_len, block, max_tokens;
	int64_t loras, lora_rank; /* as in dt_serve_shape */
	bool loras_dora;	  /* likewise */
	const char *loras_whole;  /* likewise */
	uint64_t weights_memory;  /* likewise */
	bool weights_host;	  /* likewise */
};

struct dt_fit_stage { /* its fullest rank: the first of a tensor-parallel group has the larger cuts */
	struct dt_estimate est; /* of all stages but the worst without its entries */
	int first_rank, ranks;
};

struct dt_fit {
	struct dt_fit_stage *stage; /* [n] */
	int n, worst;
	enum dt_account account; /* the one used */
};

int dt_fit_estimate(const struct dt_fit_query *q, struct dt_fit *ret, struct dt_err *err);
void dt_fit_release(struct dt_fit *f);
const struct dt_estimate *dt_fit_worst(const struct dt_fit *f);

/*
 * Peak bytes of any rank while ranks re-form after a loss (--elastic); 0: they do not, or it is unknown.
 * What fits, fits with these too.
 */
uint64_t dt_fit_reform_bytes(const struct dt_fit_query *q, enum dt_account account);

/*
 * The largest *value in [1, max] that the run takes (cp and s1 cut a sequence, --global-batch is a multiple)
 * and for which q fits into room bytes; value points into q. 1: found; 0: not even the least fits, and *value
 * is that.
 */
int dt_fit_largest(const struct dt_fit_query *q, int64_t *value, int64_t max, uint64_t room,
		   struct dt_err *err);

/*
 * The fewest ranks, a power of two from min up to max (min itself may be any number): of the layouts with so
 * many the simplest, ZeRO before tensor parallelism (8 ranks at most, a node) before pipelines; a server only
 * grows by tp. Writes q->layout. Layouts the account cannot estimate are passed over. 1: found; 0: none.
 */
int dt_fit_fewest_ranks(struct dt_fit_query *q, int min, int max, uint64_t room, struct dt_err *err);

/* The lowest ZeRO stage of q's layout that the run takes and that fits. Writes q->layout. 1 or 0: none. */
int dt_fit_lowest_zero(struct dt_fit_query *q, uint64_t room, struct dt_err *err);

/* Layers of a stage as text, "0-3", or "0-1,4-5" where a stage has several chunks. Returns buf. */
const char *dt_fit_layers(const struct dt_fit_query *q, int stage, char *buf, size_t n);

/* One line in buf of how a category's bytes in e come about, and a few that say what it holds. */
enum { DT_FORMULA_LEN = 160 };
const char *dt_category_formula(const struct dt_fit_query *q, const struct dt_estimate *e, int cat, char *buf,
				size_t n);
const char *dt_category_text(int cat);
/* Of the category's entries the least exact: modelled before calibrated before exact. */
enum dt_exactness dt_category_exactness(const struct dt_estimate *e, int cat);

/* The model's shape was guessed from its number of parameters: nothing that follows from it is exact. */
void dt_fit_guessed(struct dt_fit *f);

/* The query and its answer: dt-memest(1), JSON. buffers: with every entry of the worst rank. */
json_t *dt_fit_json(const struct dt_fit_query *q, const struct dt_fit *f, bool buffers);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
