/* How far the run is. */
#ifndef DT_TRAIN_LOOP_H
#define DT_TRAIN_LOOP_H

#include "base/json.h"

#include <stdbool.h>

struct trainer;
struct skip;

struct loop {
	int64_t step;	   /* done so far */
	int64_t cursor;	   /* global sample number of the next step's first sample */
	int64_t tokens;	   /* trained on so far */
	struct skip *skip; /* [nskip]: samples that are passed over (train/spike.h) */
	int nskip;
	int64_t held; /* the step whose state is in memory, the one under way included; -1: it is changing */
	bool owed;    /* a checkpoint of this step is due, and not begun */
};

struct step_result {
	double loss, grad_norm, lr, loss_scale;
	bool skipped;	 /* no update: gradients overflowed or are not finite, a spike, samples passed over */
	const char *why; /* "nan", "spike", "passed over"; NULL: the loss scale */
	bool back;	 /* a spike that the run is to go back for: nothing is done yet */
	bool stop;	 /* some rank was asked to stop */
	bool save;	 /* some rank was asked for a checkpoint */
	bool join;	 /* a process waits to become a rank */
};

/* What signals ask of this rank (dt_train_catch_signals). */
struct asked {
	bool stop, save;
};

/* step.c: forward, backward, reduction, update; then the loop is a step further */
int trainer_step(struct trainer *t, struct asked asked, struct step_result *ret, struct dt_err *err);
/* Forward, backward and, where ranks add them up, reduction; scale: of the loss before backward. */
int trainer_gradients(struct trainer *t, double scale, double *ret_loss, struct dt_err *err);
/*
 * With --peer-copy: the update that other ranks have made of the step under way, whose gradients are here; or
 * the step without one. For when a rank was lost before this one heard of the outcome.
 */
int trainer_catch_up(struct trainer *t, bool updated, double norm, struct dt_err *err);
/* Counts the step without its update, and notes that no resume trains on its samples. */
int trainer_leave_out(struct trainer *t, struct step_result *ret, const char *why, struct dt_err *err);
struct eval_result {
	double loss;	   /* mean over targets */
	int64_t targets;   /* tokens, or images: each once */
	double top1, top5; /* shares of images whose class was the most likely, and among the first five */
};
int trainer_eval(struct trainer *t, struct eval_result *ret, struct dt_err *err);
/* Takes step, cursor and tokens from a manifest. */
int loop_from_json(struct trainer *t, const json_t *meta, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
