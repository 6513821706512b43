/*
 * The weights that a run started from beside those that it trains: the reference of scored answers where
 * there are no adapters to leave out. They lie as the weights do, whole or (z3) a share on each rank.
 */
#ifndef DT_TRAIN_BESIDE_H
#define DT_TRAIN_BESIDE_H

#include "train/store.h"

struct beside {
	struct flat flat; /* .p NULL: the run has no such copy */
};

void beside_bind(struct trainer *t);
/* Values that parameters have at the start of a run: also of one that goes on. Before init_close. */
int beside_fill(struct trainer *t, struct dt_err *err);
/*
 * Behind given_begin: what the reference says of the rows of the step, where it is asked, and the maker is
 * ready. Every rank calls it.
 */
int beside_ask(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
