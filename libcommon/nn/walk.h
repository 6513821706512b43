/*
 * Sequences through a model unit by unit: all of them through one layer before any goes through the next.
 * Whoever looks at what a layer's products read, or changes its weights, has one layer at a time to do with;
 * what is kept of the others is the residual stream. A sequence begins a new context; all are len tokens.
 */
#ifndef DT_NN_WALK_H
#define DT_NN_WALK_H

#include "nn/infer.h"

#include "kernels/device.h"
#include "model/graph.h"

struct dt_prog;
struct dt_walk;

/* What a product of the unit is about to read: x [rows, k] on the host, for parameters of the config's table
 * param [3] (-1: absent), which lie one under another. */
struct dt_walk_seen {
	const struct dt_node *node;
	int param[3];
	struct dt_tensor x;
};
typedef int dt_walk_fn(void *arg, const struct dt_walk_seen *s, struct dt_err *err);

/*
 * ids [nseq, len] stay the caller's. m is on the processor, of one rank, and takes passes of len tokens. It
 * is m's alone until it is closed. Memory: nseq times what crosses from one layer to the next.
 */
int dt_walk_open(struct dt_walk **ret, struct dt_infer *m, const int32_t *ids, int64_t nseq, int64_t len,
		 struct dt_err *err);
void dt_walk_close(struct dt_walk *w);

/* Units of the forward pass, in their order: the embedding, the layers, and the end without the head. */
int dt_walk_units(const struct dt_walk *w);
/* A layer's number; -1: before the first, layers: behind the last. */
int dt_walk_layer(const struct dt_walk *w, int unit);
/*
 * All sequences through unit number `unit`; those before it have been kept. keep: go on from its results.
 * seen may be NULL: nobody looks. Without keep it may be called again, with other weights for instance.
 */
int dt_walk_unit(struct dt_walk *w, int unit, bool keep, dt_walk_fn *seen, void *arg, struct dt_err *err);

/* The program that is walked: nodes of unit `unit` are steps [*first, *end) of it; params are local. */
const struct dt_prog *dt_walk_program(const struct dt_walk *w, int unit, int *first, int *end);
/* Maps a parameter of this rank to its index in the model's parameter table; -1 to -1. */
int dt_walk_param(const struct dt_walk *w, int local);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
