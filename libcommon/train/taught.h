/*
 * --teacher: distillation. A teacher's stored predictions (data/teacher.h) go with each microbatch's targets.
 */
#ifndef DT_TRAIN_TAUGHT_H
#define DT_TRAIN_TAUGHT_H

#include "base/json.h"
#include "data/teacher.h"
#include "nn/exec.h"

struct trainer;

struct taught {
	struct dt_teacher *file; /* NULL: there is no teacher */
	int32_t *columns; /* [seq, k] of a whole sample, if this rank has only a part of it; else NULL */
	float *probs;	  /* [seq, k + 1] likewise */
	double ce, kl;	  /* cross-entropy and KL divergence of this step, means over its targets */
};

/* After the data set: refuses a file made for another one; sets how many columns per token are learnt. */
int taught_open(struct trainer *t, struct dt_err *err);
/* After the trainer's memory. */
int taught_start(struct trainer *t, struct dt_err *err);
void taught_close(struct trainer *t);
/*
 * Loads the teacher's predictions for sequence b of a microbatch, which begins at token `at` of the data set.
 */
int taught_rows(struct trainer *t, const struct dt_flight *f, int64_t b, int64_t at, struct dt_err *err);
/* All-reduces the step's sums and divides them by `targets`. */
int taught_agree(struct trainer *t, double targets, struct dt_err *err);
void taught_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
