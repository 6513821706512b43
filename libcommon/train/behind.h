/*
 * The update of offloaded optimizer states while backward computes the layers below: where nothing of the
 * update waits for the end of backward (dt_run_updates_behind), a tile is updated as soon as it is in memory
 * and the gradients of its units are final, between two nodes of the program. Backward goes from the last
 * unit to the first, and so do tiles. Every element is updated by itself, so that none changes by a bit.
 */
#ifndef DT_TRAIN_BEHIND_H
#define DT_TRAIN_BEHIND_H

#include "kernels/optim.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;
struct dt_err;

struct behind {
	bool on;       /* in the step under way */
	int64_t next;  /* tile: those above are updated */
	int unit;      /* the gradients of this unit and of those above are final ... */
	int64_t floor; /* ... that is, those of elements from here on, in the order of tiles */
	struct dt_optim rule;
	double rate;
	double seconds; /* spent here during backward, including waits for transfers */
};

/* After dt_exec_open. Installs the hook that dt_exec calls before each node. */
void behind_bind(struct trainer *t);
/* In front of the step's first node, once reduce_begin has been called. */
int behind_begin(struct trainer *t, struct dt_err *err);
/* Once all gradients are final: updates the tiles that are left. */
int behind_finish(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
