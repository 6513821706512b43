/*
 * The scheduler's decisions as JSON Lines, and their replay. The scheduler has no clock and no model, so a
 * file with its inputs (requests, progress, ends) and its plans is enough to run it again, and to see whether
 * a changed scheduler decides differently.
 *
 * First line: the pool and the limits. Then one line an event: submit, step (state of running requests, then
 * the plan as [request, first token, tokens]), computed, fork, remove. Requests are numbered in order of
 * arrival. The file contains the requests' tokens.
 */
#ifndef DT_SERVE_SCHEDTRACE_H
#define DT_SERVE_SCHEDTRACE_H

#include "base/json.h"
#include "serve/sched/scheduler.h"

struct dt_schedtrace {
	FILE *f; /* not owned */
	int64_t requests, steps;
	bool failed; /* a write failed: nothing more is written */
};

/*
 * These do nothing if t is NULL or has failed. begin: call after dt_sched_init; state: before dt_sched_step;
 * plan: after it.
 */
void dt_schedtrace_begin(struct dt_schedtrace *t, const struct dt_sched *s);
void dt_schedtrace_submit(struct dt_schedtrace *t, struct dt_seq *q);
void dt_schedtrace_state(struct dt_schedtrace *t, const struct dt_sched *s);
void dt_schedtrace_plan(struct dt_schedtrace *t, const struct dt_sched *s, const struct dt_sched_item *items,
			int n);
/* A plan in the form that it has on a line. */
json_t *dt_schedtrace_plan_json(const struct dt_sched_item *items, int n);
void dt_schedtrace_computed(struct dt_schedtrace *t, const struct dt_seq *q, int n);
void dt_schedtrace_fork(struct dt_schedtrace *t, const struct dt_seq *child, bool ok);
void dt_schedtrace_remove(struct dt_schedtrace *t, const struct dt_seq *q);

struct dt_replay {
	int64_t requests, steps, tokens, preemptions, prefix_hits; /* totals of the replay */
	int64_t different, first_different; /* steps planned differently; number of the first, -1: none */
};

/*
 * Replays a file. -EINVAL, with the line number, when the file cannot be followed; different plans may also
 * lead to that.
 */
int dt_schedtrace_replay(const char *path, struct dt_replay *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
