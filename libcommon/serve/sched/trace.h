/*
 * The scheduler's decisions as JSON Lines, and the same decisions made again. The scheduler has no clock and
 * no model, so a file of what it was told (requests, progress, ends) with what it planned is all that is
 * needed to run it again, and to see whether a changed scheduler decides otherwise.
 *
 * First line: the pool and the bounds. Then one line an event: submit, step (the state of what runs, then the
 * plan as [request, first token, tokens]), computed, fork, remove. Requests are numbered as they come. The
 * file holds the requests' tokens.
 */
#ifndef DT_SERVE_SCHEDTRACE_H
#define DT_SERVE_SCHEDTRACE_H

#include "base/json.h"
#include "serve/sched/scheduler.h"

struct dt_schedtrace {
	FILE *f; /* not owned */
	int64_t requests, steps;
	bool failed; /* it could not be written: the rest is left out */
};

/* Each does nothing where t is NULL or has failed. begin: after the scheduler was initialised. state: before
 * dt_sched_step; plan: after it. */
void dt_schedtrace_begin(struct dt_schedtrace *t, const struct dt_sched *s);
void dt_schedtrace_submit(struct dt_schedtrace *t, struct dt_seq *q);
void dt_schedtrace_state(struct dt_schedtrace *t, const struct dt_sched *s);
void dt_schedtrace_plan(struct dt_schedtrace *t, const struct dt_sched *s, const struct dt_sched_item *items,
			int n);
/* A plan as a line has it. */
json_t *dt_schedtrace_plan_json(const struct dt_sched_item *items, int n);
void dt_schedtrace_computed(struct dt_schedtrace *t, const struct dt_seq *q, int n);
void dt_schedtrace_fork(struct dt_schedtrace *t, const struct dt_seq *child, bool ok);
void dt_schedtrace_remove(struct dt_schedtrace *t, const struct dt_seq *q);

struct dt_replay {
	int64_t requests, steps, tokens, preemptions, prefix_hits; /* of the run made again */
	int64_t different, first_different; /* steps planned otherwise; the number of the first, -1 */
};

/* Runs the decisions of a file again. -EINVAL with the line's number when the file cannot be followed, which
 * is also so when different steps led elsewhere. */
int dt_schedtrace_replay(const char *path, struct dt_replay *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
