/*
 * Where a value that is not finite comes from: after every node the values it made, and after backward nodes
 * the gradients it added to, are read once more, until the first that is Inf or NaN. The rows that experts
 * work on are passed over: room there that no token has taken is never written. And how large values are.
 */
#ifndef DT_NN_WATCH_H
#define DT_NN_WATCH_H

#include "nn/exec.h"

enum { DT_WATCH_VALUES, DT_WATCH_GRADIENTS, DT_WATCH_N };

struct dt_watch {
	bool find; /* the first that is not finite is looked for */
	bool found;
	/* of the first: list, unit, node, value, and a weight of the node that is not finite */
	char text[320];
	/*
	 * [DT_WATCH_N, layers + 2] Of each unit, the embedding first, the largest magnitude of what its nodes
	 * make (first results) and of the gradients of that, with the loss scale: raised, and INFINITY for
	 * what is not finite. NULL: not asked.
	 */
	double *most;
};

/* After node number step of x's program. */
int dt_watch_look(struct dt_exec *x, int step, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
