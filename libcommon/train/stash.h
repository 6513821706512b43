/*
 * Activations in a file, or in the memory of a card's host, between forward and backward (plan/away.c says
 * which). Behind the segment of the
 * program that reads one last in forward it is copied to a ring and written from there; while backward
 * computes, those that it wants next are read, and one is copied to its address before the segment that reads
 * it. What is still in the ring is not read again.
 */
#ifndef DT_TRAIN_STASH_H
#define DT_TRAIN_STASH_H

#include "base/err.h"
#include "nn/backing.h"

struct trainer;
struct dt_flight;

struct stash {
	struct dt_backing *file; /* NULL: none leave */
	char *ring;
	struct stash_slot *slot; /* [DT_AWAY_RING] */
	int *by_out, *by_in;	 /* entries of the plan's list, in the order they leave and come back */
	int *when_in;		 /* place in by_in of an entry */
	int out, in;		 /* so many have left, are back */
};

int stash_bind(struct trainer *t, struct dt_err *err);
/* Makes the file, or takes the memory. */
int stash_start(struct trainer *t, struct dt_err *err);
void stash_close(struct trainer *t);
/* A hook of struct dt_hooks; arg is the trainer. */
int stash_segment(void *arg, const struct dt_flight *f, int i, bool done, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
