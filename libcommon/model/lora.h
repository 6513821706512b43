/*
 * Low-rank adapters (Hu et al. 2021, LoRA) as a rewrite of a graph: behind each linear y = x w^T that is
 * meant, y += s (x a^T) b^T with a [rank, in] and b [out, rank], and every other tensor is frozen. a begins
 * uniform in +-1/sqrt(in), as PEFT's does, b with zeros: the first forward pass is the base's, bit for bit.
 *
 * Of a linear of several tensors (q, k and v) those that are meant have an adapter each; their a lie next to
 * one another, so that all are one product. Over tensor-parallel ranks b is cut with the rows of w and a with
 * its columns; the other of the two every rank holds whole, and its gradient is a sum over the ranks.
 */
#ifndef DT_MODEL_LORA_H
#define DT_MODEL_LORA_H

#include "model/graph.h"

/* What is trained beside the adapters (modules_to_save, as PEFT calls it) is not frozen, and has none. */

/* s: alpha / rank, or alpha / sqrt(rank) (Kalajdzievski 2023, rsLoRA). */
double dt_lora_scale(const struct dt_lora *l);

/* -EINVAL for sizes or an expression that mean nothing; all is well where rank is 0. */
int dt_lora_check(const struct dt_lora *l, struct dt_err *err);

/*
 * Rewrites g. -EINVAL where targets match no linear of the layers. Targets: "all", "attention", "qv" (q and
 * v), or an extended regular expression that a whole name matches, as "layers.3.attn.q" or
 * "(.*\.)?mlp\..*".
 */
int dt_graph_lora(struct dt_graph *g, const struct dt_config *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
