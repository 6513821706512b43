#include "kernels/cuda/emulate/queue.h"
#include "kernels/cuda/emulate/emulate.h"
#include "kernels/cuda/emulate/late.h"
#include "kernels/cuda/emulate/memory.h"
#include "kernels/cuda/emulate/record.h"
#include "kernels/cuda/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { LAUNCH, COPY, SET, WAIT };

struct step {
	enum kind kind;
	uint64_t begun; /* what libraries had begun in the stream */
	struct dt_emu_launch launch;
	void *to;
	const void *from;
	size_t n;
	int byte;
	struct event *of; /* WAIT: a private copy of the event at that time */
	struct step *next;
};

struct stream {
	struct step *first, **last;
	uint64_t given, done; /* steps queued and run */
	struct dt_emu_late late;
	uint64_t begun, ended; /* work of libraries in this stream: dt_emu_stream_begin */
	bool clears;	       /* it has queued a clear */
	struct stream *next;   /* list of all streams ever opened */
};

struct event {
	struct stream *in;	     /* NULL: never recorded */
	uint64_t begun, given, sent; /* counters of the stream when it was recorded */
	int asked;		     /* queries so far; the first two may answer "not yet" */
};

static pthread_mutex_t queues; /* protects lists and the running of steps; a waiter releases it */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t libraries = PTHREAD_MUTEX_INITIALIZER; /* protects begun and ended */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static struct stream *all;
static enum { EARLY, LATE, MIXED } when; /* when steps run */

static void open_queues(void)
{
	const char *how = getenv("DT_EMULATED_QUEUES");

	when = !how ? EARLY : !strcmp(how, "mixed") ? MIXED : LATE;
	pthread_mutex_init(&queues, NULL);
}

static bool is_late(const struct stream *s)
{
	return when == LATE || (when == MIXED && s->clears);
}

static void enter(void)
{
	pthread_once(&once, open_queues);
	pthread_mutex_lock(&queues);
}

static void leave(void)
{
	pthread_mutex_unlock(&queues);
}

/*
 * Waits until the libraries' work begun in the stream up to then has ended; without wait, returns whether it
 * has. Others may run steps meanwhile: a rank that waits for another checks whether that is alive.
 */
static bool settle(struct stream *s, uint64_t begun, bool wait)
{
	bool over;

	pthread_mutex_lock(&libraries);
	if (wait && s->ended < begun) {
		leave();
		while (s->ended < begun)
			pthread_cond_wait(&ended, &libraries);
		pthread_mutex_unlock(&libraries);
		enter();
		pthread_mutex_lock(&libraries);
	}
	over = s->ended >= begun;
	pthread_mutex_unlock(&libraries);
	return over;
}

static bool run_to(struct stream *s, uint64_t upto, bool wait);

/* Completes everything in front of an event. */
static bool reach(const struct event *e, bool wait)
{
	if (!e->in)
		return true;
	if (!run_to(e->in, e->given, wait) || !settle(e->in, e->begun, wait))
		return false;
	dt_emu_late_arrive(&e->in->late, e->sent);
	return true;
}

/* Opens only what a copy touches: each region takes a system call. */
static void open_for(const struct step *x, bool open)
{
	dt_emu_open_at(x->to, x->n, open);
	if (x->kind != SET)
		dt_emu_open_at(x->from, x->n, open);
}

static int run_step(struct stream *s, const struct step *x)
{
	if (x->kind == LAUNCH)
		return dt_emu_run(&x->launch);
	if (x->kind == WAIT)
		return 0;
	open_for(x, true);
	if (x->kind == SET)
		memset(x->to, x->byte, x->n);
	else if (is_late(s) || dt_emu_is_device(x->to, x->n))
		memmove(x->to, x->from, x->n);
	else
		dt_emu_late_send(&s->late, x->to, x->from, x->n);
	open_for(x, false);
	return 0;
}

static void drop(struct step *x)
{
	if (x->launch.drop)
		x->launch.drop(x->launch.arg);
	free(x->of);
	free(x);
}

/* Runs steps of the stream up to that number. False: it would have to wait for libraries. */
static bool run_to(struct stream *s, uint64_t upto, bool wait)
{
	while (s->done < upto) {
		struct step *x = s->first;
		const struct event of = x->of ? *x->of : (struct event){};
		const uint64_t at = s->done, begun = x->begun;
		const bool waits = x->kind == WAIT;

		/*
		 * Waiting for an event does no work itself: library work before it continues, as ranks that
		 * communicate need. While this waits, another thread may run the step.
		 */
		if (waits ? !reach(&of, wait) : !settle(s, begun, wait))
			return false;
		if (s->done != at)
			continue;
		if (run_step(s, x) < 0)
			dt_emu_die("a step failed that was well when it was given");
		s->first = x->next;
		if (!s->first)
			s->last = &s->first;
		s->done++;
		drop(x);
	}
	return true;
}

static void give(struct stream *s, const struct step &what)
{
	struct step *x = (struct step *)malloc(sizeof *x);

	if (!x)
		dt_emu_die("no memory for a step");
	*x = what;
	x->next = NULL;
	enter();
	x->begun = s->begun;
	*s->last = x;
	s->last = &x->next;
	s->given++;
	s->clears |= what.kind == SET;
	if (!is_late(s))
		run_to(s, s->given, true);
	leave();
}

void dt_emu_finish_all(void)
{
	enter();
	for (struct stream *s = all; s; s = s->next)
		run_to(s, s->given, false);
	leave();
}

/* ---- what the device calls ---- */

void dt_emu_give(void *stream, const struct dt_emu_launch *l)
{
	struct step x = {};

	x.kind = LAUNCH;
	x.launch = *l;
	give((struct stream *)stream, x);
}

int dt_gpu_copy(void *to, const void *from, size_t n, void *stream)
{
	struct step x = {};

	if (!n)
		return 0;
	if (dt_emu_recording() && dt_emu_record_copy(to, from, 0, n))
		return 0;
	if (!dt_emu_is_device(to, n) && !dt_emu_is_device(from, n)) {
		fprintf(stderr, "emulated copy of %zu bytes: neither side is the card's\n", n);
		return -EIO;
	}
	x.kind = COPY;
	x.to = to;
	x.from = from;
	x.n = n;
	give((struct stream *)stream, x);
	return 0;
}

int dt_gpu_set(void *to, int byte, size_t n, void *stream)
{
	struct step x = {};

	if (dt_emu_recording() && dt_emu_record_copy(to, NULL, byte, n))
		return 0;
	if (n && !dt_emu_is_device(to, n))
		return -EIO;
	x.kind = SET;
	x.to = to;
	x.byte = byte;
	x.n = n;
	give((struct stream *)stream, x);
	return 0;
}

int dt_gpu_stream_open(void **ret)
{
	struct stream *s = (struct stream *)calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->last = &s->first;
	enter();
	s->next = all;
	all = s;
	leave();
	*ret = s;
	return 0;
}

static int refuse_recorded(void)
{
	if (!dt_emu_recording())
		return 0;
	fprintf(stderr, "emulated stream: waited for while it is recorded\n");
	return -EIO;
}

/* Like an event recorded now. */
static struct event now(struct stream *s)
{
	return (struct event){s, s->begun, s->given, s->late.sent, 0};
}

int dt_gpu_stream_sync(void *stream)
{
	struct stream *s = (struct stream *)stream;
	struct event e;

	if (refuse_recorded() < 0)
		return -EIO;
	enter();
	e = now(s);
	reach(&e, true);
	dt_emu_late_arrive(&s->late, s->late.sent); /* late copies of steps that ran only now */
	leave();
	return 0;
}

/* The stream is kept: others may still wait for its work, and copies that nobody waited for never arrive. */
void dt_gpu_stream_close(void *stream)
{
	(void)stream;
	dt_emu_finish_all();
}

int dt_gpu_event_open(void **ret)
{
	*ret = calloc(1, sizeof(struct event));
	return *ret ? 0 : -ENOMEM;
}

void dt_gpu_event_close(void *event)
{
	free(event);
}

int dt_gpu_event_record(void *event, void *stream)
{
	enter();
	*(struct event *)event = now((struct stream *)stream);
	leave();
	return 0;
}

int dt_gpu_event_wait(void *event, void *stream)
{
	const struct event *e = (const struct event *)event;
	struct step x = {};

	if (!e->in || e->in == stream)
		return 0;
	x.kind = WAIT;
	x.of = (struct event *)malloc(sizeof *x.of);
	if (!x.of)
		return -ENOMEM;
	*x.of = *e;
	give((struct stream *)stream, x);
	return 0;
}

int dt_gpu_event_sync(void *event)
{
	if (refuse_recorded() < 0)
		return -EIO;
	enter();
	reach((const struct event *)event, true);
	leave();
	return 0;
}

int dt_gpu_event_done(void *event)
{
	struct event *e = (struct event *)event;
	bool done;

	enter();
	done = !(e->in && e->in->done < e->given && e->asked++ < 2) && reach(e, false);
	leave();
	return done;
}

/* ---- what libraries call ---- */

void dt_emu_stream_begin(void *stream)
{
	struct stream *s = (struct stream *)stream;

	enter();
	run_to(s, s->given, true);
	leave();
	pthread_mutex_lock(&libraries);
	s->begun++;
	pthread_mutex_unlock(&libraries);
}

void dt_emu_stream_end(void *stream)
{
	pthread_mutex_lock(&libraries);
	((struct stream *)stream)->ended++;
	pthread_cond_broadcast(&ended);
	pthread_mutex_unlock(&libraries);
}
/* SPDX-License-Identifier: Apache-2.0 */
