/* Checkpoints of a run (save.c), and the folder they are in (folder.c). */
#ifndef DT_TRAIN_SAVE_H
#define DT_TRAIN_SAVE_H

#include "base/err.h"
#include "base/json.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct trainer;

enum { RUN_ID_LEN = 16 }; /* hexadecimal digits */

struct save {
	struct save_job *job;	     /* the checkpoint being written behind our back, NULL: none */
	char run_id[RUN_ID_LEN + 1]; /* in every checkpoint and line of metrics */
	int lock;		     /* descriptor of the folder's lock, 0: none */
	char dropped[PATH_MAX];	     /* folder of the checkpoint that was dropped; empty: none */
	int64_t newest; /* step of the newest checkpoint that is safe; -1: none of this process */
};

/*
 * final: the run ends after it, so it is waited for and its failure is one of the run. Otherwise what fails
 * is reported and forgotten where --save-errors says so.
 */
int trainer_save(struct trainer *t, bool final, struct dt_err *err);
/* Takes an asynchronous checkpoint further where all ranks can; wait: to its end. Every rank calls it. */
int trainer_drain(struct trainer *t, bool wait, struct dt_err *err);
/* Before parameters and states change: saves from that what a checkpoint on its way has not written. */
void trainer_before_update(struct trainer *t);
/* After a failure elsewhere: waits for this rank's writer, and drops the checkpoint. */
void trainer_drop_save(struct trainer *t);
/* 1: resumed, 0: nothing to resume from. */
int trainer_resume(struct trainer *t, struct dt_err *err);

/* What a manifest says of the run beside its parameters, malloc'd; NULL: no memory. And the reverse. */
char *trainer_words(struct trainer *t);
int trainer_take_words(struct trainer *t, const json_t *meta, struct dt_err *err);

/* State, step and cursor of this checkpoint. */
int trainer_restore(struct trainer *t, const char *path, struct dt_err *err);

/* Refuses a folder with the checkpoints of another run, unless the run goes on from there or --overwrite. */
int folder_check(struct trainer *t, struct dt_err *err);
/* From now on no other job saves there. The run's name, new or that of the checkpoint it goes on from. */
int folder_lock(struct trainer *t, struct dt_err *err);
/* Takes the lock, which a rank that was lost may have had until now. */
void folder_lock_again(const struct trainer *t);
void folder_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
