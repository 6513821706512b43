/*
 * A run whose ranks leave and come (--elastic dp): when one is lost, those that are left make themselves a
 * trainer for the smaller layout, with the state that is in their memory, and go on. A process that joins
 * between two steps gets its state from them, and reads no checkpoint.
 */
#ifndef DT_TRAIN_ELASTIC_H
#define DT_TRAIN_ELASTIC_H

#include "train/train.h"

struct trainer;

enum { ELASTIC_JOIN = 2 }; /* of the loop: it has stopped between two steps for a process that joins */
/* Whether rc of the loop is one that the run goes on after: a rank is lost, or one joins. */
bool elastic_can(struct trainer *t, int rc);
/*
 * Another trainer in place of *t (NULL: this process joins), for the ranks that there are now. *t is released
 * and freed. On failure *t is one that failed, to be released, or NULL where there was none.
 */
int elastic_again(struct trainer **t, const struct dt_run *r, struct dt_world *w, const struct dt_log *log,
		  struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
