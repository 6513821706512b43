/*
 * A run that outlives its ranks (--elastic dp): when one is lost, those that are left make themselves a
 * trainer for the smaller layout, with the state that is in their memory, and go on.
 */
#ifndef DT_TRAIN_ELASTIC_H
#define DT_TRAIN_ELASTIC_H

#include "train/train.h"

struct trainer;

/* Whether rc of the loop is one that the run goes on after: a rank is lost. */
bool elastic_can(struct trainer *t, int rc);
/*
 * Another trainer in place of *t, for the ranks that are left. *t is released and freed. On failure *t is one
 * that failed, to be released.
 */
int elastic_again(struct trainer **t, const struct dt_run *r, struct dt_world *w, const struct dt_log *log,
		  struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
