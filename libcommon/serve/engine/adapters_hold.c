/* Loading and eviction of adapters. */
#include "base/cond.h"
#include "base/progress.h"
#include "serve/engine/adapters_priv.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#define LOOK_S	  0.2 /* seconds between checks whether a waiting request was cancelled */
#define READ_NICE 10

struct job {
	struct dt_served_adapter *s;
	struct dt_infer_adapter **ret;
	struct dt_err *err;
	int rc;
};

/*
 * The thread has low priority: a forward pass waits for its slowest thread, so taking a processor from one of
 * them would slow down all streams.
 */
static void *read_main(void *arg)
{
	struct job *j = arg;
	const struct dt_adapters_params *p = &j->s->of->p;

	setpriority(PRIO_PROCESS, (id_t)gettid(), READ_NICE); /* of this thread alone */
	j->rc = dt_infer_adapter_open(j->ret, p->model, j->s->path, p->base[0] ? p->base : NULL, j->err);
	return NULL;
}

int dt_adapters_read(struct dt_served_adapter *s, struct dt_infer_adapter **ret, struct dt_err *err)
{
	struct job j = {.s = s, .ret = ret, .err = err};
	pthread_t thread;
	int rc;

	pthread_mutex_lock(&s->of->reading);
	rc = -pthread_create(&thread, NULL, read_main, &j);
	if (rc < 0) {
		dt_err_sys(err, rc, "cannot read '%s'", s->path);
	} else {
		pthread_join(thread, NULL);
		rc = j.rc;
	}
	pthread_mutex_unlock(&s->of->reading);
	return rc;
}

void dt_adapters_evict(struct dt_served_adapter *s)
{
	if (!s->in)
		return;
	s->of->bytes -= dt_infer_adapter_bytes(s->in);
	s->of->in_memory--;
	dt_infer_adapter_close(s->in);
	s->in = NULL;
	s->leaving = false;
	pthread_cond_broadcast(&s->of->changed);
}

/* The loaded adapter that was taken longest ago: unheld, or (held) held and not yet leaving. */
static struct dt_served_adapter *oldest(struct dt_adapters *a, bool held)
{
	struct dt_served_adapter *r = NULL, *s;

	TAILQ_FOREACH (s, &a->all, in_list)
		if (s->in && (s->holds > 0) == held && !(held && s->leaving) && (!r || s->used < r->used))
			r = s;
	return r;
}

/* Makes room for one more adapter if possible now. Call with the lock held. */
static bool make_place(struct dt_adapters *a)
{
	struct dt_served_adapter *s;

	if (a->in_memory < a->p.resident)
		return true;
	s = oldest(a, false);
	if (!s)
		return false;
	dt_adapters_evict(s);
	a->evictions++;
	return true;
}

/* Adapters that wait for a place, less the free places. Call with the lock held. */
static int places_short(const struct dt_adapters *a)
{
	int n = a->in_memory - a->p.resident;
	const struct dt_served_adapter *s;

	TAILQ_FOREACH (s, &a->all, in_list)
		n += s->queued > 0 && !s->in && !s->loading;
	return n;
}

/* Marks as many held adapters as leaving as places are missing. Call with the lock held. */
static void ask_to_leave(struct dt_adapters *a)
{
	const int wanted = places_short(a);
	int leaving = 0;
	struct dt_served_adapter *s;

	TAILQ_FOREACH (s, &a->all, in_list)
		leaving += s->leaving;
	while (leaving++ < wanted && (s = oldest(a, true)))
		s->leaving = true;
}

/*
 * Waits a short time; -ETIMEDOUT or -ECANCELED if the request must not wait any longer. Call with the lock
 * held.
 */
static int wait_more(struct dt_served_adapter *s, double deadline, const atomic_bool *cancelled,
		     struct dt_err *err)
{
	if (cancelled && atomic_load(cancelled))
		return dt_err_set(err, -ECANCELED, "the request was cancelled");
	if (deadline > 0 && dt_now() > deadline)
		return dt_err_set(err, -ETIMEDOUT,
				  "adapter '%s' was not loaded in time: all places in memory are in use",
				  s->name);
	s->waiters++;
	dt_cond_wait_s(&s->of->changed, &s->of->mu, LOOK_S);
	s->waiters--;
	return 0;
}

/*
 * Waits for a place for s, in order of arrival; another thread may load s in the meantime. Call with the lock
 * held.
 */
static int get_place(struct dt_served_adapter *s, double deadline, const atomic_bool *cancelled,
		     struct dt_err *err)
{
	struct dt_adapters *a = s->of;
	struct dt_place_waiter me;
	int rc = 0;

	TAILQ_INSERT_TAIL(&a->queue, &me, in_list);
	s->queued++;
	while (rc == 0 && !s->in && !s->loading && (TAILQ_FIRST(&a->queue) != &me || !make_place(a))) {
		ask_to_leave(a);
		rc = wait_more(s, deadline, cancelled, err);
	}
	TAILQ_REMOVE(&a->queue, &me, in_list);
	s->queued--;
	pthread_cond_broadcast(&a->changed); /* wakes the next in the queue */
	return rc;
}

/* Loads s into its place. Call with the lock held; it is released while reading. */
static int load(struct dt_served_adapter *s, struct dt_err *err)
{
	struct dt_adapters *a = s->of;
	struct dt_infer_adapter *in = NULL;
	int rc;

	s->loading = true;
	a->in_memory++;
	pthread_mutex_unlock(&a->mu);
	rc = dt_adapters_read(s, &in, err);
	if (rc == 0 && dt_infer_adapter_sum(in) != s->sum) { /* cached blocks used the old weights */
		dt_infer_adapter_close(in);
		rc = dt_err_set(err, -EINVAL, "the files of adapter '%s' have changed: load it again",
				s->name);
	}
	pthread_mutex_lock(&a->mu);
	s->loading = false;
	if (rc < 0) {
		a->in_memory--;
	} else {
		s->in = in;
		a->bytes += dt_infer_adapter_bytes(in);
		a->loads++;
	}
	pthread_cond_broadcast(&a->changed);
	return rc;
}

int dt_adapters_hold(struct dt_served_adapter *s, double deadline, const atomic_bool *cancelled,
		     struct dt_err *err)
{
	struct dt_adapters *a = s->of;
	int rc = 0;

	pthread_mutex_lock(&a->mu);
	while (rc == 0 && (!s->in || s->leaving)) {
		if (s->loading || s->in)
			rc = wait_more(s, deadline, cancelled, err);
		else if ((rc = get_place(s, deadline, cancelled, err)) == 0 && !s->in && !s->loading)
			rc = load(s, err);
	}
	if (rc == 0) {
		s->holds++;
		s->used = dt_now();
	}
	pthread_mutex_unlock(&a->mu);
	return rc;
}

void dt_adapters_release(struct dt_served_adapter *s)
{
	struct dt_adapters *a = s->of;

	pthread_mutex_lock(&a->mu);
	if (--s->holds == 0) {
		if (s->leaving && places_short(a) <= 0) /* its place is no longer needed */
			s->leaving = false;
		if (s->leaving || !s->listed) {
			a->evictions += s->leaving;
			dt_adapters_evict(s);
		}
		pthread_cond_broadcast(&a->changed);
	}
	pthread_mutex_unlock(&a->mu);
}
/* SPDX-License-Identifier: Apache-2.0 */
