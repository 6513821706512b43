/*
 * Low-rank adapters (Hu et al. 2021, LoRA) as a rewrite of a graph: after each target linear y = x w^T it
 * adds y += s (x a^T) b^T with a [rank, in] and b [out, rank], and freezes every other tensor. a is
 * initialized uniform in +-1/sqrt(in), as PEFT's is, b with zeros: the first forward pass equals the base's
 * bit for bit.
 *
 * If a linear has several tensors (q, k and v), each target has an adapter of its own; their a are adjacent,
 * so that they are one product. With tensor parallelism b is cut if w is cut by rows, a if it is cut by
 * columns; every rank holds the other of the two whole, and its gradient is summed over the ranks.
 *
 * Modules that are trained in full beside the adapters (PEFT's modules_to_save) are not frozen and have no
 * adapter.
 */
#ifndef DT_MODEL_LORA_H
#define DT_MODEL_LORA_H

#include "model/graph.h"

/* s: alpha / rank, or alpha / sqrt(rank) (Kalajdzievski 2023, rsLoRA). */
double dt_lora_scale(const struct dt_lora *l);

/*
 * Rewrites g. -EINVAL where targets match no linear of the layers. Targets: "all", "attention", "qv" (q and
 * v), or an extended regular expression that a whole name matches, as "layers.3.attn.q" or
 * "(.*\.)?mlp\..*".
 */
int dt_graph_lora(struct dt_graph *g, const struct dt_config *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
