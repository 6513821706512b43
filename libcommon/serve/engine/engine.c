#include "base/cond.h"
#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MARK_EVENTS (1 << 16)  /* events that are kept for a reader that lags behind */
#define PREPARE_S   4e-3       /* seconds of preparing an adapter between two steps */
#define GRAMMARS    (64 << 20) /* bytes of grammars of earlier requests */
#define HELD_LOOK   0.02       /* seconds after which held requests are checked in any case */

/* Requests that wait for r's prompt compute it themselves. */
static void leave_followers(struct dt_serve_req *r)
{
	for (int i = 0; i < r->call->n; i++)
		if (r->call->req[i].seq.leader == &r->seq)
			r->call->req[i].seq.leader = NULL;
}

/* Returns the unused part of r's charge to the quotas. Call with the gate locked. */
static void refund(struct dt_engine *e, const struct dt_serve_req *r)
{
	int unused = r->charged_out - r->nout + (r->t_start > 0 ? 0 : r->charged_prompt);

	if (e->p.ntenants > 0)
		dt_quota_give(&e->gate.quota[r->call->tenant], unused, dt_now());
	if (r->call->adapter)
		dt_quota_give(&r->call->adapter->quota, unused, dt_now());
}

void dt_engine_retire(struct dt_engine *e, struct dt_serve_req *r, enum dt_finish why)
{
	struct dt_call *c = r->call;
	bool last;

	leave_followers(r);
	e->preparing -= r->preparing;
	r->preparing = false;
	dt_constrain_retire(e, r);
	dt_engine_beyond_retire(e, r);
	dt_schedtrace_remove(e->p.trace, &r->seq);
	dt_sched_remove(&e->sched, &r->seq);
	TAILQ_REMOVE(&e->live, r, in_list);
	/* Update counters and queue before waking waiters: a woken client sees both up to date. */
	dt_metrics_finish(&e->metrics, r, why, dt_now());
	dt_metrics_step(&e->metrics, &e->sched, 0);
	if (c->adapter)
		dt_adapters_count(c->adapter, r->nprompt, r->nout);
	pthread_mutex_lock(&e->gate.mu);
	refund(e, r);
	e->gate.counted -= r->counted;
	if (--e->gate.inflight == 0)
		pthread_cond_broadcast(&e->gate.idle);
	pthread_mutex_unlock(&e->gate.mu);
	pthread_mutex_lock(&c->mu);
	dt_detok_finish(&r->detok);
	r->finish = why;
	last = --c->open == 0;
	if (last && c->held) {
		c->held = false;
		dt_adapters_release(c->adapter);
	}
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->mu);
	if (last && c->on_done)
		c->on_done(c->arg);
	dt_call_drop(c);
}

void dt_engine_retire_error(struct dt_engine *e, struct dt_serve_req *r, const struct dt_err *err)
{
	pthread_mutex_lock(&r->call->mu);
	r->err = *err;
	pthread_mutex_unlock(&r->call->mu);
	dt_engine_retire(e, r, DT_FINISH_ERROR);
}

static void drop_cancelled(struct dt_engine *e)
{
	double now = dt_now();
	struct dt_serve_req *r, *next;

	for (r = TAILQ_FIRST(&e->live); r; r = next) {
		next = TAILQ_NEXT(r, in_list);
		if (r->seq.busy) /* ends when its step is over */
			continue;
		if (atomic_load(&r->call->cancelled))
			dt_engine_retire(e, r, DT_FINISH_ABORT);
		else if (r->call->deadline > 0 && now > r->call->deadline)
			dt_engine_retire(e, r, DT_FINISH_TIMEOUT);
	}
}

void dt_engine_enter(struct dt_engine *e, struct dt_serve_req *r)
{
	struct dt_err err;

	dt_schedtrace_submit(e->p.trace, &r->seq);
	if (dt_sched_submit(&e->sched, &r->seq, &err) < 0)
		dt_engine_retire_error(e, r, &err);
}

static void admit(struct dt_engine *e, struct dt_serve_req *r)
{
	if (!dt_engine_beyond_hold(e, r))
		dt_engine_enter(e, r);
}

/*
 * Sends other ranks part of the adapter of the first request that waits for one; requests whose adapter is
 * complete are admitted.
 */
static void prepare(struct dt_engine *e)
{
	const struct dt_infer_adapter *first = NULL;
	const double until = dt_now() + PREPARE_S;
	struct dt_serve_req *r, *next;
	struct dt_err err;
	int rc = 0;

	for (r = e->preparing > 0 ? TAILQ_FIRST(&e->live) : NULL; r; r = next) {
		next = TAILQ_NEXT(r, in_list);
		if (!r->preparing || (first && r->call->adapter->in != first))
			continue;
		for (first = r->call->adapter->in; rc == 0 && dt_now() < until;)
			rc = e->p.model.ready(e->p.model.m, first, &err);
		e->told = dt_now();
		if (rc < 0) {
			dt_engine_fail(e, &err);
			return;
		}
		if (rc == 0)
			return;
		r->preparing = false;
		e->preparing--;
		admit(e, r);
	}
}

/* Moves the inbox to the scheduler. Sizes were checked at submission. */
static void take_inbox(struct dt_engine *e, struct dt_req_list *in)
{
	struct dt_serve_req *r;

	while ((r = TAILQ_FIRST(in))) {
		TAILQ_REMOVE(in, r, in_list);
		TAILQ_INSERT_TAIL(&e->live, r, in_list);
		r->number = ++e->taken;
		dt_constrain_begin(e, r);
		r->preparing = e->p.model.ready && r->call->adapter && !e->gate.failed;
		e->preparing += r->preparing;
		if (!r->preparing)
			admit(e, r);
	}
}

void dt_engine_fail(struct dt_engine *e, const struct dt_err *err)
{
	struct dt_req_list in = TAILQ_HEAD_INITIALIZER(in);

	pthread_mutex_lock(&e->gate.mu);
	e->gate.failed = e->gate.draining = true;
	e->gate.why = *err;
	TAILQ_CONCAT(&in, &e->gate.inbox, in_list);
	pthread_mutex_unlock(&e->gate.mu);
	take_inbox(e, &in);
	e->nflight = 0;
	while (!TAILQ_EMPTY(&e->live))
		dt_engine_retire_error(e, TAILQ_FIRST(&e->live), err);
}

/* Waits for work; sends heartbeats to other ranks in the meantime. Call with the gate locked. */
static void wait_for_work(struct dt_engine *e)
{
	struct dt_engine_gate *g = &e->gate;
	const double beat = e->p.model.beat ? e->p.model.beat_s : 0;
	const bool look = e->beyond.held > 0 || e->constrained > 0;
	const double most = look ? HELD_LOOK : beat;
	struct dt_err err;
	int rc;

	if (most == 0 || g->failed) {
		pthread_cond_wait(&g->work, &g->mu);
		return;
	}
	rc = dt_cond_wait_s(&g->work, &g->mu, most);
	if (look ? beat == 0 || dt_now() - e->told < beat : rc == 0)
		return;
	pthread_mutex_unlock(&g->mu);
	e->told = dt_now();
	rc = e->p.model.beat(e->p.model.m, &err);
	if (rc < 0)
		dt_engine_fail(e, &err);
	pthread_mutex_lock(&g->mu);
}

/* Whether there is a step to compute. */
static bool can_step(const struct dt_engine *e)
{
	return e->sched.nrunning + e->sched.waiting > 0 && !e->stalled;
}

static void *engine_main(void *arg)
{
	struct dt_engine *e = arg;
	struct dt_engine_gate *g = &e->gate;

	if (dt_engine_gate_wait(g))
		dt_engine_beyond_measure(e);
	for (;;) {
		struct dt_req_list in = TAILQ_HEAD_INITIALIZER(in);
		bool stop;

		pthread_mutex_lock(&g->mu);
		g->busy_since = 0;
		dt_engine_show(e);
		while (!g->stop && TAILQ_EMPTY(&g->inbox) && !can_step(e) && !e->preparing &&
		       !dt_engine_beyond_due(e) && !(e->stalled && g->constrained)) {
			wait_for_work(e);
			dt_engine_show(e);
			/* one may have its blocks or its mask, be cancelled, or be late */
			if (e->beyond.held > 0 || e->constrained > 0)
				break;
		}
		e->stalled = g->constrained = false;
		g->busy_since = dt_now();
		TAILQ_CONCAT(&in, &g->inbox, in_list);
		stop = g->stop;
		pthread_mutex_unlock(&g->mu);

		take_inbox(e, &in);
		if (stop)
			break;
		drop_cancelled(e);
		dt_constrain_collect(e);
		prepare(e);
		dt_engine_beyond_bring(e);
		if (dt_engine_beyond_due(e))
			dt_engine_beyond_write(e, false);
		if (can_step(e))
			dt_engine_step(e);
	}
	dt_engine_settle(e);
	while (!TAILQ_EMPTY(&e->live))
		dt_engine_retire(e, TAILQ_FIRST(&e->live), DT_FINISH_ABORT);
	dt_engine_beyond_write(e, true);
	return NULL;
}

static void engine_free(struct dt_engine *e)
{
	dt_constrain_jobs_release(e);
	dt_engine_buffers_release(e);
	dt_engine_mask_release(&e->mask);
	dt_grammars_free(e->p.grammars);
	dt_teller_close(&e->teller);
	dt_engine_beyond_close(e);
	dt_sched_release(&e->sched);
	if (e->pool)
		dt_kvmarks_free(e->pool->marks);
	for (int i = 0; e->pool && i < e->p.replicas; i++)
		dt_kvpool_release(&e->pool[i]);
	free(e->pool);
	dt_metrics_release(&e->metrics);
	dt_engine_gate_release(e);
	free(e);
}

static int init_pools(struct dt_engine *e, struct dt_err *err)
{
	int rc = e->p.replicas <= DT_REPLICAS_MAX ? 0 : -EINVAL;

	e->pool = calloc((size_t)e->p.replicas, sizeof(*e->pool));
	if (!e->pool)
		rc = -ENOMEM;
	for (int i = 0; i < e->p.replicas && rc == 0; i++)
		rc = dt_kvpool_init(&e->pool[i], e->p.blocks, e->p.block_size, e->p.share_prefixes);
	if (rc < 0)
		return dt_err_sys(err, rc, "cannot create a KV cache of %d blocks of %d tokens", e->p.blocks,
				  e->p.block_size);
	/* One log for all replicas: readers see a single server. */
	e->pool->marks = dt_kvmarks_new((size_t)e->p.replicas * (size_t)e->p.blocks, MARK_EVENTS);
	for (int i = 1; i < e->p.replicas; i++) {
		e->pool[i].marks = e->pool->marks;
		e->pool[i].marks_from = (size_t)i * (size_t)e->p.blocks;
	}
	return 0;
}

static int init_sched(struct dt_engine *e, struct dt_err *err)
{
	int n = e->p.ntenants, rc;
	struct dt_share *share = n > 0 ? calloc((size_t)n, sizeof(*share)) : NULL;

	if (n > 0 && !share)
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	for (int i = 0; i < n; i++)
		share[i] = e->p.tenant[i].share;
	rc = dt_sched_init(&e->sched, e->pool, e->p.max_seqs, e->p.max_tokens, share, n, err);
	e->sched.window = e->p.window;
	e->sched.replicas = e->p.replicas;
	e->sched.depth = e->depth;
	e->sched.whole = e->p.model.encoder;
	free(share);
	return rc;
}

int dt_engine_open(struct dt_engine **ret, const struct dt_engine_params *p, struct dt_err *err)
{
	struct dt_engine *e = calloc(1, sizeof(*e));
	int rc;

	if (!e)
		return dt_err_sys(err, -ENOMEM, "cannot start the engine");
	e->p = *p;
	e->p.replicas = p->replicas ? p->replicas : 1;
	e->p.grammars = dt_grammars_new(GRAMMARS); /* NULL: out of memory, nothing is kept */
	e->depth = p->model.depth ? p->model.depth : 1;
	TAILQ_INIT(&e->live);
	dt_metrics_init(&e->metrics);
	dt_constrain_jobs_init(e);
	rc = dt_engine_gate_init(e);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot start the engine");
		goto fail;
	}
	rc = init_pools(e, err);
	if (rc == 0)
		rc = init_sched(e, err);
	if (rc < 0)
		goto fail;
	dt_schedtrace_begin(p->trace, &e->sched);
	e->spec.max = p->draft;
	rc = dt_engine_buffers_init(e);
	if (rc == 0)
		rc = dt_teller_open(&e->teller, p->max_seqs);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot start the engine");
		goto fail;
	}
	rc = dt_engine_beyond_open(e, err);
	if (rc < 0)
		goto fail;
	e->gate.begun = !p->held;
	rc = -pthread_create(&e->thread, NULL, engine_main, e);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot start the engine's thread");
		goto fail;
	}
	*ret = e;
	return 0;
fail:
	engine_free(e);
	return rc;
}

void dt_engine_close(struct dt_engine *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->gate.mu);
	e->gate.draining = e->gate.stop = true;
	pthread_cond_signal(&e->gate.work);
	pthread_mutex_unlock(&e->gate.mu);
	pthread_join(e->thread, NULL);
	engine_free(e);
}

struct dt_kvmarks *dt_engine_marks(struct dt_engine *e)
{
	return e->pool->marks;
}

const struct dt_engine_params *dt_engine_params(const struct dt_engine *e)
{
	return &e->p;
}

struct dt_metrics *dt_engine_metrics(struct dt_engine *e)
{
	return &e->metrics;
}
/* SPDX-License-Identifier: Apache-2.0 */
