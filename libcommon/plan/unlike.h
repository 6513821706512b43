/*
 * Mixed clusters. If data-parallel ranks may compute unequal numbers of microbatches (dt-train --shares), the
 * numbers minimise the slowest rank's time (plan/shares.h). In all other layouts ranks communicate within a
 * microbatch, and all run at the pace of the slowest.
 */
#ifndef DT_PLAN_UNLIKE_H
#define DT_PLAN_UNLIKE_H

#include "plan/steptime.h"

/* As dt_step_time_of, c->nkind > 0. */
int dt_unlike_step_time(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
			const struct dt_work *work, bool table, struct dt_step_time *ret, struct dt_err *err);

/* ret_n [dp]: microbatches of each data-parallel rank. 1; 0: all have the same. */
int dt_unlike_shares(const struct dt_cluster *c, const struct dt_run *s, const struct dt_stack *stack,
		     int64_t *ret_n, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
