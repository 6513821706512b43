/*
 * Memory for sampling answers during training (--task): an inference engine on a copy of the weights, in the
 * trainer's process or in each of its actors, which get the weights through shared memory. With a CUDA device
 * they pass through host memory. This memory is outside the memory plan's arena, and comes on top of it.
 */
#ifndef DT_PLAN_DRAWS_H
#define DT_PLAN_DRAWS_H

#include "plan/estimate.h"

/* Sequences at a time, tokens of a batch, tokens of a block of the cache. */
enum { DT_DRAWS_SEQS = 64, DT_DRAWS_TOKENS = 512, DT_DRAWS_BLOCK = 16 };

/* For a run with --task: the memory of dt_infer_open and of the engine on each rank. */
int dt_draws_estimate(const struct dt_run *r, struct dt_estimate *ret, struct dt_err *err);
/* Bytes of weights that are handed over, each parameter at a multiple of 64; actors have room for two. */
uint64_t dt_draws_handed(const struct dt_params *table, enum dt_dtype compute);
uint64_t dt_draws_handed_one(const struct dt_param *p, enum dt_dtype compute);
/* Bytes on the device, in all and by category, and in host memory beside a CUDA device; 0 without --task. */
struct dt_draws {
	uint64_t bytes, host, cat_bytes[DT_EST_CAT_N];
};
int dt_draws_bytes(const struct dt_run *r, struct dt_draws *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
