/*
 * Discrete-event simulation of step lists on networks with eager messages.
 *
 * When a rank enters a round, it sends its messages to other nodes, whether or not the receivers are ready.
 * Messages that share a first link take turns, part by part; further links forward parts in the order of
 * arrival. A send completes when its last part is on the first link. A message inside a node is copied when
 * both ranks are in the round. A rank's round ends when all its messages have completed and its reductions
 * are done.
 */
#include "bench/simulate_priv.h"

#include "base/room.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define PARTS_MAX 256 /* of a message */

struct event { /* a rank enters its next round, or a link takes the next part */
	double at;
	uint64_t number; /* orders events of equal time */
	int rank, link;	 /* rank -1: an event of the link */
};

/* A message between nodes that is being sent. */
struct flow {
	struct flow *next;
	int from, to, round;
	double left, part; /* in bytes */
	struct dt_bench_path path;
};

struct port {
	struct flow *first, *last; /* queue of waiting messages, the next one first */
	bool busy;
};

/*
 * A message of which one end has entered the round: the sender's (eager messages have arrived) or the
 * receiver's.
 */
struct mail {
	int from, round;
	bool sent;
	double at; /* arrival; for a local message the time of the send */
};

struct mailbox {
	struct mail *v;
	int n, room;
};

struct run {
	struct dt_bench_sim *s;
	const struct dt_comm_steps *st;
	double e;
	struct event *heap;
	size_t n;
	uint64_t number;
	int *round, *open;    /* [p]: current round; number of its incomplete messages */
	double *over, *extra; /* [p]: latest completion so far; time of reductions after it */
	struct mailbox *box;  /* [p]: messages to each receiver */
	struct port *port;    /* [nlink] */
	bool failed;
};

static bool before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->number < b->number;
}

/* The heap has room: at most one pending event per rank and per link. */
static void push(struct run *x, double at, int rank, int link)
{
	struct event e = {at, x->number++, rank, link};
	size_t i = x->n++;

	for (; i && before(&e, &x->heap[(i - 1) / 2]); i = (i - 1) / 2)
		x->heap[i] = x->heap[(i - 1) / 2];
	x->heap[i] = e;
}

static struct event pop(struct run *x)
{
	struct event top = x->heap[0], last = x->heap[--x->n];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < x->n) {
		c += c + 1 < x->n && before(&x->heap[c + 1], &x->heap[c]);
		if (!before(&x->heap[c], &last))
			break;
		x->heap[i] = x->heap[c];
		i = c;
	}
	x->heap[i] = last;
	return top;
}

/* Sends a message or part at t. Returns its arrival; *ret_left: when the first link is free again. */
static double fly(struct run *x, const struct dt_bench_path *p, double t, double bytes, double *ret_left)
{
	const struct dt_bench_topo *topo = x->s->t;
	double there = t;

	*ret_left = t;
	for (int i = 0; i < p->n; i++) {
		int l = p->link[i];
		double end = fmax(t, x->s->load[l]) + bytes * x->s->cost[l];

		x->s->load[l] = end;
		there = fmax(there, end);
		if (i == 0)
			*ret_left = end;
	}
	return there + (p->local ? topo->shm_latency_s : topo->net_latency_s) + p->hops * topo->hop_s;
}

static struct mail *find(struct mailbox *b, int from, int round, bool sent)
{
	for (int i = 0; i < b->n; i++)
		if (b->v[i].from == from && b->v[i].round == round && b->v[i].sent == sent)
			return &b->v[i];
	return NULL;
}

static void keep(struct run *x, int to, struct mail m)
{
	struct mailbox *b = &x->box[to];

	if (DT_ROOM(b->v, b->n, b->room, 8))
		b->v[b->n++] = m;
	else
		x->failed = true;
}

/* Keeps the order: several messages between two ranks in one round match in order. */
static void drop(struct mailbox *b, struct mail *m)
{
	for (int i = (int)(m - b->v); i + 1 < b->n; i++)
		b->v[i] = b->v[i + 1];
	b->n--;
}

static void through(struct run *x, int rank, double at)
{
	x->over[rank] = fmax(x->over[rank], at);
	if (--x->open[rank] == 0)
		push(x, x->over[rank] + x->extra[rank], rank, 0);
}

static void join(struct run *x, struct flow *f)
{
	struct port *port = &x->port[f->path.link[0]];

	f->next = NULL;
	if (port->first)
		port->last->next = f;
	else
		port->first = f;
	port->last = f;
}

/* The link sends the next part of the first waiting message. */
static void serve(struct run *x, int link, double now)
{
	struct port *port = &x->port[link];
	struct flow *f = port->first;
	struct mail *waiting;
	double part, at, left;

	port->busy = f != NULL;
	if (!f)
		return;
	part = fmin(f->part, f->left);
	at = fly(x, &f->path, now, part, &left);
	push(x, left, -1, link);
	port->first = f->next;
	f->left -= part;
	if (f->left > 0) {
		join(x, f);
		return;
	}
	through(x, f->from, left);
	waiting = find(&x->box[f->to], f->from, f->round, false);
	if (waiting) {
		drop(&x->box[f->to], waiting);
		through(x, f->to, at);
	} else {
		keep(x, f->to, (struct mail){f->from, f->round, true, at});
	}
	free(f);
}

static void sends(struct run *x, int rank, const struct dt_comm_move *m, double now)
{
	struct mail *waiting = find(&x->box[m->peer], rank, x->round[rank], false);
	double bytes = (double)m->n * x->e, left, at;
	struct dt_bench_path p;
	struct flow *f;

	dt_bench_sim_route(x->s, rank, m->peer, &p);
	if (!p.local) {
		f = malloc(sizeof(*f));
		if (!f) {
			x->failed = true;
			return;
		}
		*f = (struct flow){.from = rank,
				   .to = m->peer,
				   .round = x->round[rank],
				   .left = bytes,
				   .part = fmax((double)DT_COMM_STEPS_CHUNK_BYTES, bytes / PARTS_MAX),
				   .path = p};
		join(x, f);
		if (!x->port[p.link[0]].busy)
			push(x, now, -1, p.link[0]);
		x->port[p.link[0]].busy = true;
		return;
	}
	if (!waiting) { /* the receive will start it */
		keep(x, m->peer, (struct mail){rank, x->round[rank], true, now});
		return;
	}
	drop(&x->box[m->peer], waiting);
	at = fly(x, &p, now, bytes, &left);
	through(x, rank, at);
	through(x, m->peer, at);
}

static void receives(struct run *x, int rank, const struct dt_comm_move *m, double now)
{
	struct mail *there = find(&x->box[rank], m->peer, x->round[rank], true);
	double at, left;
	struct dt_bench_path p;

	if (!there) {
		keep(x, rank, (struct mail){m->peer, x->round[rank], false, now});
		return;
	}
	at = there->at;
	drop(&x->box[rank], there);
	dt_bench_sim_route(x->s, m->peer, rank, &p);
	if (p.local) {
		at = fly(x, &p, now, (double)m->n * x->e, &left);
		through(x, m->peer, at);
	}
	through(x, rank, at);
}

/* Enters the next round in which the rank has messages. Returns whether there is one. */
static bool enter(struct run *x, int rank)
{
	struct dt_comm_moves *m = &x->s->m;
	int n = 0;

	for (; !n && ++x->round[rank] < x->st->rounds; n = m->n) {
		m->n = 0;
		dt_comm_steps_round(x->st, rank, x->round[rank], m);
		for (int i = 0; i < m->n; i++)
			if (!m->v[i].n)
				m->v[i--] = m->v[--m->n];
	}
	return n > 0;
}

static void begin_round(struct run *x, int rank, double now)
{
	struct dt_comm_moves m = x->s->m;

	/* one more than there are, so that the round does not end while messages are being started */
	x->open[rank] = m.n + 1;
	x->over[rank] = now;
	x->extra[rank] = 0;
	for (int i = 0; i < m.n; i++)
		if (m.v[i].kind == DT_COMM_MOVE_REDUCE)
			x->extra[rank] += (double)m.v[i].n * x->e * x->s->t->reduce_s;
	for (int i = 0; i < m.n; i++)
		if (m.v[i].kind == DT_COMM_MOVE_SEND)
			sends(x, rank, &m.v[i], now);
	for (int i = 0; i < m.n; i++)
		if (m.v[i].kind != DT_COMM_MOVE_SEND)
			receives(x, rank, &m.v[i], now);
	through(x, rank, now);
}

int dt_bench_sim_events(struct dt_bench_sim *s, const struct dt_comm_steps *st, size_t element_bytes,
			double *ret_s, struct dt_err *err)
{
	size_t p = (size_t)st->p, links = s->nlink;
	struct run x = {.s = s,
			.st = st,
			.e = (double)element_bytes,
			.heap = calloc(p + links, sizeof(*x.heap)),
			.round = calloc(2 * p, sizeof(int)),
			.over = calloc(2 * p, sizeof(double)),
			.box = calloc(p, sizeof(*x.box)),
			.port = calloc(links, sizeof(*x.port))};
	double last = 0;
	int rc = 0;

	x.failed = !x.heap || !x.round || !x.over || !x.box || !x.port;
	if (!x.failed) {
		x.open = x.round + p;
		x.extra = x.over + p;
		for (int r = 0; r < st->p; r++) {
			x.round[r] = -1;
			push(&x, 0, r, 0);
		}
	}
	while (!x.failed && x.n) {
		struct event e = pop(&x);

		if (e.rank < 0) {
			serve(&x, e.link, e.at);
			continue;
		}
		last = fmax(last, e.at);
		if (enter(&x, e.rank))
			begin_round(&x, e.rank, e.at);
		x.failed |= s->m.failed;
	}
	if (x.failed)
		rc = dt_err_sys(err, -ENOMEM, "%d ranks", st->p);
	for (size_t r = 0; r < p && x.box; r++)
		free(x.box[r].v);
	for (size_t l = 0; l < links && x.port; l++)
		for (struct flow *f = x.port[l].first, *next; f; f = next) {
			next = f->next;
			free(f);
		}
	free(x.port);
	free(x.heap);
	free(x.round);
	free(x.over);
	free(x.box);
	if (!rc)
		*ret_s = last;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
