/*
 * Training with 8-bit floats (kernels/fp8.h): which linears of a layer, and the room this takes. Of shapes
 * alone, and the same on every rank: a linear is computed in 8 bits where the tokens of a microbatch and, on
 * all tensor-parallel ranks, its columns in and out divide by 16; else it stays in the compute type.
 * Embeddings, head, norms and attention do so anyway.
 */
#ifndef DT_PLAN_FP8_H
#define DT_PLAN_FP8_H

#include "plan/memory.h"

/* Linears of a layer, as they are named in rooflines. */
enum dt_stash { DT_S_DOWN, DT_S_UP, DT_S_O, DT_S_QKV, DT_STASH_N };
/* Columns that these matmuls of a layer take and give on one rank. */
void dt_linear_widths(const struct dt_config *c, const struct dt_local_dims *d, int64_t in[DT_STASH_N],
		      int64_t out[DT_STASH_N]);

struct dt_fp8_plan {
	bool used[DT_STASH_N]; /* by enum dt_stash */
	int nused;
	/*
	 * Elements of 8 bits: of a linear's input, or the gradient of its output, or its input transposed;
	 * of that gradient transposed; of its weight. One linear at a time.
	 */
	int64_t rows, turned, weight;
};

/* All zero without r->fp8. */
void dt_fp8_plan(const struct dt_run *r, struct dt_coords at, struct dt_fp8_plan *ret);

/* "qkv, o, up and down" of those that are computed in 8 bits, or of the others; buf has 32 bytes. */
const char *dt_fp8_names(const struct dt_fp8_plan *p, bool used, char *buf);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
