/* --teacher: what a teacher gives the training set (data/teacher.h), beside each microbatch's targets. */
#ifndef DT_TRAIN_TAUGHT_H
#define DT_TRAIN_TAUGHT_H

#include "base/json.h"
#include "data/teacher.h"
#include "nn/exec.h"

struct trainer;

struct taught {
	struct dt_teacher *file; /* NULL: there is no teacher */
	int32_t *columns;	 /* [seq, k] of a sample, and [seq, k + 1]: where a rank has a part of it */
	float *probs;
	double ce, kl; /* of this step: means over its targets */
};

/* Behind the data set: refuses a file of another; settles how many columns are learnt. */
int taught_open(struct trainer *t, struct dt_err *err);
/* Behind the memory of the trainer. */
int taught_start(struct trainer *t, struct dt_err *err);
void taught_close(struct trainer *t);
/* Sequence b of the flight is the sample that begins at token `at` of the set. */
int taught_rows(struct trainer *t, const struct dt_flight *f, int64_t b, int64_t at, struct dt_err *err);
/* The step's means, over all ranks. */
int taught_agree(struct trainer *t, double targets, struct dt_err *err);
void taught_metrics(const struct trainer *t, json_t *line);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
