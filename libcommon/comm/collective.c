/* Runs operations: checks arguments, publishes the operation to the watchdog, steps the transport. */
#include "comm/internal.h"

#include "base/progress.h"
#include "base/trace.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *dt_comm_op_name(enum dt_comm_op_kind k)
{
	static const char *const name[] = {
		"nothing", "all-reduce", "reduce-scatter", "all-gather", "broadcast", "all-to-all", "barrier",
		"gather",  "reduce",	 "scatter",	   "send",	 "receive",   "start-up",   "finish"};

	return name[k];
}

static bool point_to_point(enum dt_comm_op_kind k)
{
	return k == DT_COMM_SEND || k == DT_COMM_RECV;
}

void dt_comm_slot_enter(struct dt_world *w, const struct dt_comm_where *at)
{
	struct dt_comm_slot *s = atomic_load_explicit(&w->me, memory_order_relaxed);
	uint32_t v = atomic_load_explicit(&s->version, memory_order_relaxed);

	atomic_store_explicit(&s->version, v + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	s->at = *at;
	atomic_store_explicit(&s->version, v + 2, memory_order_release);
}

void dt_comm_slot_leave(struct dt_world *w)
{
	static const struct dt_comm_where computing;

	dt_comm_slot_enter(w, &computing);
}

struct dt_comm_where dt_comm_where_op(const struct dt_comm *c, const struct dt_comm_op *op, uint64_t seq)
{
	struct dt_comm_where at = {.kind = op->kind,
				   .group = c->index,
				   .peer = point_to_point(op->kind) ? c->ranks[op->root] : -1,
				   .seq = seq,
				   .since = dt_now()};

	strncpy(at.what, op->what ? op->what : "", sizeof(at.what) - 1);
	return at;
}

void dt_world_trace(struct dt_world *w, struct dt_trace *t)
{
	w->trace = t;
}

json_t *dt_comm_traced(const struct dt_comm *c, const struct dt_comm_op *o)
{
	json_t *args = c->w->trace ? json_pack("{s:s, s:s, s:s, s:I, s:s}", "op", dt_comm_op_name(o->kind),
					       "what", o->what ? o->what : "", "group", c->name, "bytes",
					       (json_int_t)(o->n * (size_t)dt_dtype_size(o->t)), "type",
					       dt_dtype_name(o->t))
				   : NULL;

	if (args && point_to_point(o->kind))
		json_object_set_new(args, "peer", json_integer(c->ranks[o->root]));
	return args;
}

/* Refuses invalid arguments. An input that is already at its place in the output becomes in place (NULL). */
static int check(const struct dt_comm *c, struct dt_comm_op *o, struct dt_err *err)
{
	size_t bytes;
	bool wide = o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_REDUCE_SCATTER ||
		    o->kind == DT_COMM_ALL_TO_ALL || o->kind == DT_COMM_GATHER || o->kind == DT_COMM_SCATTER;

	if (__builtin_mul_overflow(o->n, (size_t)dt_dtype_size(o->t), &bytes) ||
	    (wide && __builtin_mul_overflow(bytes, (size_t)c->size, &bytes)))
		return dt_err_set(err, -EOVERFLOW, "%s '%s': %zu elements are too many",
				  dt_comm_op_name(o->kind), o->what, o->n);
	if (o->root < 0 || o->root >= c->size || (point_to_point(o->kind) && o->root == c->rank))
		return dt_err_set(err, -EINVAL, "%s '%s': no rank %d to talk to in group %s of %d",
				  dt_comm_op_name(o->kind), o->what, o->root, c->name, c->size);
	bytes = (size_t)c->rank * o->n * (size_t)dt_dtype_size(o->t); /* offset of this rank's block */
	if ((o->kind == DT_COMM_ALL_GATHER || (o->kind == DT_COMM_GATHER && c->rank == o->root)) && o->src &&
	    o->src == (char *)o->dst + bytes)
		o->src = NULL;
	if (o->kind == DT_COMM_SCATTER && c->rank == o->root && o->dst == (const char *)o->src + bytes)
		o->dst = NULL;
	if ((o->kind == DT_COMM_ALL_REDUCE || o->kind == DT_COMM_REDUCE_SCATTER ||
	     o->kind == DT_COMM_ALL_TO_ALL || (o->kind == DT_COMM_REDUCE && c->rank == o->root)) &&
	    o->src == o->dst)
		o->src = NULL;
	if (o->n && !o->src &&
	    ((c->rank == o->root && o->kind == DT_COMM_SCATTER) ||
	     (c->rank != o->root && (o->kind == DT_COMM_REDUCE || o->kind == DT_COMM_GATHER))))
		return dt_err_set(err, -EINVAL, "%s '%s': rank %d has nothing to send",
				  dt_comm_op_name(o->kind), o->what, c->rank);
	return 0;
}

double dt_comm_op_sent(const struct dt_comm *c, const struct dt_comm_op *o)
{
	const double n = (double)o->n * dt_dtype_size(o->t), p = c->size;
	const bool root = c->rank == o->root;

	switch (o->kind) {
	case DT_COMM_ALL_REDUCE:
		return 2 * (p - 1) / p * n;
	case DT_COMM_REDUCE_SCATTER:
	case DT_COMM_ALL_GATHER:
	case DT_COMM_ALL_TO_ALL:
		return (p - 1) * n; /* n is each rank's share */
	case DT_COMM_BROADCAST:
	case DT_COMM_REDUCE:
		return (p - 1) / p * n; /* mean over ranks: all forward it but the last */
	case DT_COMM_GATHER:
		return root ? 0 : n;
	case DT_COMM_SCATTER:
		return root ? (p - 1) * n : 0;
	case DT_COMM_SEND:
		return n;
	default:
		return 0;
	}
}

double dt_world_sent(const struct dt_world *w)
{
	return w->sent;
}

/* The next sequence number of the group, published to its peers. */
static uint64_t arrive(struct dt_comm *c, const struct dt_comm_op *o)
{
	struct dt_comm_slot *s = atomic_load_explicit(&c->w->me, memory_order_relaxed);

	c->w->sent += dt_comm_op_sent(c, o);
	if (point_to_point(o->kind))
		return 0;
	c->seq++;
	atomic_store_explicit(&s->arrived[c->index], c->seq, memory_order_release);
	return c->seq;
}

static uint64_t record(const struct dt_comm *c, const struct dt_comm_op *o, uint64_t seq)
{
	struct dt_record r = {.seq = seq,
			      .n = o->n,
			      .peer = point_to_point(o->kind) ? c->ranks[o->root] : -1,
			      .members = c->size,
			      .first = c->ranks[0]};

	if (!c->w->recording)
		return 0;
	snprintf(r.group, sizeof(r.group), "%s", c->name);
	snprintf(r.kind, sizeof(r.kind), "%s", dt_comm_op_name(o->kind));
	snprintf(r.type, sizeof(r.type), "%s", dt_dtype_name(o->t));
	snprintf(r.what, sizeof(r.what), "%s", o->what ? o->what : "");
	return dt_recorder_begin(c->w->recording, &r);
}

static void release(struct dt_comm_req *r)
{
	if (r->t->release)
		r->t->release(r);
}

/* Starts the operation and steps it until it is done. */
static int step_through(struct dt_comm_req *r, struct dt_err *err)
{
	_Alignas(max_align_t) char state[DT_COMM_REQ_STATE_MAX];
	int rc;

	r->state = memset(state, 0, r->t->state);
	rc = r->t->start(r, err);
	if (!rc) {
		dt_comm_push(r);
		dt_comm_wait_done(r);
		rc = r->status;
		if (rc && err)
			*err = r->err;
	}
	release(r);
	return rc;
}

static int run_here(struct dt_comm *c, struct dt_comm_op o, struct dt_err *err)
{
	const struct dt_comm_transport *t = dt_comm_transport_of(c, &o);
	double began = dt_trace_now(c->w->trace);
	struct dt_comm_where at;
	struct dt_comm_req r;
	int rc;

	if (c->size == 1)
		return t->start(&(struct dt_comm_req){.c = c, .op = o}, err);
	if (atomic_load_explicit(&c->w->broken, memory_order_relaxed))
		return dt_comm_fail_broken(c->w, err);
	r = (struct dt_comm_req){.c = c, .t = t, .op = o, .seq = arrive(c, &o)};
	at = dt_comm_where_op(c, &o, r.seq);
	dt_comm_slot_enter(c->w, &at);
	r.record = record(c, &o, r.seq);
	if (t->run && (!c->w->stepwise || c->mpi_only) && !point_to_point(o.kind))
		rc = t->run(c, &o, err);
	else
		rc = step_through(&r, err);
	if (!rc)
		dt_recorder_end(c->w->recording, r.record);
	dt_comm_slot_leave(c->w);
	dt_trace_span(c->w->trace, "message", dt_comm_op_name(o.kind), began, dt_comm_traced(c, &o));
	return rc;
}

int dt_comm_run(struct dt_comm *c, struct dt_comm_op o, struct dt_err *err)
{
	struct dt_comm_stage *s;
	int rc = check(c, &o, err);

	if (rc == 0)
		rc = dt_comm_stage_begin(c, &o, &s, err);
	if (rc < 0)
		return rc;
	return dt_comm_stage_end(c, s, o.what, run_here(c, o, err), err);
}

/* A request and its transport's state in one allocation. */
static struct dt_comm_req *new_request(struct dt_comm *c, const struct dt_comm_op *o, struct dt_comm_stage *s)
{
	const struct dt_comm_transport *t = dt_comm_transport_of(c, o);
	const size_t head = (sizeof(struct dt_comm_req) + 15) / 16 * 16;
	struct dt_comm_req *r = calloc(1, head + t->state);

	if (!r)
		return NULL;
	*r = (struct dt_comm_req){.c = c, .t = t, .op = *o, .stage = s, .state = (char *)r + head};
	return r;
}

int dt_comm_start(struct dt_comm *c, struct dt_comm_op o, struct dt_comm_req **ret, struct dt_err *err)
{
	struct dt_comm_req *r;
	struct dt_comm_stage *s;
	int rc = check(c, &o, err);

	if (rc == 0 && atomic_load_explicit(&c->w->broken, memory_order_relaxed))
		rc = dt_comm_fail_broken(c->w, err);
	if (rc == 0)
		rc = dt_comm_stage_begin(c, &o, &s, err);
	if (rc)
		return rc;
	r = new_request(c, &o, s);
	if (!r)
		return dt_comm_stage_end(c, s, o.what,
					 dt_err_sys(err, -ENOMEM, "%s '%s'", dt_comm_op_name(o.kind), o.what),
					 err);
	r->seq = arrive(c, &o);
	r->record = record(c, &o, r->seq);
	r->began = c->size > 1 ? dt_trace_now(c->w->trace) : 0;
	rc = r->t->start(r, err);
	if (rc) {
		rc = dt_comm_stage_end(c, s, o.what, rc, err);
		release(r);
		free(r);
		return rc;
	}
	dt_comm_push(r);
	dt_comm_step(c);
	*ret = r;
	return 0;
}

int dt_wait(struct dt_comm_req **req, double *exposed_s, struct dt_err *err)
{
	struct dt_comm_req *r = *req;
	double t0;
	int rc;

	if (!r)
		return 0;
	t0 = dt_now();
	if (!r->done) {
		struct dt_comm_where at = dt_comm_where_op(r->c, &r->op, r->seq);

		dt_comm_slot_enter(r->c->w, &at);
		dt_comm_wait_done(r);
		dt_comm_slot_leave(r->c->w);
		dt_trace_span(r->c->w->trace, "wait", dt_comm_op_name(r->op.kind), t0,
			      dt_comm_traced(r->c, &r->op));
	}
	rc = r->status;
	if (rc && err)
		*err = r->err;
	rc = dt_comm_stage_end(r->c, r->stage, r->op.what, rc, err);
	if (exposed_s)
		*exposed_s += dt_now() - t0;
	release(r);
	free(r);
	*req = NULL;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
