/* Simulates the queue of an image classifier, with the lanes of serve/engine/classify_lanes.c. */
#include "serve/capacity/images.h"

#include "base/order.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct lane {
	int first, waiting; /* first of its waiting list, linked by next; length of the list */
	int last;
	int under, n; /* the same for running requests */
	double until;
};

struct queue {
	const struct dt_image_queue *s;
	const struct dt_sim_ask *ask;
	struct lane *lane;
	int *next;	    /* [n] next request in its lane's list */
	int dealt, arrived; /* requests assigned and arrived so far */
	double *seconds;    /* [n] latency of each */
	struct dt_image_report *r;
};

static void give(struct queue *q, struct lane *l, int i)
{
	if (l->waiting++)
		q->next[l->last] = i;
	else
		l->first = i;
	l->last = i;
}

static void deal_requests(struct queue *q)
{
	while (q->dealt < q->arrived) {
		struct lane *least = &q->lane[0];

		for (int r = 1; r < q->s->ranks; r++)
			if (q->lane[r].waiting + q->lane[r].n < least->waiting + least->n)
				least = &q->lane[r];
		give(q, least, q->dealt++);
	}
}

static void deal_data(struct queue *q)
{
	const int waiting = q->arrived - q->dealt, n = waiting < q->s->batch ? waiting : q->s->batch;
	const int each = (n + q->s->ranks - 1) / q->s->ranks;

	for (int r = 0; r < q->s->ranks; r++)
		if (q->lane[r].waiting + q->lane[r].n)
			return;
	for (int k = 0; k < n; k++)
		give(q, &q->lane[k / each], q->dealt++);
}

/* Begins the lane's next pass. */
static void take(struct queue *q, int rank, double now)
{
	struct lane *l = &q->lane[rank];

	if (l->n || !l->waiting)
		return;
	l->n = l->waiting < q->s->batch ? l->waiting : q->s->batch;
	l->under = l->first;
	l->waiting -= l->n;
	for (int k = 0; k < l->n; k++)
		l->first = q->next[l->first];
	l->until = now + q->s->pass_s[l->n] + (rank ? q->s->send_s[l->n] : 0);
	q->r->busy_s += q->s->pass_s[l->n];
	q->r->passes++;
}

static void answer(struct queue *q, struct lane *l)
{
	for (int k = 0, i = l->under; k < l->n; k++, i = q->next[i])
		q->seconds[i] = l->until - q->ask[i].at_s;
	q->r->end_s = fmax(q->r->end_s, l->until);
	l->n = 0;
}

static void run(struct queue *q, int n)
{
	for (;;) {
		double now = q->arrived < n ? q->ask[q->arrived].at_s : INFINITY;

		for (int r = 0; r < q->s->ranks; r++)
			if (q->lane[r].n)
				now = fmin(now, q->lane[r].until);
		if (isinf(now))
			return;
		for (int r = 0; r < q->s->ranks; r++)
			if (q->lane[r].n && q->lane[r].until <= now)
				answer(q, &q->lane[r]);
		while (q->arrived < n && q->ask[q->arrived].at_s <= now)
			q->arrived++;
		if (q->s->data)
			deal_data(q);
		else
			deal_requests(q);
		for (int r = 0; r < q->s->ranks; r++)
			take(q, r, now);
	}
}

int dt_image_simulate(const struct dt_image_queue *s, const struct dt_sim_ask *ask, int n,
		      struct dt_image_report *ret, struct dt_err *err)
{
	struct queue q = {.s = s, .ask = ask, .r = ret};
	int rc = 0;

	*ret = (struct dt_image_report){0};
	q.lane = calloc((size_t)s->ranks, sizeof(*q.lane));
	q.next = calloc((size_t)n + 1, sizeof(*q.next));
	q.seconds = calloc((size_t)n + 1, sizeof(*q.seconds));
	if (q.lane && q.next && q.seconds) {
		run(&q, n);
		for (int i = 0; i < n; i++)
			ret->mean += q.seconds[i] / n;
		qsort(q.seconds, (size_t)n, sizeof(*q.seconds), dt_order_f64);
		ret->p50 = dt_sim_rank(q.seconds, n, 0.5);
		ret->p99 = dt_sim_rank(q.seconds, n, 0.99);
	} else {
		rc = dt_err_sys(err, -ENOMEM, "cannot simulate");
	}
	free(q.lane);
	free(q.next);
	free(q.seconds);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
