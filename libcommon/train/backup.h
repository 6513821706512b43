/*
 * --sync backup:B: a step is made of the gradients of the first dp - B ranks that have them; the others are
 * dropped from this step (Chen et al. 2016, arXiv 1604.00981). Here they are not waited for by being let
 * behind: a rank that sees dp - B others finished stops where it is, at the end of a unit, and takes part in
 * the sum with zeros. So all ranks have the same weights after every step, nothing is late, and a rank that
 * finishes before it hears of it counts too. The sum is divided by the targets that count.
 * Ranks take turns with the parts of a batch, so that one that is always slow is not always dropped with the
 * same part of the samples' order; what was dropped is not counted as seen.
 * A rank that hangs inside a unit still holds up the others.
 * A card stops as soon (train/pace.h), and a rank has finished when its card has.
 */
#ifndef DT_TRAIN_BACKUP_H
#define DT_TRAIN_BACKUP_H

#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;
struct dt_arrivals;

struct backup {
	struct dt_arrivals *a; /* NULL: every rank is waited for */
	bool racing;	       /* gradients are being computed */
	bool dropped;	       /* this rank, from the step under way */
	double targets;	       /* of this rank that count */
	double scale;	       /* of gradients that were divided by the targets of all ranks */
	int ranks;	       /* dropped from the step */
	int64_t steps, lost;   /* steps that a rank was dropped from, and samples, since the start */
};

int backup_open(struct trainer *t, struct dt_err *err);
void backup_release(struct trainer *t);
/* What the start of the run says of it, and the end. */
void backup_announce(const struct trainer *t);
void backup_sum_up(const struct trainer *t);

/* The part of a round of microbatches, of dp, that is this rank's in the step under way. */
int64_t backup_part(const struct trainer *t);
int backup_begin(struct trainer *t, struct dt_err *err);
/* -ECANCELED, without a message: enough ranks have finished, and this one is dropped. */
int backup_look(struct trainer *t);
/* Backward is done, or given up: then gradients and *loss are zero. */
int backup_finish(struct trainer *t, double *loss, struct dt_err *err);
/* Gradients are summed: every rank knows how many were dropped. */
int backup_end(struct trainer *t, struct dt_err *err);
/* Takes what ranks agree on: the targets that count, which are returned, 1 at least. */
double backup_counted(struct trainer *t, double targets);
/* Gradients become those over the targets that count. */
int backup_scale(struct trainer *t, struct dt_err *err);
/* Samples that were dropped from the step. */
int64_t backup_lost(const struct trainer *t);
void backup_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
