/*
 * Faults on request (--inject), so that what deals with them can be tried: in tests, and before a long run.
 */
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
	int64_t step, steps; /* the step it happens in, the first is 1; for how many */
	int64_t start;	     /* of the job under dt-run; 0: each */
	int64_t element;     /* flip: of the rank's parameters */
	int64_t bit;
	double seconds; /* slow: a step */
	double factor;	/* spike: of loss and gradients; slow: of the time of a step; drop: odds */
	int64_t made;	/* times it has happened: a step that is trained again has it no more */
};

enum { INJECT_MAX = 16 };

/* -EINVAL names what is wrong with the text. */
int inject_parse(const char *text, struct inject *ret, struct dt_err *err);
/* The run's faults; every rank. */
int inject_open(struct trainer *t, struct dt_err *err);
/* Of a process that joins the run: what was to happen before has happened. */
void inject_pass(struct trainer *t);
/* Before the step under way: may end or stop this process, flip a bit. */
void inject_before(struct trainer *t);
/* What the loss of this step is multiplied by on this rank: 1, NaN, a spike's factor. */
double inject_factor(const struct trainer *t);
/* After its backward, before its update: slow. */
void inject_after(struct trainer *t);
/* Between the norm of all ranks' gradients and the update: may end this process. */
void inject_update(const struct trainer *t);
/* There too: -ETIMEDOUT once another rank is lost, as if this one had not heard the norm. */
int inject_late(struct trainer *t, struct dt_err *err);
/* What a loss that replicas compare is multiplied by: 1, or a little more where it is to be wrong. */
double inject_wrong(struct trainer *t);
/* Whether the outer gradients that rank n of dp sends after this step are lost; the same on all ranks. */
bool inject_drop(const struct trainer *t, int n);
/* While a checkpoint is written: -ENOSPC where that was asked for. */
int inject_save(struct trainer *t, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
