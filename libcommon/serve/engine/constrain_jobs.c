/*
 * Threads that work on grammars: they read tokens and compute masks where the result is not remembered, so
 * that the engine's thread never does. A job is what must be done before a request's next token can be drawn;
 * it runs while the model computes that token's logits. If it takes longer, the engine discards the row and
 * leaves the request out of further steps (dt_seq.held), and computes the row again when the job is done.
 *
 * Jobs of one grammar run one after the other, because they share its parser.
 */
#include "base/cond.h"
#include "base/progress.h"
#include "serve/engine/priv.h"

#include <errno.h>
#include <stdlib.h>

#define WAIT_ALONE 0.05 /* seconds a step waits for the job of the only request */

/* The first job whose grammar no thread works on; NULL: there is none. Call with the jobs locked. */
static struct dt_serve_req *next_job(struct dt_constrain_jobs *j)
{
	struct dt_serve_req *r;

	TAILQ_FOREACH (r, &j->queue, in_jobs) {
		bool taken = false;

		for (int i = 0; i < j->nthreads; i++)
			taken |= j->at[i] == r->ask->grammar;
		if (!taken)
			return r;
	}
	return NULL;
}

/* Call with the jobs locked. */
static void unqueue(struct dt_constrain_jobs *j, struct dt_serve_req *r)
{
	TAILQ_REMOVE(&j->queue, r, in_jobs);
	r->queued = false;
	j->nqueued--;
}

static void tell_engine(struct dt_engine *e)
{
	pthread_mutex_lock(&e->gate.mu);
	e->gate.constrained = true;
	pthread_cond_signal(&e->gate.work);
	pthread_mutex_unlock(&e->gate.mu);
}

/* Call with the jobs locked. */
static void run(struct dt_engine *e, struct dt_serve_req *r, int thread)
{
	struct dt_constrain_jobs *j = &e->jobs;
	struct dt_call *c = r->call;

	unqueue(j, r);
	j->at[thread] = r->ask->grammar;
	pthread_mutex_unlock(&j->mu);
	dt_constrain_work(e, r);
	atomic_store(&r->working, false);
	tell_engine(e);
	dt_call_drop(c);
	pthread_mutex_lock(&j->mu);
	j->at[thread] = NULL;
	if (!TAILQ_EMPTY(&j->queue)) /* another thread may have passed over jobs of this grammar */
		pthread_cond_signal(&j->work);
}

static void *jobs_main(void *arg)
{
	struct dt_engine *e = arg;
	struct dt_constrain_jobs *j = &e->jobs;
	int thread;

	pthread_mutex_lock(&j->mu);
	thread = j->started++;
	while (!j->stop) {
		struct dt_serve_req *r = next_job(j);

		if (r) {
			run(e, r, thread);
			continue;
		}
		j->idle++;
		pthread_cond_wait(&j->work, &j->mu);
		j->idle--;
	}
	pthread_mutex_unlock(&j->mu);
	return NULL;
}

void dt_constrain_jobs_init(struct dt_engine *e)
{
	struct dt_constrain_jobs *j = &e->jobs;

	pthread_mutex_init(&j->mu, NULL);
	pthread_mutex_init(&j->order_mu, NULL);
	pthread_cond_init(&j->work, NULL);
	TAILQ_INIT(&j->queue);
}

void dt_constrain_jobs_release(struct dt_engine *e)
{
	struct dt_constrain_jobs *j = &e->jobs;

	pthread_mutex_lock(&j->mu);
	j->stop = true;
	pthread_cond_broadcast(&j->work);
	pthread_mutex_unlock(&j->mu);
	for (int i = 0; i < j->nthreads; i++)
		pthread_join(j->thread[i], NULL);
	pthread_cond_destroy(&j->work);
	pthread_mutex_destroy(&j->order_mu);
	pthread_mutex_destroy(&j->mu);
}

void dt_constrain_give(struct dt_engine *e, struct dt_serve_req *r)
{
	struct dt_constrain_jobs *j = &e->jobs;
	int rc = 0;

	pthread_mutex_lock(&j->mu);
	if (j->nqueued >= j->idle && j->nthreads < DT_CONSTRAIN_THREADS) {
		rc = -pthread_create(&j->thread[j->nthreads], NULL, jobs_main, e);
		j->nthreads += rc == 0;
	}
	if (j->nthreads > 0) {
		dt_call_ref(r->call);
		r->waiting = r->queued = true;
		atomic_store(&r->working, true);
		TAILQ_INSERT_TAIL(&j->queue, r, in_jobs);
		j->nqueued++;
		pthread_cond_signal(&j->work);
		e->constrained++;
	} else {
		r->unmasked = rc;
	}
	pthread_mutex_unlock(&j->mu);
}

void dt_constrain_retire(struct dt_engine *e, struct dt_serve_req *r)
{
	struct dt_constrain_jobs *j = &e->jobs;
	bool queued;

	if (!r->waiting)
		return;
	pthread_mutex_lock(&j->mu);
	queued = r->queued;
	if (queued)
		unqueue(j, r);
	pthread_mutex_unlock(&j->mu);
	r->waiting = false;
	e->constrained--;
	if (queued) /* else its thread drops the call */
		dt_call_drop(r->call);
}

/* Waits for r's job, unless something else can be done. */
static void wait_alone(struct dt_engine *e, const struct dt_serve_req *r)
{
	struct dt_engine_gate *g = &e->gate;
	const double until = dt_now() + WAIT_ALONE;

	pthread_mutex_lock(&g->mu);
	while (atomic_load(&r->working) && TAILQ_EMPTY(&g->inbox) && !g->stop &&
	       !atomic_load(&r->call->cancelled) && dt_cond_wait_until(&g->work, &g->mu, until) == 0)
		continue;
	pthread_mutex_unlock(&g->mu);
}

bool dt_constrain_ready(struct dt_engine *e, struct dt_serve_req *r)
{
	if (!r->waiting)
		return true;
	if (e->sched.nrunning + e->sched.waiting == 1)
		wait_alone(e, r);
	if (atomic_load(&r->working))
		return false;
	r->waiting = false;
	e->constrained--;
	return true;
}

void dt_constrain_hold(struct dt_serve_req *r)
{
	r->seq.computed = r->seq.known - 1;
	r->seq.draft = 0;
	r->seq.held = true;
}

bool dt_constrain_ends(struct dt_engine *e, struct dt_serve_req *r)
{
	const bool ends = r->over || r->unmasked; /* ending r may free it */
	struct dt_err err;

	if (r->over) {
		dt_engine_retire(e, r, DT_FINISH_STOP);
	} else if (r->unmasked == -ENOMEM) {
		dt_err_set(&err, -ENOMEM,
			   "cannot follow the grammar of the response format: it is too ambiguous");
		dt_engine_retire_error(e, r, &err);
	} else if (r->unmasked) {
		dt_err_sys(&err, r->unmasked, "cannot start a thread for the grammar of the response format");
		dt_engine_retire_error(e, r, &err);
	}
	return ends;
}

void dt_constrain_collect(struct dt_engine *e)
{
	struct dt_serve_req *r, *next;

	for (r = e->constrained > 0 ? TAILQ_FIRST(&e->live) : NULL; r; r = next) {
		next = TAILQ_NEXT(r, in_list);
		if (!r->waiting || r->seq.busy || atomic_load(&r->working))
			continue;
		r->waiting = r->seq.held = false;
		e->constrained--;
		dt_constrain_ends(e, r);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
