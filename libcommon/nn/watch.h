/*
 * Where a value that is not finite comes from: after every node the values it made, and after backward nodes
 * the gradients it added to, are read once more, until the first that is Inf or NaN. The rows that experts
 * work on are passed over: room there that no token has taken is never written.
 */
#ifndef DT_NN_WATCH_H
#define DT_NN_WATCH_H

#include "nn/exec.h"

struct dt_watch {
	bool found;
	/* of the first: list, unit, node, value, and a weight of the node that is not finite */
	char text[320];
};

/* After node number step of x's program. Nothing is read once something was found. */
int dt_watch_look(struct dt_exec *x, int step, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
