/* The parts of dt_run_check; not for others. Each is 0, or a negative errno with what is refused by name. */
#ifndef DT_PLAN_RUN_CHECK_H
#define DT_PLAN_RUN_CHECK_H

#include "plan/run.h"

/* Optimizer, sums over ranks, objective, teacher. */
int run_check_learning(const struct dt_run *r, struct dt_err *err);
/* How data-parallel ranks stay together, and what each computes. */
int run_check_sync(const struct dt_run *r, struct dt_err *err);
/* What of an elastic run its ranks can hand over, and copies of another rank's share. */
int run_check_elastic(const struct dt_run *r, struct dt_err *err);
/* The schedule of a pipeline, which is made only of what passes. */
int run_check_pipeline(const struct dt_run *r, struct dt_err *err);

/* What does not go with unequal shares of the ranks (--shares). */
int dt_run_check_shares(const struct dt_run *r, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
