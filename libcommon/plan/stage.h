/*
 * The programs that one rank executes: the model's graph, this rank's tensors, and the program of each of its
 * chunks of layers. The memory plan, the step time and the executor all read it.
 */
#ifndef DT_PLAN_STAGE_H
#define DT_PLAN_STAGE_H

#include "model/op/cost.h"
#include "plan/run.h"

#define DT_MAX_CHUNKS 16

struct dt_stage {
	struct dt_graph graph;
	struct dt_local local;
	int *local_of;	     /* [graph.params.n] local number of a parameter, -1: another rank's */
	int64_t (*shape)[2]; /* [local.n] rows and columns of this rank's parts, 1 for a vector's columns */
	int cp_rank;
	int nchunk;
	struct dt_prog chunk[DT_MAX_CHUNKS];
	bool split;	    /* weight gradients are lists of their own */
	int64_t loss_chunk; /* rows of logits at a time */
};

/* Derives the programs of the rank at these coordinates. */
int dt_stage_build(const struct dt_run *r, struct dt_coords at, struct dt_stage *ret, struct dt_err *err);
/* A server's forward pass over `rows` tokens at most, of which `outputs` want logits, on the rank at `at`. */
struct dt_serving {
	const struct dt_config *config;
	enum dt_dtype compute;
	int64_t rows, outputs;
	int64_t adapters; /* the largest rank that rows' adapters may have; 0: none have any */
	bool fold;	  /* batch norms are folded into convolutions (model/fold.h) */
	struct dt_layout layout;
	struct dt_coords at;
};
/* -ENOTSUP, by name: a server is not laid out so. */
int dt_serving_check(const struct dt_config *c, const struct dt_layout *l, struct dt_err *err);
int dt_stage_build_serving(const struct dt_serving *s, struct dt_stage *ret, struct dt_err *err);
void dt_stage_release(struct dt_stage *p);

/* What the costs of chunk k's nodes depend on; valid as long as p is. */
struct dt_cost_site dt_stage_site(const struct dt_stage *p, const struct dt_run *r, int k);

/* Linears of a layer of each kind that r would compute in 8 bits. -ENOMEM. */
int dt_stage_count_8_bits(const struct dt_run *r, int *ret, struct dt_err *err);
/* The dense linears of a program whose products are in 8 bits (or, used false, that are not): "qkv, o, up and
 * down". n counts them by name. buf has 64 bytes. */
const char *dt_stage_8_bits(const struct dt_stage *p, bool used, char *buf, int *ret_n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
