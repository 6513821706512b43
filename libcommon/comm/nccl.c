/*
 * Operations on the memory of cards, over NCCL.
 *
 * Every group has a communicator and a CUDA stream for its collectives; every pair of ranks that exchanges
 * messages has one of each per direction. A separate thread creates them on first use: ncclCommInitRank
 * blocks until all ranks have called it, and a rank that blocked here could deadlock with another.
 *
 * An operation waits on the card for the work submitted to the device before it was started. It is issued as
 * soon as its communicator exists. When it is waited for, the device's own stream waits for it and the host
 * continues; only while other operations of this rank need the host does the host wait for the card itself,
 * because a later dt_dev_sync would block them. In an elastic world it always does: what a lost rank has left
 * undone is never waited for by the device, and nothing is computed from it.
 *
 * NCCL matches messages between two ranks by order, this library by tag. So the receiver announces over MPI
 * that it is ready, and the sender replies with the message's position in the queue of its direction; both
 * ends issue in that order. No message is issued before both ends have posted it, so none blocks another.
 * In an elastic world, where MPI ends with the first rank that is lost, they go through the host (stage.c).
 */
#include "comm/nccl_priv.h"

#include "base/progress.h"

#include <errno.h>
#include <stdlib.h>

/* The private state of a request: its operation, which may outlive it. */
static struct dt_comm_nccl_op **op_slot(const struct dt_comm_req *r)
{
	return r->state;
}

/* Enqueues the operation between its two events. */
static int issue(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_nccl_op *o = *op_slot(r);
	struct dt_comm_nccl *k = o->link->k;
	int rc = dt_comm_nccl_card(k)->use(dt_comm_nccl_arg(k));

	if (rc == 0)
		rc = dt_comm_nccl_card(k)->event_wait(dt_comm_nccl_arg(k), o->before, o->link->queue);
	if (rc == 0)
		rc = dt_comm_nccl_call(r->c, &r->op, o->link);
	if (rc > 0)
		return dt_comm_nccl_failed(k, &o->at, rc, err);
	if (rc == 0)
		rc = dt_comm_nccl_take_event(k, &o->after);
	if (rc == 0)
		rc = dt_comm_nccl_card(k)->event_record(dt_comm_nccl_arg(k), o->after, o->link->queue);
	if (rc < 0)
		return dt_err_sys(err, rc, "%s '%s' on the GPU", dt_comm_op_name(r->op.kind), r->op.what);
	o->issued = true;
	o->at.since = dt_now();
	dt_comm_nccl_prune(k);
	k->pending++;
	pthread_mutex_lock(&k->lock);
	o->next = k->flying;
	k->flying = o;
	pthread_mutex_unlock(&k->lock);
	return 0;
}

/* 1: done, or the device's stream waits for it. */
static int finish(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_nccl_op *o = *op_slot(r);
	struct dt_comm_nccl *k = o->link->k;
	int rc = dt_comm_nccl_card(k)->event_done(dt_comm_nccl_arg(k), o->after), word;

	if (rc == 1 && atomic_load(&k->given_up)) { /* checked last: what was given up also ends */
		rc = dt_err_set(err, -ETIMEDOUT, "%s '%s' was aborted", dt_comm_op_name(r->op.kind),
				r->op.what);
		k->pending--;
		return rc;
	}
	if (rc == 0 && r->waited && !r->c->w->elastic && r->c->w->pending == k->pending) {
		rc = dt_comm_nccl_card(k)->event_wait(dt_comm_nccl_arg(k), o->after, NULL);
		rc = rc < 0 ? rc : 1;
	}
	if (rc == 0) {
		word = dt_comm_nccl_async_error(o->link);
		if (word != DT_NCCL_SUCCESS)
			rc = dt_comm_nccl_failed(k, &o->at, word, err);
	} else if (rc < 0) {
		dt_err_sys(err, rc, "%s '%s' on the GPU", dt_comm_op_name(r->op.kind), r->op.what);
	}
	if (rc != 0)
		k->pending--;
	return rc;
}

static int prepare(struct dt_comm_req *r, struct dt_comm_nccl_link *l, struct dt_err *err)
{
	struct dt_comm_nccl *k = r->c->w->nccl;
	struct dt_comm_nccl_op *o = calloc(1, sizeof(*o));
	int rc = o ? dt_comm_nccl_take_event(k, &o->before) : -ENOMEM;

	if (rc == 0)
		rc = dt_comm_nccl_card(k)->event_record(dt_comm_nccl_arg(k), o->before, NULL);
	if (rc < 0) {
		if (o)
			dt_comm_nccl_give_event(k, o->before);
		free(o);
		return dt_err_sys(err, rc, "%s '%s' on the GPU", dt_comm_op_name(r->op.kind), r->op.what);
	}
	o->link = l;
	o->attached = true;
	o->at = dt_comm_where_op(r->c, &r->op, r->seq);
	o->mr[0] = o->mr[1] = MPI_REQUEST_NULL;
	*op_slot(r) = o;
	return 0;
}

static void release(struct dt_comm_req *r)
{
	struct dt_comm_nccl_op *o = *op_slot(r);

	if (!o)
		return;
	*op_slot(r) = NULL;
	if (!o->issued)
		dt_comm_nccl_release(o->link->k, o);
	else
		o->attached = false;
}

static int collective_start(struct dt_comm_req *r, struct dt_err *err)
{
	return prepare(r, &r->c->nccl->all, err);
}

static int collective_step(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_nccl_op *o = *op_slot(r);
	int rc;

	if (o->issued)
		return finish(r, err);
	rc = dt_comm_nccl_group_ready(r->c, &o->at, err);
	if (rc > 0)
		rc = issue(r, err);
	return rc;
}

/* MPI tags of the two control messages: ready, position. */
static int ready_tag(const struct dt_comm_op *o)
{
	return 2 * o->tag;
}

static int place_tag(const struct dt_comm_op *o)
{
	return 2 * o->tag + 1;
}

static int message_start(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_nccl_group *g = r->c->nccl;
	const bool send = r->op.kind == DT_COMM_SEND;
	struct dt_comm_nccl_op *o;
	int peer = r->op.root, rc = prepare(r, send ? &g->to[peer] : &g->from[peer], err);

	if (rc < 0)
		return rc;
	o = *op_slot(r);
	if (send) {
		rc = MPI_Irecv(&o->ready, 1, MPI_BYTE, peer, ready_tag(&r->op), g->mpi, &o->mr[0]);
	} else {
		rc = MPI_Irecv(&o->place, sizeof(o->place), MPI_BYTE, peer, place_tag(&r->op), g->mpi,
			       &o->mr[0]);
		if (!rc)
			rc = MPI_Isend(&o->ready, 1, MPI_BYTE, peer, ready_tag(&r->op), g->mpi, &o->mr[1]);
	}
	if (!rc)
		return 0;
	return dt_comm_mpi_error(err, rc, "a message's words");
}

/* Both ends have posted it: the sender assigns its position and sends that. */
static int give_place(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_nccl_op *o = *op_slot(r);
	struct dt_comm_nccl_link *l = o->link;
	int rc = DT_NCCL_SUCCESS;

	if (l->state == LINK_NONE)
		rc = l->k->lib.GetUniqueId(&l->id);
	if (rc != DT_NCCL_SUCCESS)
		return dt_comm_nccl_failed(l->k, &o->at, rc, err);
	o->place = (struct place){l->given++, l->id};
	rc = MPI_Isend(&o->place, sizeof(o->place), MPI_BYTE, r->op.root, place_tag(&r->op), r->c->nccl->mpi,
		       &o->mr[1]);
	return rc ? dt_comm_mpi_error(err, rc, "a message's words") : 0;
}

static int message_step(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_nccl_op *o = *op_slot(r);
	struct dt_comm_nccl_link *l = o->link;
	int done = 0, rc;

	if (o->issued)
		return finish(r, err);
	if (!o->placed) {
		rc = MPI_Test(&o->mr[0], &done, MPI_STATUS_IGNORE);
		if (rc)
			return dt_comm_mpi_error(err, rc, "a message's words");
		if (!done)
			return 0;
		if (r->op.kind == DT_COMM_SEND && (rc = give_place(r, err)) < 0)
			return rc;
		o->placed = true;
		if (l->state == LINK_NONE) {
			l->id = o->place.id;
			if ((rc = dt_comm_nccl_begin_link(l, err)) < 0)
				return rc;
		}
	}
	if (o->mr[1] != MPI_REQUEST_NULL && (rc = MPI_Test(&o->mr[1], &done, MPI_STATUS_IGNORE)))
		return dt_comm_mpi_error(err, rc, "a message's words");
	rc = o->place.n == l->next && o->mr[1] == MPI_REQUEST_NULL ? dt_comm_nccl_link_ready(l, &o->at, err)
								   : 0;
	if (rc <= 0)
		return rc;
	rc = issue(r, err);
	l->next++;
	return rc;
}

static const struct dt_comm_transport collectives = {
	.name = "nccl",
	.state = sizeof(struct dt_comm_nccl_op *),
	.ordered = true,
	.start = collective_start,
	.step = collective_step,
	.release = release,
};
static const struct dt_comm_transport messages = {
	.name = "nccl",
	.state = sizeof(struct dt_comm_nccl_op *),
	.start = message_start,
	.step = message_step,
	.release = release,
};

const struct dt_comm_transport *dt_comm_nccl_transport(const struct dt_comm *c, const struct dt_comm_op *o)
{
	const struct dt_comm_device *d = &c->w->device;
	size_t dst, src;

	const bool message = o->kind == DT_COMM_SEND || o->kind == DT_COMM_RECV;

	if (!c->nccl || (message && c->w->elastic) ||
	    (dt_comm_op_reduces(o->kind) && dt_comm_nccl_type(o->t) < 0))
		return NULL;
	dt_comm_op_extents(c, o, &dst, &src);
	if ((!dst && !src) || (dst && !dt_comm_on_device(d, o->dst)) ||
	    (src && !dt_comm_on_device(d, o->src)))
		return NULL;
	return message ? &messages : &collectives;
}
/* SPDX-License-Identifier: Apache-2.0 */
