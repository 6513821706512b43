/*
 * Activations offloaded to a file, or to host memory, between forward and backward (plan/away.c chooses
 * them). After the last segment of forward that reads an activation, it is copied to a ring and written from
 * there. During backward the next ones are read ahead, and each is copied to its address before the segment
 * that reads it. An activation that is still in the ring is not read again.
 */
#ifndef DT_TRAIN_STASH_H
#define DT_TRAIN_STASH_H

#include "base/err.h"
#include "nn/backing.h"

struct trainer;
struct dt_flight;

struct stash {
	struct dt_backing *file; /* NULL: no activation is offloaded */
	char *ring;
	struct stash_slot *slot; /* [DT_AWAY_RING] */
	int *by_out, *by_in; /* entries of the plan's list, in the order they are offloaded and restored */
	int *when_in;	     /* by entry: its index in by_in */
	int out, in;	     /* number of entries offloaded, and restored, in this step */
};

int stash_bind(struct trainer *t, struct dt_err *err);
/* Makes the file, or takes the memory. */
int stash_start(struct trainer *t, struct dt_err *err);
void stash_close(struct trainer *t);
/* A hook of struct dt_hooks; arg is the trainer. */
int stash_segment(void *arg, const struct dt_flight *f, int i, bool done, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
