/*
 * The rows of run_table_learn.c and run_table.c, in this order one table: a row is an option of a run, for
 * run_options.c alone.
 */
#ifndef DT_PLAN_RUN_TABLE_H
#define DT_PLAN_RUN_TABLE_H

#include "plan/run_rows.h"

#include <stddef.h>

/* How a field of struct dt_run is written as an argument. */
enum form {
	TEXT,
	INTEGER,
	REAL,
	REAL32,
	FLAG,
	CHOICE,
	LAYOUT,
	PIPELINE,
	RECOMPUTE,
	MASTER,
	LOSS_SCALE,
	SEED,
	BN_SPAN,
	GROWING
};

enum emit { NEVER, CHANGED, ALWAYS }; /* among the arguments that dt-plan emits */

struct dt_run_row {
	struct dt_opt opt; /* dest: the offset in struct dt_run_options */
	enum form form;
	size_t at; /* in struct dt_run */
	enum dt_run_change change;
	enum emit emit;
};

extern const struct dt_run_row dt_run_rows_learn[], dt_run_rows_run[];
extern const int dt_run_nrows_learn, dt_run_nrows_run;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
