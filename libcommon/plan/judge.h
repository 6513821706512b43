/* Checks, step time and memory of one candidate; dt_plan_judge (search.h) does all three. */
#ifndef DT_PLAN_JUDGE_H
#define DT_PLAN_JUDGE_H

#include "plan/search.h"

/*
 * Whether a run is possible under the account that the query names: the trainer's own checks, or for other
 * programs the constraints that any layout must satisfy.
 */
int dt_plan_can_run(const struct dt_plan_query *q, const struct dt_run *r, struct dt_err *err);
/* The time of its step; table: from the pipeline's schedule, else a guess. */
int dt_plan_step_time(const struct dt_plan_query *q, const struct dt_run *s, bool table,
		      struct dt_step_time *ret, struct dt_err *err);
/* Sets peak_bytes, of the fullest stage, and fits. */
int dt_plan_peak_of(const struct dt_plan_query *q, struct dt_candidate *c, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
