/*
 * The scratch memory (kernels/scratch.h) that a device takes for the nodes of a program: for each op, the
 * calls of nn/call_*.c that take some.
 */
#ifndef DT_MODEL_OP_SCRATCH_H
#define DT_MODEL_OP_SCRATCH_H

#include "kernels/attention.h"
#include "kernels/quant_formats.h"
#include "model/op/cost.h"

/* Raises the buffers to what the node needs. */
void dt_node_scratch(const struct dt_cost_site *s, const struct dt_scratch_on *on, const struct dt_node *n,
		     struct dt_scratch *ret);

/* The same for all nodes of a server's program, in any pass within these limits. */
struct dt_serving_limits {
	int64_t seqs;		/* sequences of a pass, and rows of logits */
	int64_t keys, all_keys; /* keys of a sequence, and of all of a pass */
	enum dt_dtype cache;	/* type of keys and values */
	/* by local index of a matrix; others: a second format, of adapters' tensors (NULL: none) */
	const enum dt_format *format, *others;
};
void dt_serving_scratch(const struct dt_cost_site *s, const struct dt_scratch_on *on,
			const struct dt_serving_limits *most, struct dt_scratch *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
