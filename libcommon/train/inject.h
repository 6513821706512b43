/* Fault injection (--inject), to try out fault handling in tests and before a long run. */
#ifndef DT_TRAIN_INJECT_H
#define DT_TRAIN_INJECT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;

enum inject_kind {
	INJECT_KILL,
	INJECT_STOP,
	INJECT_NAN,
	INJECT_SPIKE,
	INJECT_SLOW,
	INJECT_FLIP,
	INJECT_ENOSPC,
	INJECT_WRONG,
	INJECT_KILL_UPDATE,
	INJECT_LATE,
	INJECT_DROP
};

/* KIND[:KEY=VALUE[,KEY=VALUE...]] */
struct inject {
	enum inject_kind kind;
	int64_t rank;	     /* -1: all */
	int64_t step, steps; /* the first step that it happens in, counted from 1; for how many steps */
	int64_t start;	     /* which start of the job under dt-run; 0: every one */
	int64_t element;     /* flip: which element of the rank's parameters */
	int64_t bit;
	double seconds; /* slow: delay of a step */
	double factor;	/* spike: on loss and gradients; slow: on the time of a step; drop: probability */
	int64_t made;	/* times it has happened: it does not recur in a step that is trained again */
};

enum { INJECT_MAX = 16 };

/* Reads the run's faults; every rank calls it. */
int inject_open(struct trainer *t, struct dt_err *err);
/* In a process that joins the run: marks the faults of earlier steps as done. */
void inject_pass(struct trainer *t);
/* At the start of a step: may end or stop this process, or flip a bit. */
void inject_before(struct trainer *t);
/* The factor on this rank's loss in this step: 1, NaN or a spike's factor. */
double inject_factor(const struct trainer *t);
/* After backward, before the update: delays a slow rank. */
void inject_after(struct trainer *t);
/* Between the global gradient norm and the update: may end this process. */
void inject_update(const struct trainer *t);
/* At the same place: waits until another rank is lost, then -ETIMEDOUT, as if the norm had not arrived. */
int inject_late(struct trainer *t, struct dt_err *err);
/* The factor on a loss that replicas compare: 1, or a little more if it is to be wrong. */
double inject_wrong(struct trainer *t);
/* Whether the outer gradients that rank n of dp sends after this step are lost; the same on all ranks. */
bool inject_drop(const struct trainer *t, int n);
/* While a checkpoint is written: returns -ENOSPC if that fault is due. */
int inject_save(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
