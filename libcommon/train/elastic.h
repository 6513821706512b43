/*
 * Runs whose ranks may leave and join (--elastic dp). When a rank is lost, the remaining ranks build a
 * trainer for the smaller layout from the state in their memory, and go on. A process that joins between two
 * steps receives the state from them, and reads no checkpoint.
 */
#ifndef DT_TRAIN_ELASTIC_H
#define DT_TRAIN_ELASTIC_H

#include "train/train.h"

struct trainer;

enum { ELASTIC_JOIN = 2 }; /* the loop's result: it stopped between two steps for a process that joins */
/* Whether the run goes on after this result of the loop: a rank is lost, or one joins. */
bool elastic_can(struct trainer *t, int rc);
/*
 * Replaces *t (NULL: this process joins) by a trainer for the ranks that there are now; the old one is
 * released and freed. On failure *t is the trainer that failed, which the caller releases, or NULL if there
 * was none.
 */
int elastic_again(struct trainer **t, const struct dt_run *r, struct dt_world *w, const struct dt_log *log,
		  struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
