/*
 * Queue of requests that wait for a server: by priority, then the tenant that has been served less, then age.
 */
#include "route/priv.h"

#include "base/progress.h"

#include <math.h>

void dt_route_x_wait(struct dt_route_x *x)
{
	struct dt_router *r = x->r;
	struct dt_route_tenant *t = &r->tenant[x->tenant];
	double least = INFINITY;

	if (r->nqueue >= r->conf.queue) {
		dt_route_x_fail(x, 503, "overloaded", 1, "all servers are busy, and %d requests are waiting",
				r->nqueue);
		return;
	}
	/* a tenant that was idle gets no credit for that time */
	for (int i = 0; i < r->ntenants && t->waiting == 0; i++)
		if (r->tenant[i].waiting > 0)
			least = fmin(least, r->tenant[i].served);
	if (t->waiting == 0 && least < INFINITY)
		t->served = fmax(t->served, least);
	t->waiting++;
	x->state = DT_X_QUEUED;
	x->queued = dt_now();
	TAILQ_INSERT_TAIL(&r->queue, x, in_list);
	r->nqueue++;
	r->stats.queued++;
}

static void dequeue(struct dt_route_x *x)
{
	struct dt_router *r = x->r;

	TAILQ_REMOVE(&r->queue, x, in_list);
	r->tenant[x->tenant].waiting--;
	r->nqueue--;
	x->state = DT_X_TRYING;
	dt_route_bars_add(&r->stats.wait, dt_now() - x->queued);
}

/*
 * Whether a goes before b: higher priority, then the tenant that has been served less. Of equal ones the
 * older goes first.
 */
static bool before(const struct dt_route_x *a, const struct dt_route_x *b)
{
	const struct dt_route_tenant *t = &a->r->tenant[a->tenant], *u = &b->r->tenant[b->tenant];

	return t->priority != u->priority ? t->priority > u->priority : t->served < u->served;
}

void dt_route_x_run_queue(struct dt_router *r)
{
	static bool inside; /* a request that is started here may fail at once and call this function again */
	struct dt_route_x *x, *best;

	if (inside)
		return;
	inside = true;
	do {
		double now = dt_now();

		best = NULL;
		TAILQ_FOREACH (x, &r->queue, in_list)
			if ((!best || before(x, best)) && dt_route_choice_mark(x, now) == DT_ROUTE_FOUND)
				best = x;
		if (best) {
			dequeue(best);
			dt_route_x_try(best, false);
		}
	} while (best);
	inside = false;
}
/* SPDX-License-Identifier: Apache-2.0 */
