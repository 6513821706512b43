/* Checkpoints of a run (save.c), and the folder they are in (folder.c). */
#ifndef DT_TRAIN_SAVE_H
#define DT_TRAIN_SAVE_H

#include "base/err.h"
#include "base/json.h"
#include "ckpt/ckpt.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

struct trainer;

struct save {
	struct save_job *job;	     /* the checkpoint that a thread is writing, NULL: none */
	char run_id[DT_CKPT_RUN_ID]; /* in every checkpoint and line of metrics */
	int lock;		     /* descriptor of the folder's lock, 0: none */
	char dropped[PATH_MAX];	     /* folder of a checkpoint that was abandoned; empty: none */
	int64_t newest; /* step of the newest complete checkpoint; -1: this process has written none */
};

/*
 * Writes a checkpoint. final: the run ends after it, so the call waits for it, and its failure fails the run.
 * Otherwise --save-errors decides whether a failure is only reported.
 */
int trainer_save(struct trainer *t, bool final, struct dt_err *err);
/* Advances an asynchronous checkpoint if all ranks can; wait: until it is complete. Every rank calls it. */
int trainer_drain(struct trainer *t, bool wait, struct dt_err *err);
/* Key of manifests of runs whose answers a command scores. */
#define REWARDS_KEY "rewards"
/* Before parameters and states change: copies what an asynchronous checkpoint has not written yet. */
void trainer_before_update(struct trainer *t);
/* After a failure elsewhere: waits for this rank's writer thread, and abandons the checkpoint. */
void trainer_drop_save(struct trainer *t);
/* Resumes from the checkpoint that --resume names. 1: resumed, 0: there is none. */
int trainer_resume(struct trainer *t, struct dt_err *err);

/* A manifest's JSON text about the run (all but the tensors), malloc'd; NULL: no memory. And reading it. */
char *trainer_words(struct trainer *t);
int trainer_take_words(struct trainer *t, const json_t *meta, struct dt_err *err);

/* Restores state, step and cursor from the checkpoint at path. */
int trainer_restore(struct trainer *t, const char *path, struct dt_err *err);

/* Refuses a folder with checkpoints of another run, unless the run resumes from there or has --overwrite. */
int folder_check(struct trainer *t, struct dt_err *err);
/*
 * Locks the folder against other jobs. Sets run_id on all ranks: a new one, or that of the checkpoint resumed
 * from. Every rank calls it.
 */
int folder_open(struct trainer *t, struct dt_err *err);
/* Tries again to take the lock, which a lost rank may have held until now. */
void folder_lock_again(const struct trainer *t);
void folder_release(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
