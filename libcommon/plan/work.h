/*
 * The work of one rank for a microbatch: the nodes of every kind of layer and of both ends of the model, with
 * their costs. It depends on the model, the microbatch and how layers are cut, not on stages, dp or the
 * machine, so one table serves the step times of many layouts on any cluster. It is made from the programs of
 * a short model (model/flops.h) on one stage.
 */
#ifndef DT_PLAN_WORK_H
#define DT_PLAN_WORK_H

#include "model/op/timed.h"
#include "plan/stage.h"

struct dt_work_node {
	enum dt_list list;
	bool again;   /* computed again for backward */
	bool weights; /* yields weight gradients alone: a split backward runs it apart */
	struct dt_node_cost cost;
	struct dt_timed_list timed;
};

struct dt_work_unit {
	int first, n;	/* nodes */
	double params;	/* this rank's, a tied head not among them */
	double experts; /* of these, of experts that ep divides */
	double kept;	/* bytes from forward to backward */
	double tied; /* elements of a table that the head shares: a stage without the embedding has it too */
};

struct dt_work_sum { /* over all units of the model */
	double flops, model_flops, attention, again,
		bytes; /* attention: model flops of it, forward; again: flops */
};

struct dt_work {
	const struct dt_config *config;
	int64_t layers; /* of the short model: units 0 .. layers - 1 */
	struct dt_work_node *node;
	struct dt_work_unit *unit; /* [layers + 2]: the embedding at 0, the final unit last */
	double tokens;		   /* of a microbatch, here */
	struct dt_work_sum sum;	   /* this rank's */
	/* As one rank alone would count, which all that share the microbatch together do; training only. */
	double model_flops, attention_flops;
};

/* Of rank 0 of the tensor-parallel group. Released by dt_work_release, also where it fails. */
int dt_work_open(const struct dt_run *r, struct dt_work *ret, struct dt_err *err);
/* The same without what all ranks together do: model_flops and attention_flops stay 0. */
int dt_work_open_rank(const struct dt_run *r, struct dt_work *ret, struct dt_err *err);
/* The stage whose nodes these are: the short model `few`, all of it, on rank 0. */
int dt_work_stage(const struct dt_run *r, struct dt_config *few, struct dt_stage *ret, struct dt_err *err);
/* How many layers of the model are like the short one's number i. */
int64_t dt_work_times(const struct dt_work *w, int64_t i);
/* Of a server's pass over `rows` tokens on tp ranks: one prompt (context 0), or as many sequences' next; or
 * over images. */
struct dt_work_serving {
	const struct dt_config *config;
	enum dt_dtype compute;
	int tp, ep, cp; /* ep 0 is 1, cp 0 is 1: ranks that share the rows */
	int64_t rows, outputs, context;
	double weight_bits, cache_bits;
};
/* What costs of its program's nodes depend on; valid as long as stage is. */
struct dt_cost_site dt_serving_site(const struct dt_work_serving *s, const struct dt_stage *stage);
int dt_work_open_serving(const struct dt_work_serving *s, struct dt_work *ret, struct dt_err *err);
void dt_work_release(struct dt_work *w);

/* The unit that layer number `layer` of the model is like; -1: the embedding, config->layers: the last. */
const struct dt_work_unit *dt_work_unit(const struct dt_work *w, int64_t layer);

/* Flops of a step that MFU counts, of all ranks. */
int dt_run_model_flops(const struct dt_run *r, double *ret, struct dt_err *err);

/*
 * Tables as they were asked for, so that none is made twice. Runs' configurations stay where they are as
 * long as it lives. All zero is an empty one.
 */
struct dt_work_cache {
	struct dt_work_cached *bucket[256];
};
const struct dt_work *dt_work_get(struct dt_work_cache *c, const struct dt_run *r, struct dt_err *err);
void dt_work_cache_release(struct dt_work_cache *c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
