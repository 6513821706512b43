#include "rl/actors_priv.h"

#include "base/launch.h"
#include "base/progress.h"
#include "plan/draws.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The groups that an actor is asked for at a time: [first, first + n) of a batch; n 0: it is idle. */
struct ask {
	struct dt_batch *b;
	int64_t first, n;
	double since;
};

struct dt_actors {
	int n, fd; /* fd: the shared memory's */
	struct actors_region *shared;
	struct dt_params table;
	const struct dt_log *log;
	double patience; /* timeout of a request in seconds */
	pid_t launcher;	 /* the learner's parent process */
	int wake;	 /* wakes the thread */
	pthread_t thread;
	bool runs;
	/* used by the thread only */
	struct dt_crew *crew;
	struct ask ask[DT_ACTORS_MOST];
	/* guarded by lock */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct dt_batch *first; /* posted batches with groups not asked for yet */
	bool stop;
	int rc; /* the thread's error; it has ended */
	struct dt_err err;
};

/* ---- weights ---- */

/* Whether an actor still reads copy `which`; false if the thread, which restarts dead actors, has failed. */
static bool still_reads(struct dt_actors *a, int number, int which)
{
	bool fails;

	if (atomic_load(&a->shared->reads[number]) != 1 + which)
		return false;
	pthread_mutex_lock(&a->lock);
	fails = a->rc < 0;
	pthread_mutex_unlock(&a->lock);
	return !fails;
}

int dt_actors_give(struct dt_actors *a, const void *const *weights, int64_t step, struct dt_err *err)
{
	struct actors_region *r = a->shared;
	const int to = atomic_load(&r->newest) == 0;
	const size_t esz = dt_dtype_size(r->o.compute);

	for (int k = 0; k < a->n; k++)
		while (still_reads(a, k, to))
			usleep(200);
#pragma omp parallel for schedule(dynamic) num_threads(r->o.threads)
	for (int i = 0; i < a->table.n; i++)
		memcpy((char *)r + actors_place(r, &a->table, to, i), weights[i],
		       (size_t)dt_param_numel(&a->table.p[i]) * esz);
	atomic_store(&r->step[to], step);
	atomic_store(&r->newest, to);
	return 0;
}

int64_t dt_actors_step(const struct dt_actors *a)
{
	const int newest = atomic_load(&a->shared->newest);

	return newest < 0 ? -1 : atomic_load(&a->shared->step[newest]);
}

/* ---- processes ---- */

/*
 * Lets an actor use all processors of the launcher, which has bound this rank to some of them. The learner's
 * parent is the launcher, unless this program was started by hand.
 */
static void unbind(pid_t launcher)
{
	cpu_set_t set;
	bool launched = false;

	for (int i = 0; dt_launcher(i); i++)
		launched |= getenv(dt_launcher(i)->rank) != NULL;
	if (launched && sched_getaffinity(launcher, sizeof(set), &set) == 0)
		sched_setaffinity(0, sizeof(set), &set);
}

static int fd_stays(int fd)
{
	return fcntl(fd, F_SETFD, fcntl(fd, F_GETFD) & ~FD_CLOEXEC);
}

/* In the new process: runs this program again as an actor, since a fork alone would share too much. */
static int be_actor(void *arg, int number, int fd, struct dt_err *err)
{
	struct dt_actors *a = arg;
	char env[64], name[32];

	prctl(PR_SET_PDEATHSIG, 0);		    /* it refers to the starting thread, which ends first */
	atomic_store(&a->shared->reads[number], 0); /* its predecessor may have died while reading a copy */
	unbind(a->launcher);
	snprintf(env, sizeof(env), "%d:%d:%d", fd, a->fd, number);
	snprintf(name, sizeof(name), "dt-train-actor-%d", number);
	if (fd_stays(fd) < 0 || fd_stays(a->fd) < 0 || setenv(DT_ACTOR_ENV, env, 1) < 0)
		return dt_err_sys(err, -errno, "cannot start an actor");
	execl("/proc/self/exe", name, (char *)NULL);
	return dt_err_sys(err, -errno, "cannot start an actor");
}

static void *foreman(void *arg);

int dt_actors_open(struct dt_actors **ret, const struct dt_answerer_opts *o, const struct dt_actors_opts *of,
		   struct dt_err *err)
{
	struct dt_actors *a = calloc(1, sizeof(*a));
	const struct dt_crew_opts crew = {.n = of->n, .work = be_actor, .arg = a, .patience = of->patience};
	int rc;

	*ret = a;
	if (!a)
		return dt_err_sys(err, -ENOMEM, "cannot start actors");
	a->n = of->n;
	a->fd = -1;
	a->log = of->log;
	a->patience = of->patience;
	a->launcher = getppid();
	a->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	pthread_mutex_init(&a->lock, NULL);
	pthread_cond_init(&a->changed, NULL);
	rc = a->wake < 0 ? dt_err_sys(err, -errno, "cannot start actors")
			 : dt_model_params(&o->config, &a->table, err);
	if (rc == 0)
		rc = actors_share(&a->table, o, &a->fd, &a->shared, err);
	if (rc == 0)
		rc = dt_crew_open(&a->crew, &crew, err);
	if (rc == 0 && (rc = -pthread_create(&a->thread, NULL, foreman, a)) < 0)
		dt_err_sys(err, rc, "cannot start actors");
	a->runs = rc == 0;
	return rc;
}

static void wake(struct dt_actors *a)
{
	const uint64_t one = 1;

	if (write(a->wake, &one, sizeof(one)) < 0) /* the counter is full: the thread has been woken */
		return;
}

void dt_actors_close(struct dt_actors *a)
{
	if (!a)
		return;
	if (a->runs) {
		pthread_mutex_lock(&a->lock);
		a->stop = true;
		pthread_mutex_unlock(&a->lock);
		wake(a);
		pthread_join(a->thread, NULL);
	}
	dt_crew_close(a->crew);
	if (a->shared)
		munmap(a->shared, a->shared->bytes);
	if (a->fd >= 0)
		close(a->fd);
	if (a->wake >= 0)
		close(a->wake);
	dt_params_release(&a->table);
	pthread_mutex_destroy(&a->lock);
	pthread_cond_destroy(&a->changed);
	free(a);
}

void dt_actors_post(struct dt_actors *a, struct dt_batch *b)
{
	struct dt_batch **at = &a->first;

	b->asked = b->done = 0;
	b->next = NULL;
	if (b->n == 0) /* nobody waits for it, so it must not stay in the list */
		return;
	pthread_mutex_lock(&a->lock);
	while (*at)
		at = &(*at)->next;
	*at = b;
	pthread_mutex_unlock(&a->lock);
	wake(a);
}

int dt_actors_wait(struct dt_actors *a, struct dt_batch *b, struct dt_err *err)
{
	int rc;

	pthread_mutex_lock(&a->lock);
	while (b->done < b->n && a->rc == 0)
		pthread_cond_wait(&a->changed, &a->lock);
	rc = b->done < b->n ? a->rc : 0;
	if (rc < 0)
		*err = a->err;
	pthread_mutex_unlock(&a->lock);
	return rc;
}

/* ---- the thread that distributes work ---- */

/* -EPIPE is not an error: the actor will be found dead, restarted and asked again. */
static int send_ask(struct dt_actors *a, int number, struct dt_err *err)
{
	struct ask *k = &a->ask[number];
	struct dt_wire w = {.kind = ACTORS_ASK};
	int64_t *index = malloc((size_t)k->n * sizeof(*index));
	struct dt_part part = {index, (size_t)k->n * sizeof(*index)};
	int rc;

	if (!index)
		return dt_err_sys(err, -ENOMEM, "cannot ask an actor");
	k->since = dt_now();
	for (int64_t i = 0; i < k->n; i++)
		index[i] = k->b->group[k->first + i].index;
	rc = dt_wire_send(dt_crew_fd(a->crew, number), &w, &part, 1, err);
	free(index);
	return rc == -EPIPE ? 0 : rc;
}

/* Takes prompts that nobody was asked for: enough to fill an engine, or fewer so that all actors get some. */
static struct ask take_work(struct dt_actors *a)
{
	const int64_t fills = DT_DRAWS_SEQS / a->shared->o.sample.group;
	struct ask k = {0};

	pthread_mutex_lock(&a->lock);
	if ((k.b = a->first) != NULL) {
		const int64_t even = (k.b->n + a->n - 1) / a->n, left = k.b->n - k.b->asked;

		k.first = k.b->asked;
		k.n = fills < even ? fills : even;
		k.n = k.n < 1 ? 1 : k.n;
		k.n = k.n < left ? k.n : left;
		k.b->asked += k.n;
		if (k.b->asked == k.b->n)
			a->first = k.b->next;
	}
	pthread_mutex_unlock(&a->lock);
	return k;
}

static int ask_idle(struct dt_actors *a, struct dt_err *err)
{
	int rc = 0;

	for (int k = 0; k < a->n && rc == 0; k++) {
		if (!a->ask[k].n)
			a->ask[k] = take_work(a);
		else
			continue;
		if (a->ask[k].n)
			rc = send_ask(a, k, err);
	}
	return rc;
}

/* Parses the groups that an actor was asked for, one per line. */
static int take_text(struct dt_actors *a, const struct ask *k, const char *text, struct dt_err *err)
{
	for (int64_t i = 0; i < k->n; i++) {
		struct dt_group *g = &k->b->group[k->first + i];
		int rc = dt_groups_next(&text, a->shared->o.config.vocab, g, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

/* Returns 0 also if the actor has died meanwhile. */
static int take_answers(struct dt_actors *a, int number, const struct dt_wire *w, struct dt_err *err)
{
	struct ask *k = &a->ask[number];
	char *text = w->bytes < (1ull << 32) ? malloc((size_t)w->bytes + 1) : NULL;
	int rc = text ? dt_crew_body(a->crew, number, text, (size_t)w->bytes, err)
		      : dt_err_sys(err, -ENOMEM, "cannot take answers of an actor");

	if (rc > 0 && (w->kind != ACTORS_ANSWERS || !k->n))
		rc = dt_err_set(err, -EPROTO, "actor %d sent an unexpected message", number);
	if (rc > 0) {
		text[w->bytes] = '\0';
		rc = take_text(a, k, text, err);
		pthread_mutex_lock(&a->lock);
		k->b->done += rc == 0 ? k->n : 0;
		k->b->draw_s += w->number[0];
		k->b->score_s += w->number[1];
		pthread_cond_broadcast(&a->changed);
		pthread_mutex_unlock(&a->lock);
		*k = (struct ask){0};
	}
	free(text);
	return rc;
}

/* Kills actors that exceed the timeout; they are then found dead. */
static void end_late(struct dt_actors *a)
{
	for (int k = 0; k < a->n; k++)
		if (a->patience > 0 && a->ask[k].n && dt_now() - a->ask[k].since > a->patience) {
			dt_log_msg(a->log, "actor %d has not answered for %g s", k, a->patience);
			a->ask[k].since = INFINITY;
			dt_crew_kill(a->crew, k);
		}
}

/* Handles one event. */
static int turn(struct dt_actors *a, struct dt_err *err)
{
	enum dt_crew_event what;
	struct dt_wire w;
	uint64_t n;
	int number, rc = ask_idle(a, err);

	if (rc < 0)
		return rc;
	end_late(a);
	rc = dt_crew_wait(a->crew, a->wake, &what, &number, &w, err);
	if (rc < 0)
		return rc == -EAGAIN ? 0 : rc;
	if (what == DT_CREW_OTHER)
		return read(a->wake, &n, sizeof(n)) < 0 && errno != EAGAIN
			       ? dt_err_sys(err, -errno, "cannot wait for actors")
			       : 0;
	if (what == DT_CREW_SAYS)
		return take_answers(a, number, &w, err);
	dt_log_msg(a->log, "actor %d ended and was restarted", number);
	return a->ask[number].n ? send_ask(a, number, err) : 0;
}

static void *foreman(void *arg)
{
	struct dt_actors *a = arg;
	struct dt_err err = {0};
	bool stop;
	int rc;

	do {
		rc = turn(a, &err);
		pthread_mutex_lock(&a->lock);
		stop = a->stop || rc < 0;
		a->rc = rc;
		a->err = err;
		pthread_cond_broadcast(&a->changed);
		pthread_mutex_unlock(&a->lock);
	} while (!stop);
	return NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
