/*
 * Freezing of tensors by name: they have no gradient, no master and no optimizer state, and backward ends
 * where nothing below is trained (model/op/prune.c).
 */
#ifndef DT_MODEL_FREEZE_H
#define DT_MODEL_FREEZE_H

#include "model/graph.h"

/*
 * Freezes the tensors of g that c->freeze matches. -EINVAL if it is no expression, matches nothing or
 * everything, or only a part of one product (q, k and v; gate and up). -ENOTSUP for tensors that are updated
 * by other rules.
 */
int dt_graph_freeze(struct dt_graph *g, const struct dt_config *c, struct dt_err *err);
/* -EINVAL, naming the option, where part of one product is frozen and part is not. */
int dt_graph_check_joined(const struct dt_graph *g, const char *option, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
