/*
 * How far a card's queue is ahead of the card, where a rank looks at the others between units: one that
 * may be dropped (--sync backup), or that serves others by messages. The card is given one unit behind the
 * one that it computes, and no more, and its rank serves and looks while it waits for that. A processor has
 * computed a unit when the call returns.
 */
#ifndef DT_TRAIN_PACE_H
#define DT_TRAIN_PACE_H

#include <stdint.h>

struct trainer;
struct dt_err;
struct dt_event;

struct pace {
	struct dt_event *unit[2]; /* the ends of two units in the queue; NULL: the rank does not look */
	int64_t units;		  /* of the step so far */
};

int pace_open(struct trainer *t, struct dt_err *err);
void pace_release(struct trainer *t);
void pace_begin(struct trainer *t);
/* At the end of a unit. -ECANCELED, without a message: this rank is dropped from the step. */
int pace_unit(struct trainer *t, struct dt_err *err);
/* The queue is empty; that of a rank which is dropped computes what it has for nothing. */
int pace_end(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
