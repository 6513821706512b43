/* The rows of run_table*.c, for the files of plan/ that go through all of them. */
#ifndef DT_PLAN_RUN_ROWS_H
#define DT_PLAN_RUN_ROWS_H

#include "plan/run_options.h"

/* What a difference to the checkpoint a run goes on from means. */
enum dt_run_change {
	LOCAL,	 /* of this process or this machine: not stored */
	FREE,	 /* the same numbers, up to the order of sums */
	TOLD,	 /* how long, or how precisely: told */
	MEANING, /* another run: refused */
};

int dt_run_row_count(void);
/* -1: there is none. */
int dt_run_row_find(const char *name);
/* Its option, with its place in o. */
struct dt_opt dt_run_row_bound(struct dt_run_options *o, int i);
enum dt_run_change dt_run_row_change(int i);
/* Its value in buf, as on a command line; a flag is "on" or "off". NULL: it has none. */
const char *dt_run_row_value(int i, const struct dt_run *r, char *buf, size_t n);
/* Numbers are the same whatever their text: older checkpoints have 1e+01 for 10. */
bool dt_run_same_value(const char *a, const char *b);
/* Whether its value asks for something: it is neither the default nor 0 or off. */
bool dt_run_row_says(const struct dt_run *r, const char *name);

/* Whether the run reads the option of this name; beta2, for one, means nothing to sgd. run_reads.c */
bool dt_run_reads(const struct dt_run *r, const char *name);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
