/*
 * Finds the origin of a value that is not finite: after every node its results, and after backward nodes the
 * gradients that it added to, are read again, until the first Inf or NaN. The rows of experts are not
 * checked, because unused rows are never written. It also records the largest magnitudes.
 */
#ifndef DT_NN_WATCH_H
#define DT_NN_WATCH_H

#include "nn/exec.h"

enum { DT_WATCH_VALUES, DT_WATCH_GRADIENTS, DT_WATCH_N };

struct dt_watch {
	bool find; /* look for the first value that is not finite */
	bool found;
	/* describes it: list, unit, node, value, and a weight of the node that is not finite */
	char text[320];
	/*
	 * [DT_WATCH_N, layers + 2] For each unit, the embedding first: the largest magnitude of its nodes'
	 * first results, and of their gradients (with the loss scale). A stage's output, a sum that one stage
	 * alone does not have, is not among them. Entries are raised only; INFINITY
	 * stands for a value that is not finite. NULL: not recorded.
	 */
	double *most;
};

/* Called after step number `step` of x's program. */
int dt_watch_look(struct dt_exec *x, int step, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
