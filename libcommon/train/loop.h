/* Progress of the run, and the functions of one step. */
#ifndef DT_TRAIN_LOOP_H
#define DT_TRAIN_LOOP_H

#include "base/json.h"

#include <stdbool.h>

struct trainer;
struct skip;

struct step_result {
	double loss, grad_norm, lr, loss_scale;
	double mtp_loss; /* of a module for a further token, over the same number of targets */
	bool skipped;	 /* no update: gradients overflowed or are not finite, a spike, samples passed over */
	const char *why; /* "nan", "spike", "passed over"; NULL: the loss scale */
	bool passed;	 /* samples passed over: nothing was computed */
	bool back;	 /* a spike for which the run is to roll back; the caller does that */
	bool stop;	 /* some rank was asked to stop */
	bool save;	 /* some rank was asked for a checkpoint */
	bool join;	 /* a process waits to become a rank */
};

struct loop {
	int64_t step;	   /* done so far */
	int64_t cursor;	   /* global sample number of the next step's first sample */
	int64_t tokens;	   /* trained on so far */
	struct skip *skip; /* [nskip] samples that are skipped (train/spike.h) */
	int nskip;
	int64_t held; /* the step after which the state in memory is; -1: an update is changing it */
	bool owed;    /* a checkpoint of this step is due and has not begun */
	int64_t line; /* the newest step whose line of metrics is known to be written */
	struct step_result last; /* of the newest step, also if a rank was lost in it */
};

/* Requests by signals to this rank (dt_train_catch_signals). */
struct asked {
	bool stop, save;
};

/* step.c: forward, backward, reduction and update; then counts the step */
int trainer_step(struct trainer *t, struct asked asked, struct step_result *ret, struct dt_err *err);
/* Forward, backward and, where ranks reduce gradients, the reduction; scale: on the loss before backward. */
int trainer_gradients(struct trainer *t, double scale, double *ret_loss, struct dt_err *err);
/*
 * With --peer-copy, after a rank was lost before this rank knew the outcome of the step: makes the update of
 * the step under way, as other ranks have (updated), from the gradients that are here; else only counts the
 * step.
 */
int trainer_catch_up(struct trainer *t, bool updated, double norm, struct dt_err *err);
/* Counts the step without an update, and records that no resumed run trains on its samples. */
int trainer_leave_out(struct trainer *t, struct step_result *ret, const char *why, struct dt_err *err);
struct eval_result {
	double loss;	   /* mean over targets */
	int64_t targets;   /* number of tokens or images */
	double top1, top5; /* images and labels: top-1 and top-5 accuracy, 0 to 1 */
	double mtp_loss;   /* as in struct step_result */
};
int trainer_eval(struct trainer *t, struct eval_result *ret, struct dt_err *err);
/* Takes step, cursor and tokens from a manifest. */
int loop_from_json(struct trainer *t, const json_t *meta, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
