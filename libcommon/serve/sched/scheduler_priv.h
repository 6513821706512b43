/* Shared by scheduler*.c. */
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

/* scheduler_admit.c: admits waiting sequences for which there is room; -ENOMEM. */
int dt_sched_admit(struct dt_sched *s);
/* Moves q from waiting to running. Its replica and blocks must be set. */
void dt_sched_start(struct dt_sched *s, struct dt_seq *q);
/* Takes q off the list of running sequences, and frees its place. */
void dt_sched_stop(struct dt_sched *s, struct dt_seq *q);
/* Call when r stops running: no sequence waits for its blocks any more. */
void dt_sched_unfollow(struct dt_sched *s, struct dt_seq *r);
/* Puts q's marks on its published blocks. */
void dt_sched_put_marks(struct dt_sched *s, struct dt_seq *q);

/*
 * scheduler_plan.c: selects the sequences of the step. fresh: considers only sequences that this step has
 * admitted, in addition to those already picked.
 */
void dt_sched_pick(struct dt_sched *s, bool fresh);
/* Fills items for the picked sequences; returns their number. */
int dt_sched_plan(struct dt_sched *s, struct dt_sched_item *items);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
