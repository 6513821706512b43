/*
 * The training loop: data, forward and backward over microbatches, reduction, clipping, optimizer,
 * evaluation, checkpoints, one JSON line a step.
 */
#ifndef DT_TRAIN_TRAIN_H
#define DT_TRAIN_TRAIN_H

#include "comm/comm.h"
#include "plan/memory.h"
#include "plan/run_options.h"

struct dt_given;

/*
 * Trains on the run's data, or (given not NULL) on samples made during the run (train/given.h). Returns an
 * exit status (enum dt_exit); messages go to log, metrics to their file. A failure is also written to the
 * run's error_file.
 */
int dt_train_run(const struct dt_run *r, const struct dt_given *given, struct dt_world *w,
		 const struct dt_log *log);

/*
 * From now on SIGTERM, SIGINT and SIGUSR1 end the run after the step under way, with a checkpoint; SIGUSR2
 * asks for a checkpoint. One rank that gets the signal is enough. Call it early: until then the signals kill
 * the process.
 */
void dt_train_catch_signals(void);

/* Writes {"code", "message", "hint"} to --error-file, if it is given and there is a message. */
void dt_train_write_error(const struct dt_run *r, const struct dt_err *err);

/*
 * Before the run's options are resolved: if it resumes from a checkpoint (save.resume), takes from there the
 * options that the command line left open, as dt_run_options_resume does, and the model. Every process does
 * so by itself. Strings of o may point to memory that lives until the process ends.
 */
int dt_train_continue(struct dt_run_options *o, void (*tell)(void *arg, const char *text), void *arg,
		      struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
