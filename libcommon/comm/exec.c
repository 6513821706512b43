/*
 * Runs step lists (steps.h) over messages: through channels (chan.c) inside a machine, over MPI between
 * machines. Operands of reductions are received into scratch memory and added after all messages of the round
 * have completed, the lower rank's operand first: two ranks that exchange operands get the same bits.
 */
#include "base/room.h"
#include "comm/internal.h"
#include "comm/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A message inside the machine. */
struct near {
	struct dt_comm_req r; /* r.t NULL: completed */
	struct dt_comm_chan_state s;
};

/* Private state of a request. */
struct exec {
	struct dt_comm_steps s;
	struct dt_comm_moves m;
	int round;
	bool posted, own_work; /* own_work: work must be freed here */
	char *work, *scratch;
	size_t scratch_bytes, e;
	MPI_Request *q;
	int nq, room;
	struct near **near; /* [near_room]; the first nnear belong to this round */
	int nnear, near_room;
};

static void exec_release(struct dt_comm_req *r)
{
	struct exec *x = r->state;

	if (x->own_work)
		free(x->work);
	for (int i = 0; i < x->near_room; i++)
		free(x->near[i]);
	free(x->near);
	free(x->scratch);
	free(x->m.v);
	free(x->q);
}

/* Sets the buffer that the steps read and write, and copies this rank's input into it. */
static int set_work(struct dt_comm_req *r, struct exec *x, struct dt_err *err)
{
	const struct dt_comm_op *o = &r->op;
	size_t bytes = x->s.n * x->e, block = o->n * x->e;
	bool apart = o->src && (o->kind == DT_COMM_REDUCE_SCATTER ||
				(o->kind == DT_COMM_REDUCE && r->c->rank != o->root));

	x->work = o->dst;
	if (apart) {
		x->work = malloc(bytes ? bytes : 1);
		x->own_work = true;
		if (!x->work)
			return dt_err_sys(err, -ENOMEM, "%s '%s' of %zu bytes", dt_comm_op_name(o->kind),
					  o->what, bytes);
	}
	if (o->src && o->kind == DT_COMM_ALL_GATHER)
		memcpy(x->work + (size_t)r->c->rank * block, o->src, block);
	else if (o->src && bytes)
		memcpy(x->work, o->src, bytes);
	return 0;
}

static struct near *next_near(struct exec *x)
{
	if (x->nnear == x->near_room) {
		int room = x->near_room ? 2 * x->near_room : 8;
		struct near **v = realloc(x->near, (size_t)room * sizeof(*v));

		if (!v)
			return NULL;
		memset(v + x->near_room, 0, (size_t)(room - x->near_room) * sizeof(*v));
		x->near = v;
		x->near_room = room;
	}
	if (!x->near[x->nnear])
		x->near[x->nnear] = malloc(sizeof(struct near));
	return x->near[x->nnear] ? x->near[x->nnear++] : NULL;
}

/*
 * A message through a channel. The tag distinguishes messages of one round between the same two ranks; of
 * several rounds the channel matches the oldest first.
 */
static int post_near(struct dt_comm_req *r, struct exec *x, enum dt_comm_move_kind kind, char *at,
		     size_t bytes, int peer, struct dt_err *err)
{
	struct dt_comm_op o = {.kind = kind == DT_COMM_MOVE_SEND ? DT_COMM_SEND : DT_COMM_RECV,
			       .dst = at,
			       .src = at,
			       .n = bytes,
			       .t = DT_U8,
			       .root = peer,
			       .what = r->op.what};
	struct near *m;
	int number = 0;

	for (int i = 0; i < x->nnear; i++)
		number += x->near[i]->r.op.kind == o.kind && x->near[i]->r.op.root == peer;
	o.tag = 1 << 24 | (int)(r->seq & 1023) << 10 | number;
	m = next_near(x);
	if (!m)
		return dt_err_sys(err, -ENOMEM, "messages");
	m->s = (struct dt_comm_chan_state){0};
	m->r = (struct dt_comm_req){.c = r->c, .t = &dt_comm_transport_chan, .op = o, .state = &m->s};
	return dt_comm_transport_chan.start(&m->r, err);
}

/* Returns 1 when all messages inside the machine are complete. */
static int step_near(struct exec *x, struct dt_err *err)
{
	bool all = true;

	for (int i = 0; i < x->nnear; i++) {
		struct dt_comm_req *q = &x->near[i]->r;
		int rc = q->t ? q->t->step(q, err) : 1;

		if (rc < 0)
			return rc;
		if (rc)
			q->t = NULL;
		all &= rc == 1;
	}
	return all;
}

static int post(struct dt_comm_req *r, struct exec *x, enum dt_comm_move_kind kind, char *at, size_t bytes,
		int peer, struct dt_err *err)
{
	size_t most = dt_comm_mpi_max_count < DT_COMM_STEPS_CHUNK_BYTES ? dt_comm_mpi_max_count
									: DT_COMM_STEPS_CHUNK_BYTES;
	int tag = (int)(r->seq & 16383), rc = 0;

	if (bytes && r->c->w->chans && r->c->local[peer] >= 0)
		return post_near(r, x, kind, at, bytes, peer, err);
	for (size_t done = 0; done < bytes && !rc; done += most) {
		int n = (int)(bytes - done < most ? bytes - done : most);

		if (!DT_ROOM(x->q, x->nq, x->room, 16))
			return dt_err_sys(err, -ENOMEM, "requests");
		if (kind == DT_COMM_MOVE_SEND)
			rc = MPI_Isend(at + done, n, MPI_BYTE, peer, tag, r->c->lanes, &x->q[x->nq]);
		else
			rc = MPI_Irecv(at + done, n, MPI_BYTE, peer, tag, r->c->lanes, &x->q[x->nq]);
		x->nq += !rc;
	}
	return rc ? dt_comm_mpi_error(err, rc, dt_comm_op_name(r->op.kind)) : 0;
}

static int post_round(struct dt_comm_req *r, struct exec *x, struct dt_err *err)
{
	size_t need = 0, at = 0;
	int rc = 0;

	x->m.n = x->nq = x->nnear = 0;
	dt_comm_steps_round(&x->s, r->c->rank, x->round, &x->m);
	for (int i = 0; i < x->m.n; i++)
		need += x->m.v[i].kind == DT_COMM_MOVE_REDUCE ? x->m.v[i].n * x->e : 0;
	if (need > x->scratch_bytes) {
		free(x->scratch);
		x->scratch = malloc(need);
		x->scratch_bytes = x->scratch ? need : 0;
	}
	if (x->m.failed || (need && !x->scratch))
		return dt_err_sys(err, -ENOMEM, "%s '%s': %zu bytes", dt_comm_op_name(r->op.kind), r->op.what,
				  need);
	for (int pass = 0; pass < 2; pass++) /* receives first */
		for (int i = 0; i < x->m.n && !rc; i++) {
			const struct dt_comm_move *m = &x->m.v[i];

			if ((m->kind == DT_COMM_MOVE_SEND) != (pass == 1))
				continue;
			if (m->kind == DT_COMM_MOVE_REDUCE) {
				rc = post(r, x, m->kind, x->scratch + at, m->n * x->e, m->peer, err);
				at += m->n * x->e;
			} else {
				rc = post(r, x, m->kind, x->work + m->at * x->e, m->n * x->e, m->peer, err);
			}
		}
	x->posted = true;
	return rc;
}

static void reduce_round(const struct dt_comm_req *r, struct exec *x)
{
	enum dt_redop op = r->op.op == DT_AVG ? DT_SUM : r->op.op;
	char *got = x->scratch;

	for (int i = 0; i < x->m.n; i++) {
		const struct dt_comm_move *m = &x->m.v[i];
		char *at = x->work + m->at * x->e;
		const void *src[2] = {got, at};

		if (m->kind != DT_COMM_MOVE_REDUCE)
			continue;
		if (m->peer > r->c->rank) {
			src[0] = at;
			src[1] = got;
		}
		dt_comm_reduce_many(at, src, 2, m->n, r->op.t, op);
		got += m->n * x->e;
	}
}

static void finish(struct dt_comm_req *r, struct exec *x)
{
	const struct dt_comm_op *o = &r->op;
	size_t block = o->n * x->e;
	bool has = o->kind == DT_COMM_ALL_REDUCE || o->kind == DT_COMM_REDUCE_SCATTER ||
		   (o->kind == DT_COMM_REDUCE && r->c->rank == o->root);

	if (o->kind == DT_COMM_REDUCE_SCATTER && block)
		memmove(o->dst, x->work + (size_t)r->c->rank * block, block);
	if (has && o->op == DT_AVG)
		dt_comm_reduce_divide(o->dst, r->c->size, o->n, o->t);
}

static int exec_start(struct dt_comm_req *r, struct dt_err *err)
{
	const struct dt_comm_op *o = &r->op;
	struct exec *x = r->state;
	bool blocks = o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_REDUCE_SCATTER;
	int rc;

	x->e = (size_t)dt_dtype_size(o->t);
	rc = dt_comm_steps_init(&x->s, o->kind, dt_comm_choose(r->c, o->kind, o->n, o->t), r->c->size,
				o->root, o->n * (blocks ? (size_t)r->c->size : 1),
				DT_COMM_STEPS_CHUNK_BYTES / x->e, r->c->node_ranks, err);
	return rc ? rc : set_work(r, x, err);
}

static int exec_step(struct dt_comm_req *r, struct dt_err *err)
{
	struct exec *x = r->state;
	int rc = 0, flag = 1;

	while (x->round < x->s.rounds && !rc) {
		if (!x->posted)
			rc = post_round(r, x, err);
		if (!rc) {
			rc = step_near(x, err);
			if (rc == 0)
				return 0;
			rc = rc > 0 ? 0 : rc;
		}
		if (!rc && x->nq) {
			rc = MPI_Testall(x->nq, x->q, &flag, MPI_STATUSES_IGNORE);
			if (rc)
				rc = dt_comm_mpi_error(err, rc, dt_comm_op_name(r->op.kind));
			else if (!flag)
				return 0;
		}
		if (!rc) {
			reduce_round(r, x);
			x->posted = false;
			x->round++;
		}
	}
	if (!rc)
		finish(r, x);
	return rc ? rc : 1;
}

static size_t exec_progress(const struct dt_comm_req *r)
{
	return (size_t)((const struct exec *)r->state)->round;
}

const struct dt_comm_transport dt_comm_transport_steps = {
	.name = "steps",
	.state = sizeof(struct exec),
	.start = exec_start,
	.step = exec_step,
	.progress = exec_progress,
	.release = exec_release,
};
_Static_assert(sizeof(struct exec) <= DT_COMM_REQ_STATE_MAX, "state of a request");
/* SPDX-License-Identifier: Apache-2.0 */
