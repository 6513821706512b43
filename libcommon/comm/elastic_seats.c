#include "comm/elastic_seats.h"
#include "comm/watchdog.h"

#include "base/progress.h"

#include <string.h>
#include <unistd.h>

/* Whether the process of seat i is lost: 0, or why. thread: 0 for the watchdog's, 1 for the rank's own. */
static int lost(struct dt_elastic *e, int thread, int i)
{
	struct dt_seat *s = &e->b->seat[i];
	uint64_t born = 0;
	char run = dt_comm_process(atomic_load(&s->pid), &born);

	if (!run || born != atomic_load(&s->born))
		return DT_SEAT_DIED;
	if (!dt_comm_process_stopped(run)) {
		e->still[thread][i] = 0;
		return 0;
	}
	if (e->still[thread][i] <= 0)
		e->still[thread][i] = dt_now();
	return dt_now() - e->still[thread][i] > DT_SEAT_STOPPED_S ? DT_SEAT_STANDS : 0;
}

bool dt_seat_vote(struct dt_elastic *e, int thread, int i)
{
	struct dt_seat *s = &e->b->seat[i];
	int was = atomic_load(&s->state), how;

	if (was != DT_SEAT_MEMBER && was != DT_SEAT_JOINS)
		return was == DT_SEAT_OUT || was == DT_SEAT_FREE;
	how = lost(e, thread, i);
	if (!how)
		return false;
	atomic_store(&s->how, how);
	atomic_compare_exchange_strong(&s->state, &was, DT_SEAT_OUT);
	return true;
}

void dt_seat_take(struct dt_elastic *e, int i, int state)
{
	struct dt_seat *s = &e->b->seat[i];
	uint64_t born = 0;

	dt_comm_process((int)getpid(), &born);
	e->me = i;
	atomic_store(&s->how, DT_SEAT_LEFT);
	atomic_store(&s->born, born);
	atomic_store(&s->pid, (int)getpid());
	atomic_store(&s->arrived, 0);
	atomic_store(&s->said, 0);
	atomic_store(&s->state, state);
}

void dt_seats_build(char buf[32])
{
	snprintf(buf, 32, "%s/%zu/%zu", DT_VERSION, sizeof(struct dt_comm_slot), sizeof(struct dt_seats));
}

void dt_seats_begin(struct dt_seats *b, const struct dt_elastic *e)
{
	struct dt_seat_list *l = &b->list[1];

	l->n = e->n;
	memcpy(l->member, e->member, sizeof(l->member));
	dt_seats_build(b->build);
	b->magic = DT_SEATS_MAGIC;
	atomic_store(&b->taken, (unsigned)e->n);
	atomic_store(&b->epoch, 1);
}

bool dt_seats_out(const struct dt_elastic *e)
{
	const struct dt_seat *me = &e->b->seat[e->me];

	return atomic_load(&me->state) == DT_SEAT_OUT || atomic_load(&me->pid) != (int)getpid();
}

bool dt_seats_here(struct dt_elastic *e, uint64_t next)
{
	bool all = true;

	for (int i = 0; i < DT_SEATS; i++) {
		struct dt_seat *s = &e->b->seat[i];

		if (atomic_load(&s->state) == DT_SEAT_MEMBER && atomic_load(&s->arrived) < next &&
		    !dt_seat_vote(e, 1, i))
			all = false;
	}
	return all;
}

static bool is_on(const struct dt_seat_list *l, int seat)
{
	for (int r = 0; r < l->n; r++)
		if (l->member[r] == seat)
			return true;
	return false;
}

/*
 * Writes the next epoch's list: the remaining members in their order, then those that join. Frees the seats
 * of ended processes: all members have arrived, so nobody reads the old list any more.
 */
static void write_list(struct dt_elastic *e, uint64_t next)
{
	const struct dt_seat_list *old = &e->b->list[(next - 1) & 1];
	struct dt_seat_list *l = &e->b->list[next & 1];
	struct dt_seat *seat = e->b->seat;

	l->n = 0;
	for (int r = 0; r < old->n; r++)
		if (atomic_load(&seat[old->member[r]].state) == DT_SEAT_MEMBER)
			l->member[l->n++] = old->member[r];
	for (int i = 0; i < DT_SEATS; i++) {
		int was = atomic_load(&seat[i].state);

		if (was == DT_SEAT_OUT && lost(e, 1, i) == DT_SEAT_DIED)
			atomic_compare_exchange_strong(&seat[i].state, &was, DT_SEAT_FREE);
		/* A member on no list: the process that listed it was lost before that epoch began. */
		if ((was != DT_SEAT_JOINS && was != DT_SEAT_MEMBER) ||
		    atomic_load(&seat[i].arrived) != next || is_on(old, i) || dt_seat_vote(e, 1, i))
			continue;
		if (was == DT_SEAT_MEMBER ||
		    atomic_compare_exchange_strong(&seat[i].state, &was, DT_SEAT_MEMBER))
			l->member[l->n++] = i;
	}
	atomic_store(&e->b->epoch, next);
}

void dt_seats_decide(struct dt_elastic *e, uint64_t next)
{
	int holder = 0;

	if (!atomic_compare_exchange_strong(&e->b->decider, &holder, e->me + 1) &&
	    !(dt_seat_vote(e, 1, holder - 1) &&
	      atomic_compare_exchange_strong(&e->b->decider, &holder, e->me + 1)))
		return;
	if (atomic_load(&e->b->epoch) < next && dt_seats_here(e, next))
		write_list(e, next);
	atomic_store(&e->b->decider, 0);
}

bool dt_seats_anybody(struct dt_elastic *e)
{
	for (int i = 0; i < DT_SEATS; i++)
		if (atomic_load(&e->b->seat[i].state) == DT_SEAT_MEMBER && !lost(e, 1, i))
			return true;
	return false;
}

/* SPDX-License-Identifier: Apache-2.0 */
