/*
 * The scratch memory (kernels/scratch.h) that a device takes for the nodes of a program: for each op, the
 * calls of nn/call_*.c that take some. Ops of serving are not among them.
 */
#ifndef DT_MODEL_OP_SCRATCH_H
#define DT_MODEL_OP_SCRATCH_H

#include "kernels/scratch.h"
#include "model/op/cost.h"

/* Raises the buffers to what the node needs. */
void dt_node_scratch(const struct dt_cost_site *s, const struct dt_scratch_on *on, const struct dt_node *n,
		     struct dt_scratch *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
