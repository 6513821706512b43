/*
 * Snapshots of the scheduler's state for other threads. Only the engine's thread can read it, so it is asked,
 * and answers between two steps.
 */
#include "base/cond.h"
#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct dt_slot slot_of(const struct dt_serve_req *r, double now)
{
	const struct dt_seq *q = &r->seq;

	return (struct dt_slot){
		.number = r->number,
		.tenant = r->call->tenant,
		.running = q->state == DT_SEQ_RUNNING,
		.prompt = r->nprompt,
		.cached = q->cached,
		.computed = q->computed,
		.out = r->nout,
		.max_tokens = r->max_tokens,
		.blocks = q->blocks.n - q->blocks.gone,
		.priority = r->ask->priority,
		.age = now - r->t_arrive,
		.first = r->nout > 0 ? r->t_first - r->t_arrive : -1,
		.rate = r->nout > 1 && now > r->t_first ? (r->nout - 1) / (now - r->t_first) : 0,
	};
}

/* Running requests first, then waiting ones, each in order of arrival. */
static void fill(const struct dt_engine *e, struct dt_slots *ret)
{
	const double now = dt_now();
	const struct dt_serve_req *r;

	ret->n = 0;
	for (int running = 1; running >= 0; running--)
		TAILQ_FOREACH (r, &e->live, in_list)
			if ((r->seq.state == DT_SEQ_RUNNING) == running && ret->n < DT_SLOTS_MAX)
				ret->slot[ret->n++] = slot_of(r, now);
	ret->running = e->sched.nrunning;
	ret->waiting = e->sched.waiting;
	ret->blocks = ret->free_blocks = 0;
	for (int i = 0; i < e->p.replicas; i++) {
		ret->blocks += e->pool[i].nblocks;
		ret->free_blocks += e->pool[i].nfree;
	}
	ret->step_tokens = e->step->batch.ntokens;
	ret->steps = e->steps;
	ret->preemptions = e->sched.preemptions;
	ret->prefix_queries = e->sched.prefix_queries;
	ret->prefix_hits = e->sched.prefix_hits;
}

void dt_engine_show(struct dt_engine *e)
{
	struct dt_engine_gate *g = &e->gate;

	if (!g->looking)
		return;
	fill(e, &g->slots);
	g->looking = false;
	g->seen++;
	pthread_cond_broadcast(&g->shown);
}

bool dt_engine_slots(struct dt_engine *e, double seconds, struct dt_slots *ret)
{
	struct dt_engine_gate *g = &e->gate;
	const double end = dt_now() + seconds;
	uint64_t seen;
	bool ok;

	pthread_mutex_lock(&g->mu);
	seen = g->seen;
	g->looking = true;
	pthread_cond_signal(&g->work);
	while (g->seen == seen && dt_cond_wait_until(&g->shown, &g->mu, end) == 0)
		continue;
	ok = g->seen != seen;
	*ret = g->slots; /* on timeout: the previous snapshot */
	ret->stepping = g->busy_since > 0 ? dt_now() - g->busy_since : 0;
	pthread_mutex_unlock(&g->mu);
	return ok;
}
/* SPDX-License-Identifier: Apache-2.0 */
