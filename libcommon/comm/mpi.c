/*
 * Collectives and messages over MPI.
 *
 * f32, f64 and integers use MPI's own reductions. bf16 and f16 use ours: each addition of two operands is
 * done in f32 and rounded to nearest even, so a sum over p ranks is rounded up to p - 1 times (shm.c rounds
 * once).
 *
 * MPI counts are ints, and products of count and ranks are ints inside some implementations, so operations
 * longer than dt_comm_mpi_max_count elements in all are cut; the parts of one operation are all posted at
 * once.
 */
#include "comm/internal.h"

#include "base/room.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

size_t dt_comm_mpi_max_count = (size_t)1 << 28;

/* Private state of a request: the calls under way. */
struct mpi_state {
	MPI_Request *q;
	int n, room;
};

/* Makes one MPI call per part, blocking or not. */
struct poster {
	struct dt_comm *c;
	const struct dt_comm_op *op;
	MPI_Datatype type;
	size_t esize;
	struct mpi_state *s; /* NULL: blocking */
};

static MPI_Request *slot(struct poster *p)
{
	struct mpi_state *s = p->s;

	if (!DT_ROOM(s->q, s->n, s->room, 4))
		return NULL;
	s->q[s->n] = MPI_REQUEST_NULL;
	return &s->q[s->n++];
}

#define POST(p, blocking, ...)                                                                               \
	do {                                                                                                 \
		MPI_Request *post_q;                                                                         \
		int post_rc;                                                                                 \
                                                                                                             \
		if (!(p)->s) {                                                                               \
			post_rc = MPI_##blocking(__VA_ARGS__);                                               \
		} else {                                                                                     \
			post_q = slot(p);                                                                    \
			post_rc = post_q ? MPI_I##blocking##_(__VA_ARGS__, post_q) : MPI_ERR_NO_MEM;         \
		}                                                                                            \
		if (post_rc)                                                                                 \
			return post_rc;                                                                      \
	} while (0)

/* Names of the non-blocking calls differ in case. */
#define MPI_IAllreduce_		   MPI_Iallreduce
#define MPI_IReduce_		   MPI_Ireduce
#define MPI_IReduce_scatter_block_ MPI_Ireduce_scatter_block
#define MPI_IAllgather_		   MPI_Iallgather
#define MPI_IBcast_		   MPI_Ibcast
#define MPI_IAlltoall_		   MPI_Ialltoall
#define MPI_IBarrier_		   MPI_Ibarrier
#define MPI_ISend_		   MPI_Isend
#define MPI_IGather_		   MPI_Igather
#define MPI_IScatter_		   MPI_Iscatter

static size_t part(size_t n, size_t at, size_t most)
{
	return n - at < most ? n - at : most;
}

static int post_all_reduce(struct poster *p)
{
	const struct dt_comm_op *o = p->op;

	for (size_t at = 0; at < o->n; at += dt_comm_mpi_max_count) {
		const void *src = o->src ? (const char *)o->src + at * p->esize : MPI_IN_PLACE;

		POST(p, Allreduce, src, (char *)o->dst + at * p->esize,
		     (int)part(o->n, at, dt_comm_mpi_max_count), p->type, dt_comm_mpi_op(o->t, o->op),
		     p->c->mpi);
	}
	return 0;
}

/* Whether dst is this rank's block of src. */
static bool scatter_aliased(const struct dt_comm *c, const struct dt_comm_op *o)
{
	return o->src &&
	       o->dst == (const char *)o->src + (size_t)c->rank * o->n * (size_t)dt_dtype_size(o->t);
}

static int post_reduce_scatter(struct poster *p)
{
	const struct dt_comm_op *o = p->op;
	bool inplace = !o->src || scatter_aliased(p->c, o);
	char *in = o->src ? (char *)(uintptr_t)o->src : o->dst;

	if (o->n * (size_t)p->c->size <= dt_comm_mpi_max_count) {
		POST(p, Reduce_scatter_block, inplace ? MPI_IN_PLACE : in, inplace ? in : o->dst, (int)o->n,
		     p->type, dt_comm_mpi_op(o->t, o->op), p->c->mpi);
		return 0;
	}
	for (int root = 0; root < p->c->size; root++)
		for (size_t at = 0; at < o->n; at += dt_comm_mpi_max_count) {
			char *src = in + ((size_t)root * o->n + at) * p->esize;
			char *dst = inplace ? src : (char *)o->dst + at * p->esize;
			bool mine = root == p->c->rank;

			POST(p, Reduce, mine && inplace ? MPI_IN_PLACE : src, mine ? dst : NULL,
			     (int)part(o->n, at, dt_comm_mpi_max_count), p->type, dt_comm_mpi_op(o->t, o->op),
			     root, p->c->mpi);
		}
	return 0;
}

/* count elements of type as one item of extent bytes, so that parts keep the stride of the whole */
static int strided(MPI_Datatype type, size_t count, size_t extent, MPI_Datatype *ret)
{
	MPI_Datatype run;
	int rc = MPI_Type_contiguous((int)count, type, &run);

	if (rc)
		return rc;
	rc = MPI_Type_create_resized(run, 0, (MPI_Aint)extent, ret);
	MPI_Type_free(&run);
	return rc ? rc : MPI_Type_commit(ret);
}

/* Blocks to or from the root: m items of type each. */
static int post_rooted(struct poster *p, const char *src, char *dst, int m, MPI_Datatype type)
{
	const struct dt_comm_op *o = p->op;
	bool root = p->c->rank == o->root;

	if (o->kind == DT_COMM_GATHER)
		POST(p, Gather, root && !o->src ? MPI_IN_PLACE : src, m, type, root ? dst : NULL, m, type,
		     o->root, p->c->mpi);
	else
		POST(p, Scatter, root ? src : NULL, m, type, root && !o->dst ? MPI_IN_PLACE : dst, m, type,
		     o->root, p->c->mpi);
	return 0;
}

static int post_strided(struct poster *p)
{
	const struct dt_comm_op *o = p->op;
	size_t most = dt_comm_mpi_max_count / (size_t)p->c->size, step = most ? most : 1;

	for (size_t at = 0; at < o->n; at += step) {
		const char *src = o->src ? (const char *)o->src + at * p->esize : MPI_IN_PLACE;
		char *dst = o->dst ? (char *)o->dst + at * p->esize : NULL;
		MPI_Datatype item;
		int rc = strided(p->type, part(o->n, at, step), o->n * p->esize, &item);

		if (rc)
			return rc;
		if (o->kind == DT_COMM_ALL_GATHER)
			POST(p, Allgather, src, 1, item, dst, 1, item, p->c->mpi);
		else if (o->kind == DT_COMM_ALL_TO_ALL)
			POST(p, Alltoall, src, 1, item, dst, 1, item, p->c->mpi);
		else if ((rc = post_rooted(p, src, dst, 1, item)))
			return rc;
		MPI_Type_free(&item); /* lives on until the operations that use it are done */
	}
	return 0;
}

static int post_moves(struct poster *p)
{
	const struct dt_comm_op *o = p->op;

	if (o->kind == DT_COMM_BARRIER) {
		POST(p, Barrier, p->c->mpi);
		return 0;
	}
	if (o->kind == DT_COMM_REDUCE) {
		bool root = p->c->rank == o->root;

		for (size_t at = 0; at < o->n; at += dt_comm_mpi_max_count)
			POST(p, Reduce, root && !o->src ? MPI_IN_PLACE : (const char *)o->src + at * p->esize,
			     root ? (char *)o->dst + at * p->esize : NULL,
			     (int)part(o->n, at, dt_comm_mpi_max_count), p->type, dt_comm_mpi_op(o->t, o->op),
			     o->root, p->c->mpi);
		return 0;
	}
	if ((o->kind == DT_COMM_GATHER || o->kind == DT_COMM_SCATTER) &&
	    o->n * (size_t)p->c->size <= dt_comm_mpi_max_count)
		return post_rooted(p, o->src, o->dst, (int)o->n, p->type);
	if (o->kind == DT_COMM_GATHER || o->kind == DT_COMM_SCATTER)
		return post_strided(p);
	if (o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_ALL_TO_ALL) {
		const void *src = o->src ? o->src : MPI_IN_PLACE;

		if (o->n * (size_t)p->c->size > dt_comm_mpi_max_count)
			return post_strided(p);
		if (o->kind == DT_COMM_ALL_GATHER)
			POST(p, Allgather, src, (int)o->n, p->type, o->dst, (int)o->n, p->type, p->c->mpi);
		else
			POST(p, Alltoall, src, (int)o->n, p->type, o->dst, (int)o->n, p->type, p->c->mpi);
		return 0;
	}
	/* an empty message is sent; an empty broadcast is not */
	for (size_t at = 0; at < o->n || (at == 0 && o->kind != DT_COMM_BROADCAST);
	     at += dt_comm_mpi_max_count) {
		char *dst = (char *)o->dst + (o->dst ? at * p->esize : 0);
		int m = (int)part(o->n, at, dt_comm_mpi_max_count);

		if (o->kind == DT_COMM_BROADCAST) {
			POST(p, Bcast, dst, m, p->type, o->root, p->c->mpi);
		} else if (o->kind == DT_COMM_SEND) {
			POST(p, Send, (const char *)o->src + (o->src ? at * p->esize : 0), m, p->type,
			     o->root, o->tag, p->c->mpi);
		} else {
			MPI_Request *q = slot(p);
			int rc = q ? MPI_Irecv(dst, m, p->type, o->root, o->tag, p->c->mpi, q)
				   : MPI_ERR_NO_MEM;

			if (rc)
				return rc;
		}
	}
	return 0;
}

static int post(struct dt_comm *c, const struct dt_comm_op *o, struct mpi_state *s, struct dt_err *err)
{
	struct poster p = {.c = c,
			   .op = o,
			   .type = dt_comm_mpi_type(o->t),
			   .esize = (size_t)dt_dtype_size(o->t),
			   .s = s};
	int rc = o->kind == DT_COMM_ALL_REDUCE	     ? post_all_reduce(&p)
		 : o->kind == DT_COMM_REDUCE_SCATTER ? post_reduce_scatter(&p)
						     : post_moves(&p);

	return rc ? dt_comm_mpi_error(err, rc, dt_comm_op_name(o->kind)) : 0;
}

/* Local work after MPI has completed. */
static void finish(struct dt_comm *c, const struct dt_comm_op *o)
{
	size_t bytes = o->n * (size_t)dt_dtype_size(o->t);

	if (o->kind == DT_COMM_REDUCE_SCATTER && o->n) {
		bool whole = o->n * (size_t)c->size <= dt_comm_mpi_max_count;
		const char *in = o->src ? o->src : o->dst;

		if (whole && scatter_aliased(c, o))
			memmove(o->dst, in, bytes);
		else if (!whole && !o->src)
			memmove(o->dst, in + (size_t)c->rank * bytes, bytes);
	}
	if ((o->kind == DT_COMM_ALL_REDUCE || o->kind == DT_COMM_REDUCE_SCATTER ||
	     (o->kind == DT_COMM_REDUCE && c->rank == o->root)) &&
	    o->op == DT_AVG)
		dt_comm_reduce_divide(o->dst, c->size, o->n, o->t);
}

static int mpi_start(struct dt_comm_req *r, struct dt_err *err)
{
	return post(r->c, &r->op, r->state, err);
}

static int mpi_step(struct dt_comm_req *r, struct dt_err *err)
{
	struct mpi_state *s = r->state;
	int flag = 0, rc = MPI_Testall(s->n, s->q, &flag, MPI_STATUSES_IGNORE);

	if (rc)
		return dt_comm_mpi_error(err, rc, dt_comm_op_name(r->op.kind));
	if (!flag)
		return 0;
	finish(r->c, &r->op);
	return 1;
}

static void mpi_release(struct dt_comm_req *r)
{
	free(((struct mpi_state *)r->state)->q);
}

static int mpi_run(struct dt_comm *c, const struct dt_comm_op *op, struct dt_err *err)
{
	int rc = post(c, op, NULL, err);

	if (!rc)
		finish(c, op);
	return rc;
}

const struct dt_comm_transport dt_comm_transport_mpi = {
	.name = "mpi",
	.state = sizeof(struct mpi_state),
	.release = mpi_release,
	.start = mpi_start,
	.step = mpi_step,
	.run = mpi_run,
};

/* A group of one rank: the result is the input. */
static int self_start(struct dt_comm_req *r, struct dt_err *err)
{
	const struct dt_comm_op *o = &r->op;

	if (o->src && o->dst && o->src != o->dst && o->n)
		memmove(o->dst, o->src, o->n * (size_t)dt_dtype_size(o->t));
	return 0;
}

static int self_step(struct dt_comm_req *r, struct dt_err *err)
{
	return 1;
}

const struct dt_comm_transport dt_comm_transport_self = {
	.name = "self", .start = self_start, .step = self_step};
/* SPDX-License-Identifier: Apache-2.0 */
