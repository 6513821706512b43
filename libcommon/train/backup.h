/*
 * --sync backup:B: a step is made of the gradients of the first dp - B ranks that have them; the others are
 * dropped from this step (Chen et al. 2016, arXiv 1604.00981). A slow rank is not left behind: once dp - B
 * others have finished it stops at the end of the unit that it computes, and joins the all-reduce with zero
 * gradients. So all ranks have the same weights after every step, and no gradient is stale. A rank that
 * finishes before it learns that it is late still counts. The sum is divided by the targets that count.
 * Ranks rotate over the parts of a batch from step to step, so that a rank that is always slow does not
 * always drop the same part of the samples' order. Dropped samples are not counted as seen.
 * A rank that hangs inside a unit still holds up the others.
 * A CUDA device stops at the end of a unit too (train/pace.h); its rank has finished when the device has.
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
	bool dropped;	       /* this rank is dropped from the step under way */
	double targets;	       /* targets of this rank that count; 0 if it was dropped */
	double scale;	       /* corrects gradients that were divided by the targets of all ranks */
	int ranks;	       /* number of ranks dropped from the step */
	int64_t steps, lost;   /* since the start: steps with dropped ranks, and samples dropped */
};

int backup_open(struct trainer *t, struct dt_err *err);
void backup_release(struct trainer *t);
/* Log messages at the start and at the end of the run. */
void backup_announce(const struct trainer *t);
void backup_sum_up(const struct trainer *t);

/* Which of the dp parts of a round of microbatches this rank computes in the step under way. */
int64_t backup_part(const struct trainer *t);
int backup_begin(struct trainer *t, struct dt_err *err);
/* Returns -ECANCELED, without a message, if enough ranks have finished and this one is dropped. */
int backup_look(struct trainer *t);
/* After backward. Sets gradients and *loss to zero if this rank was dropped. */
int backup_finish(struct trainer *t, double *loss, struct dt_err *err);
/* After the all-reduce of the gradients: every rank learns how many ranks were dropped. */
int backup_end(struct trainer *t, struct dt_err *err);
/* targets: the sum over all ranks of targets that count. Returns it, but at least 1, and sets scale. */
double backup_counted(struct trainer *t, double targets);
/* Rescales the gradients, so that they are divided by the targets that count. */
int backup_scale(struct trainer *t, struct dt_err *err);
/* Samples that were dropped from the step. */
int64_t backup_lost(const struct trainer *t);
void backup_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
