/*
 * Limits how far a rank enqueues work ahead of its CUDA device, if it must react to other ranks between
 * units: it may be dropped (--sync backup), or it is a parameter server reached by messages. At most one unit
 * is enqueued behind the one that the device computes; while the rank waits for the device it polls. On a CPU
 * a unit is computed when the call returns.
 */
#ifndef DT_TRAIN_PACE_H
#define DT_TRAIN_PACE_H

#include <stdint.h>

struct trainer;
struct dt_err;
struct dt_event;

struct pace {
	struct dt_event *unit[2]; /* the ends of two units in the queue; NULL: no limit */
	int64_t units;		  /* enqueued so far in this step */
};

int pace_open(struct trainer *t, struct dt_err *err);
void pace_release(struct trainer *t);
void pace_begin(struct trainer *t);
/* At the end of a unit. -ECANCELED, without a message: this rank is dropped from the step. */
int pace_unit(struct trainer *t, struct dt_err *err);
/* Waits until the queue is empty. What a dropped rank has enqueued still runs; its results are discarded. */
int pace_end(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
