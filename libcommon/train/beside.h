/*
 * A copy of the weights that a run started from, kept beside the weights that it trains. It is the reference
 * model of scored answers (rl/) where there are no adapters to switch off. It is laid out as the weights are:
 * whole, or with ZeRO-3 a share on each rank.
 */
#ifndef DT_TRAIN_BESIDE_H
#define DT_TRAIN_BESIDE_H

#include "train/store.h"

struct beside {
	struct flat flat; /* .p NULL: the run has no such copy */
};

void beside_bind(struct trainer *t);
/* Fills the copy with the initial values of the parameters, in a resumed run too. Before init_close. */
int beside_fill(struct trainer *t, struct dt_err *err);
/*
 * After given_begin: runs the model forward over the rows of the step where the objective has values, then
 * the reference model where there is one, and calls the producer's ready. Every rank calls it.
 */
int beside_ask(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
