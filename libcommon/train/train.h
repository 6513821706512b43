/*
 * The training loop: data, forward and backward over microbatches, reduction, clipping, optimizer,
 * evaluation, checkpoints, one JSON line a step.
 */
#ifndef DT_TRAIN_TRAIN_H
#define DT_TRAIN_TRAIN_H

#include "comm/comm.h"
#include "plan/memory.h"

/* Trains. Returns an exit status (enum dt_exit); messages go to log, metrics to their file. */
int dt_train_run(const struct dt_run *r, struct dt_world *w, const struct dt_log *log);

#endif
