/*
 * Training of an encoder on texts with labels: sets of 'dt-dataset labels'. A sample is one document. Its
 * tokens are written backwards, behind padding, so that the first token, whose state is classified, is in the
 * last row of a sequence whatever the length of the text; attention sees the keys from `first` on, which is
 * where padding ends, and row p has position seq - 1 - p (nn/exec_bind.c).
 */
#ifndef DT_TRAIN_LABELLED_H
#define DT_TRAIN_LABELLED_H

#include "base/json.h"
#include "data/dataset.h"
#include "nn/exec.h"

struct trainer;

struct labelled {
	struct dt_dataset *data, *eval; /* data NULL: the run has no labels; eval NULL: no evaluation */
	struct dt_dataset_info info, eval_info;
};

/*
 * Opens --data if it is such a set and the model an encoder, and gives the run its number of labels. -EINVAL
 * if the model's classes are others (--new-head gives it a new last layer).
 */
int labelled_describe(struct trainer *t, struct dt_err *err);
/* Opens the evaluation set. */
int labelled_open(struct trainer *t, struct dt_err *err);
void labelled_close(struct trainer *t);
/* As source_next. */
int labelled_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		  struct dt_err *err);
/* The names of the classes, for a manifest; NULL: labels are scores. */
json_t *labelled_classes(const struct trainer *t);
/* -EINVAL if a manifest's classes are not the run's. */
int labelled_load_meta(const struct trainer *t, const json_t *meta, const char *path, struct dt_err *err);
/* Logs the classes. */
void labelled_announce(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
