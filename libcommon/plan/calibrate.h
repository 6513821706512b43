/*
 * Fits a device's efficiencies to measured step times: JSON Lines of
 *   {"model", "layout", "microbatch", "global_batch", "seq", "precision", "recompute", "optimizer", "step_s"}
 * with dt-train's words and defaults. A handful of short runs is enough.
 */
#ifndef DT_PLAN_CALIBRATE_H
#define DT_PLAN_CALIBRATE_H

#include "plan/steptime.h"

#include <stdio.h>

struct dt_measured_run {
	struct dt_config config;
	struct dt_run run; /* its config points into this */
	double step_s;	   /* measured */
};

struct dt_runs {
	struct dt_measured_run *r;
	int n;
};

int dt_runs_read(const char *path, struct dt_runs *ret, struct dt_err *err);
void dt_runs_release(struct dt_runs *r);

/* Adjusts c's device to predict the runs. *ret_error: mean of |predicted / measured - 1| after that. */
int dt_calibrate(struct dt_cluster *c, const struct dt_stack *stack, const struct dt_runs *runs,
		 double *ret_error, struct dt_err *err);

struct dt_run_error {
	double ratio; /* predicted / measured */
	struct dt_step_time t;
};
/* The same mean for c as it is; ret_each [n] may be NULL. */
int dt_runs_error(const struct dt_cluster *c, const struct dt_stack *stack, const struct dt_runs *runs,
		  struct dt_run_error *ret_each, double *ret_error, struct dt_err *err);

/* validate.c: prints the steps measured in path beside what is predicted, and the mean error; or as JSON. */
int dt_runs_validate(const char *path, const struct dt_cluster *c, const struct dt_stack *stack, bool json,
		     FILE *f, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
