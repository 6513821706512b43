/*
 * The values of all parameters for an engine that answers prompts beside the weights that learn (--task).
 * Where a rank has every parameter whole they are where they are; with tp or ZeRO-3 they come together in a
 * buffer of the memory plan (DT_B_DRAWN) that lives between two steps, where no activation does. Of a card
 * they are copied to its host from there.
 */
#ifndef DT_TRAIN_DRAWN_H
#define DT_TRAIN_DRAWN_H

#include "base/log.h"

struct trainer;

struct drawn {
	const void **at; /* [table.n] by number, of the host; NULL: nobody answers */
	char **there;	 /* where they come from: at itself, or of a card */
	char *copy;	 /* of a card's on its host */
	/* They are as they are now, until the step computes. Every rank calls it. arg: the trainer. */
	int (*gather)(void *arg, struct dt_err *err);
};

int drawn_open(struct trainer *t, struct dt_err *err);
void drawn_close(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
