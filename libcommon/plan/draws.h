/*
 * What answers prompts beside the weights that learn (--task): an engine over a copy of them, in the
 * trainer's process or in each of its actors', to which the weights are handed over through shared
 * memory. A card's pass through its host's memory. All that lies beside the arena of the memory plan, which
 * keeps its pages, so the two add up.
 */
#ifndef DT_PLAN_DRAWS_H
#define DT_PLAN_DRAWS_H

#include "plan/estimate.h"

/* Sequences at a time, tokens of a batch, tokens of a block of the cache. */
enum { DT_DRAWS_SEQS = 64, DT_DRAWS_TOKENS = 512, DT_DRAWS_BLOCK = 16 };

/* A run with --task: what dt_infer_open and the engine take on each rank. */
int dt_draws_estimate(const struct dt_run *r, struct dt_estimate *ret, struct dt_err *err);
/* Bytes of weights that are handed over, each parameter at a multiple of 64; actors have room for two. */
uint64_t dt_draws_handed(const struct dt_params *table, enum dt_dtype compute);
uint64_t dt_draws_handed_one(const struct dt_param *p, enum dt_dtype compute);
/* Its bytes, where it computes, and of a card's host; 0 without --task. */
int dt_draws_bytes(const struct dt_run *r, uint64_t *ret, uint64_t *ret_host, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
