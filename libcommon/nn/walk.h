/*
 * Runs sequences through a model layer by layer: all of them through one layer before any goes through the
 * next. So a caller can look at the inputs of a layer's products, or change its weights, one layer at a time
 * (GPTQ for example); between layers only the residual stream is kept. Each sequence is a context of its own,
 * of len tokens.
 */
#ifndef DT_NN_WALK_H
#define DT_NN_WALK_H

#include "nn/infer.h"

#include "kernels/device.h"
#include "model/graph.h"

struct dt_prog;
struct dt_walk;

/* The input of a product that is about to run: x [rows, k] on the host. param [3]: the parameters that it is
 * multiplied with, as indices of the model's parameter table (-1: absent), joined along their rows. */
struct dt_walk_seen {
	const struct dt_node *node;
	int param[3];
	struct dt_tensor x;
};
typedef int dt_walk_fn(void *arg, const struct dt_walk_seen *s, struct dt_err *err);

/*
 * ids [nseq, len] stay the caller's. m must be on the CPU, of one rank, and allow passes of len tokens.
 * Nothing else may use m until the walk is closed. Memory: nseq times the residual stream of a sequence.
 */
int dt_walk_open(struct dt_walk **ret, struct dt_infer *m, const int32_t *ids, int64_t nseq, int64_t len,
		 struct dt_err *err);
void dt_walk_close(struct dt_walk *w);

/* Units of the forward pass, in their order: the embedding, the layers, and the end without the head. */
int dt_walk_units(const struct dt_walk *w);
/* The number of a unit's layer; -1: before the first layer, layers: after the last. */
int dt_walk_layer(const struct dt_walk *w, int unit);
/*
 * Runs all sequences through a unit; the units before it must have been run with keep. keep: the next unit
 * continues from the results; without it the unit may be run again, with other weights for example. seen:
 * called with the input of each product; may be NULL.
 */
int dt_walk_unit(struct dt_walk *w, int unit, bool keep, dt_walk_fn *seen, void *arg, struct dt_err *err);

/* The program that is walked: nodes of unit `unit` are steps [*first, *end) of it; params are local. */
const struct dt_prog *dt_walk_program(const struct dt_walk *w, int unit, int *first, int *end);
/* Maps a parameter of this rank to its index in the model's parameter table; -1 to -1. */
int dt_walk_param(const struct dt_walk *w, int local);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
