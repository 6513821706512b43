/*
 * dt-run sweep: runs one dt-train command with many values of some options, several trials at a time, and
 * prints a table of results. Successive halving (Jamieson & Talwalkar 2016; Li et al. 2018, Hyperband's inner
 * loop): all trials train to a first step, the best of them to a later one, and so on. A trial resumes from
 * its checkpoint, with the learning rate schedule of the whole run.
 *
 * DIR/sweep.jsonl: a line that says what the sweep is, then a line for every stretch of a trial that ended.
 * DIR/NNN/: checkpoints and metrics.jsonl of trial NNN, log: what it printed. A sweep that was interrupted
 * goes on with the same command.
 */
#ifndef DT_SUPERVISE_SWEEP_H
#define DT_SUPERVISE_SWEEP_H

#include "base/log.h"
#include "base/opt.h"

#include <stdint.h>
#include <stdio.h>

struct dt_sweep {
	char *const *argv;     /* the command: dt-train ..., or a launcher before it */
	struct dt_strs grid;   /* "lr=1e-3,3e-3": every value with every value of the others */
	struct dt_strs random; /* "lr=1e-4:1e-2:log": drawn, samples times */
	int64_t samples, seed; /* of random */
	int64_t jobs;	       /* trials at a time; 0: as many as the processors carry */
	const char *dir;
	const char *metric; /* key of the metrics lines that is compared; NULL: eval_loss, or loss */
	int64_t last;	    /* the mean of so many of its last values counts; 0: 10 of loss, else 1 */
	bool largest;	    /* the largest is best, else the smallest */
	int64_t halve;	    /* one trial in so many goes on to the next rung; 0: all train to the end */
	int64_t first;	    /* with halve: steps of the first rung */
	const struct dt_log *log;
};

/* Prints the table to out. Returns an exit status: 0, 1 no trial has a value, 2 usage, 75 interrupted. */
int dt_sweep_run(const struct dt_sweep *o, FILE *out, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
