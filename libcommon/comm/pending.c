/* Operations under way: a queue per group, rounds over all of them, and how a rank waits. */
#include "comm/internal.h"

#include "base/progress.h"
#include "base/trace.h"

#include <errno.h>
#include <sched.h>
#include <time.h>

/* Rounds of waiting before the next stage; a round takes 20 to 100 ns, a yield 0.3 to 3 us. */
#define SPIN	      512
#define YIELD_S	      2e-2
#define SPIN_CROWDED  8
#define YIELD_CROWDED 64

void dt_comm_push(struct dt_comm_req *r)
{
	struct dt_comm *c = r->c;

	r->next = NULL;
	if (c->tail)
		c->tail->next = r;
	else
		c->head = r;
	c->tail = r;
	c->w->pending++;
}

void dt_comm_step(struct dt_comm *c)
{
	struct dt_comm_req **link = &c->head, *last = NULL;
	bool held = false; /* held: an ordered operation is pending before this one */

	while (*link) {
		struct dt_comm_req *r = *link;
		int rc = held && r->t->ordered ? 0 : r->t->step(r, &r->err);

		if (rc == 0) {
			last = r;
			link = &r->next;
			held |= r->t->ordered;
			continue;
		}
		*link = r->next;
		if (c->tail == r)
			c->tail = last;
		c->w->pending--;
		r->status = rc < 0 ? rc : 0;
		r->done = true;
		if (!r->status)
			dt_recorder_end(c->w->recording, r->record);
		if (r->began > 0)
			dt_trace_flight(c->w->trace, "message", dt_comm_op_name(r->op.kind), r->began,
					dt_now(), dt_comm_traced(c, &r->op));
	}
}

void dt_comm_step_all(struct dt_world *w)
{
	for (int i = 0; i < w->ncomm && w->pending; i++)
		if (w->comm[i] && w->comm[i]->head)
			dt_comm_step(w->comm[i]);
	if (w->meanwhile && !w->in_meanwhile) {
		w->in_meanwhile = true;
		w->meanwhile(w->meanwhile_arg);
		w->in_meanwhile = false;
	}
}

void dt_world_meanwhile(struct dt_world *w, void (*fn)(void *arg), void *arg)
{
	w->meanwhile = fn;
	w->meanwhile_arg = arg;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

struct idling {
	int round;
	double until;	 /* time at which yielding ends; 0: not started */
	size_t progress; /* of the operation when the wait began */
};

/*
 * A waiting rank spins, then yields its time slice, then sleeps: the rank it waits for may need this
 * processor, because there are more ranks than processors (crowded) or other processes compute here.
 * sched_yield with no other runnable thread costs hardly more than a pause, so the spin is short. Sleep comes
 * late: a wake-up takes up to 0.1 ms on a virtual machine, and more where something else took the processor,
 * long enough for the ranks that wait for this one to fall asleep as well, and so on until the end of the
 * operation. A stage of a served model waits for each token while the others compute it, tens of
 * milliseconds: with a sleep after the first, one stream over two stages took 1.19 times one process, without
 * 1.03.
 */
static void idle(struct dt_comm *c, const struct dt_comm_transport *t, struct idling *i)
{
	struct dt_world *w = c->w;
	int spin = w->crowded ? SPIN_CROWDED : SPIN, n = ++i->round;
	bool alone = w->pending == 1;

	if (n < spin) {
		relax();
		return;
	}
	if (w->crowded ? n < spin + YIELD_CROWDED : !i->until || n % 16 || dt_now() < i->until) {
		if (!i->until)
			i->until = dt_now() + YIELD_S;
		sched_yield();
	} else if (t->sleep && alone) {
		t->sleep(c);
	} else if (w->crowded && n < spin + 4096) {
		sched_yield();
	} else {
		nanosleep(&(struct timespec){0, 20000}, NULL);
	}
}

int dt_comm_fail_broken(const struct dt_world *w, struct dt_err *err)
{
	return dt_err_set(err, -ETIMEDOUT, "%s", w->why);
}

/* Takes an operation that will not complete out of its group's queue. */
static void give_up(struct dt_comm_req *r)
{
	struct dt_comm *c = r->c;
	struct dt_comm_req *last = NULL;

	for (struct dt_comm_req **link = &c->head; *link; last = *link, link = &(*link)->next)
		if (*link == r) {
			*link = r->next;
			if (c->tail == r)
				c->tail = last;
			c->w->pending--;
			break;
		}
	r->status = dt_comm_fail_broken(c->w, &r->err);
	r->done = true;
}

void dt_comm_wait_done(struct dt_comm_req *r)
{
	struct idling i = {0};

	r->waited = true;
	while (dt_comm_step_all(r->c->w), !r->done) {
		if (atomic_load_explicit(&r->c->w->broken, memory_order_relaxed)) {
			give_up(r);
			break;
		}
		size_t progress = r->t->progress ? r->t->progress(r) : 0;

		if (progress != i.progress) /* a new wait, which may be short */
			i = (struct idling){.progress = progress};
		idle(r->c, r->t, &i);
	}
}

bool dt_comm_done(const struct dt_comm_req *req)
{
	return !req || req->done;
}

int dt_wait_all(struct dt_comm_req **req, int n, double *exposed_s, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < n; i++) {
		int one = dt_wait(&req[i], exposed_s, rc ? NULL : err);

		rc = rc ? rc : one;
	}
	return rc;
}

void dt_comm_poll(struct dt_world *w, double *exposed_s)
{
	double t0;

	if (!w->pending && !w->meanwhile)
		return;
	t0 = dt_now();
	dt_comm_step_all(w);
	if (exposed_s)
		*exposed_s += dt_now() - t0;
}
/* SPDX-License-Identifier: Apache-2.0 */
