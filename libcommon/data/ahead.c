#include "data/ahead.h"

#include "base/progress.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

struct block {
	int64_t n; /* its first sample, which identifies the block; -1: free */
	void *mem;
	int count;		/* samples in the block */
	int todo, made, active; /* next row to make, rows done, threads working on it */
	struct dt_err err;	/* code 0: no error */
};

struct dt_ahead {
	struct dt_ahead_options o;
	struct block *block;
	int most; /* samples that a block has memory for */
	int blocks, threads;
	pthread_t *thread;
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	int64_t base; /* the newest block asked for in order; -1: none yet */
	struct block *held, *urgent;
	bool stop;
	struct dt_ahead_stats stats;
};

static bool ready(const struct block *b)
{
	return b->made == b->count;
}

static struct block *find(struct dt_ahead *a, int64_t n)
{
	for (int i = 0; i < a->blocks; i++)
		if (a->block[i].n == n)
			return &a->block[i];
	return NULL;
}

/* Whether block n is base, the last one asked for in order, or one of the o.ahead blocks after it. */
static bool wanted(const struct dt_ahead *a, int64_t n)
{
	return a->base >= 0 && n >= a->base && n <= a->base + a->o.ahead * a->o.every &&
	       (n - a->base) % a->o.every == 0;
}

/* Finds a block to hold n: a free one, or one that will not be asked for. NULL: all are in use. */
static struct block *take(struct dt_ahead *a, int64_t n)
{
	struct block *found = NULL;

	for (int i = 0; i < a->blocks; i++) {
		struct block *b = &a->block[i];

		if (b->active || b == a->held || b == a->urgent || (b->n >= 0 && wanted(a, b->n)))
			continue;
		if (!found || b->n < found->n)
			found = b;
	}
	if (found)
		*found = (struct block){.n = n, .mem = found->mem, .count = a->o.count};
	return found;
}

/* The block whose rows to make next: the one the caller waits for, else the nearest. */
static struct block *pick(struct dt_ahead *a)
{
	struct block *found = NULL;

	if (a->urgent && a->urgent->todo < a->urgent->count)
		return a->urgent;
	for (int i = 0; i < a->blocks; i++) {
		struct block *b = &a->block[i];

		if (b->n >= 0 && b->todo < b->count && wanted(a, b->n) && (!found || b->n < found->n))
			found = b;
	}
	return found;
}

/* Makes some rows of b. Call with the lock held; it is released meanwhile. */
static void make_rows(struct dt_ahead *a, int worker, struct block *b)
{
	int at = b->todo, count = b->count - at < a->o.grain ? b->count - at : a->o.grain, rc = 0;
	struct dt_err err = {0};
	double t0;

	b->todo += count;
	b->active++;
	if (!b->err.code) {
		pthread_mutex_unlock(&a->lock);
		t0 = dt_now();
		rc = a->o.make(a->o.ctx, worker, b->n + at, at, count, b->mem, &err);
		t0 = dt_now() - t0;
		pthread_mutex_lock(&a->lock);
		a->stats.samples += rc < 0 ? 0 : count;
		a->stats.busy_s += t0;
	}
	if (rc < 0 && !b->err.code) {
		b->err = err;
		b->err.code = rc;
	}
	b->active--;
	b->made += count;
	if (ready(b) || !b->active)
		pthread_cond_broadcast(&a->done);
}

struct start {
	struct dt_ahead *a;
	int worker;
};

static void *run(void *arg)
{
	struct start s = *(struct start *)arg;
	struct dt_ahead *a = s.a;

	free(arg);
	pthread_mutex_lock(&a->lock);
	while (!a->stop) {
		struct block *b = pick(a);

		if (b)
			make_rows(a, s.worker, b);
		else
			pthread_cond_wait(&a->work, &a->lock);
	}
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static int start_threads(struct dt_ahead *a, struct dt_err *err)
{
	for (; a->threads < a->o.workers; a->threads++) {
		struct start *s = malloc(sizeof(*s));
		int rc;

		if (!s)
			return dt_err_sys(err, -ENOMEM, "cannot start a thread of the loader");
		*s = (struct start){a, a->threads};
		rc = pthread_create(&a->thread[a->threads], NULL, run, s);
		if (rc) {
			free(s);
			return dt_err_sys(err, -rc, "cannot start a thread of the loader");
		}
	}
	return 0;
}

int dt_ahead_open(const struct dt_ahead_options *o, struct dt_ahead **ret, struct dt_err *err)
{
	size_t bytes = (o->block_bytes + 63) / 64 * 64;
	struct dt_ahead *a;
	int rc;

	if (o->count < 1 || o->grain < 1 || o->every < 1 || o->workers < 0 || o->ahead < 0)
		return dt_err_set(err, -EINVAL, "invalid loader: %d samples every %lld by %d threads",
				  o->count, (long long)o->every, o->workers);
	a = calloc(1, sizeof(*a));
	if (!a)
		return dt_err_sys(err, -ENOMEM, "cannot make a loader");
	a->o = *o;
	a->most = o->count;
	if (!o->workers)
		a->o.ahead = 0;
	a->base = -1;
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->work, NULL);
	pthread_cond_init(&a->done, NULL);
	a->block = calloc((size_t)a->o.ahead + 2, sizeof(*a->block));
	a->thread = calloc((size_t)o->workers + 1, sizeof(*a->thread));
	rc = a->block && a->thread ? 0 : -ENOMEM;
	for (; rc == 0 && a->blocks < a->o.ahead + 2; a->blocks++) {
		struct block *b = &a->block[a->blocks];

		b->n = -1;
		b->mem = aligned_alloc(64, bytes ? bytes : 64);
		if (!b->mem) {
			rc = -ENOMEM;
			break;
		}
	}
	rc = rc < 0 ? dt_err_sys(err, rc, "cannot make a loader of %d blocks of %zu bytes", a->o.ahead + 2,
				 bytes)
		    : start_threads(a, err);
	if (rc < 0) {
		dt_ahead_close(a);
		return rc;
	}
	*ret = a;
	return 0;
}

void dt_ahead_close(struct dt_ahead *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->stop = true;
	pthread_cond_broadcast(&a->work);
	pthread_mutex_unlock(&a->lock);
	for (int i = 0; i < a->threads; i++)
		pthread_join(a->thread[i], NULL);
	for (int i = 0; i < a->blocks; i++)
		free(a->block[i].mem);
	free(a->block);
	free(a->thread);
	pthread_cond_destroy(&a->work);
	pthread_cond_destroy(&a->done);
	pthread_mutex_destroy(&a->lock);
	free(a);
}

/*
 * Assigns blocks to those that follow n. A request for an earlier block, as the last stage of a pipeline
 * makes for samples that the first stage has had, leaves the order unchanged; one from far behind restarts
 * it.
 */
static void plan(struct dt_ahead *a, int64_t n)
{
	int64_t reach = a->o.every * (a->o.ahead + 1);

	if (a->base < 0 || n >= a->base || n + reach < a->base)
		a->base = n;
	for (int k = 1; k <= a->o.ahead; k++) {
		int64_t m = a->base + k * a->o.every;

		if (a->o.end && m >= a->o.end)
			break;
		if (!find(a, m) && !take(a, m))
			break;
	}
	pthread_cond_broadcast(&a->work);
}

/* Finds block n. If it has too few samples, as it was started before count grew, it is dropped. */
static struct block *whole(struct dt_ahead *a, int64_t n)
{
	struct block *b = find(a, n);

	if (!b || b->count >= a->o.count)
		return b;
	b->todo = b->count; /* no thread starts another part of it */
	while (b->active)
		pthread_cond_wait(&a->done, &a->lock);
	b->n = -1;
	return NULL;
}

void dt_ahead_expect(struct dt_ahead *a, int count)
{
	pthread_mutex_lock(&a->lock);
	a->o.count = count < a->most ? count : a->most;
	pthread_mutex_unlock(&a->lock);
}

int dt_ahead_get(struct dt_ahead *a, int64_t n, const void **ret, struct dt_err *err)
{
	struct block *b;
	double t0 = dt_now();
	int rc = 0;

	if (n < 0)
		return dt_err_set(err, -EINVAL, "sample %lld does not exist", (long long)n);
	pthread_mutex_lock(&a->lock);
	a->held = NULL;
	while (!(b = whole(a, n)) && !(b = take(a, n)))
		pthread_cond_wait(&a->done, &a->lock);
	a->urgent = b;
	plan(a, n);
	while (!ready(b)) {
		if (b->todo < b->count) /* the caller helps, as worker number `workers` */
			make_rows(a, a->o.workers, b);
		else
			pthread_cond_wait(&a->done, &a->lock);
	}
	a->urgent = NULL;
	if (b->err.code) {
		rc = b->err.code;
		if (err)
			*err = b->err;
		b->n = -1; /* another request makes it again */
	} else {
		a->held = b;
		*ret = b->mem;
	}
	a->stats.waited_s += dt_now() - t0;
	pthread_mutex_unlock(&a->lock);
	return rc;
}

void dt_ahead_stats(struct dt_ahead *a, struct dt_ahead_stats *ret)
{
	pthread_mutex_lock(&a->lock);
	*ret = a->stats;
	pthread_mutex_unlock(&a->lock);
}
/* SPDX-License-Identifier: Apache-2.0 */
