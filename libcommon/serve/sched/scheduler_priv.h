/* Shared by the files of scheduler.h. */
#ifndef DT_SERVE_SCHEDULER_PRIV_H
#define DT_SERVE_SCHEDULER_PRIV_H

#include "serve/sched/scheduler.h"

static inline struct dt_kvpool *dt_sched_pool(struct dt_sched *s, const struct dt_seq *q)
{
	return &s->pool[q->replica];
}

static inline struct dt_sched_tenant *dt_sched_tenant(struct dt_sched *s, const struct dt_seq *q)
{
	return &s->tenant[q->tenant];
}

/* scheduler_admit.c: waiting sequences that there is room for start to run; -ENOMEM. */
int dt_sched_admit(struct dt_sched *s);
/* q, which waits, runs. Its replica and blocks are set. */
void dt_sched_start(struct dt_sched *s, struct dt_seq *q);
/* Puts q's marks on those of its blocks that can be found by now. */
void dt_sched_put_marks(struct dt_sched *s, struct dt_seq *q);

/*
 * scheduler_plan.c: chooses the sequences that the step is for. fresh: only those that this step has
 * admitted, in addition to what is picked.
 */
void dt_sched_pick(struct dt_sched *s, bool fresh);
/* The items of what is picked, whose number it returns. */
int dt_sched_plan(struct dt_sched *s, struct dt_sched_item *items);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
