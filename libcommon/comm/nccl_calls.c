/* Executes operations as calls of NCCL. */
#include "comm/nccl_priv.h"

#include <errno.h>

int dt_comm_nccl_type(enum dt_dtype t)
{
	static const int type[DT_DTYPE_N] = {[DT_F32] = DT_NCCL_F32, [DT_BF16] = DT_NCCL_BF16,
					     [DT_F16] = DT_NCCL_F16, [DT_F64] = DT_NCCL_F64,
					     [DT_I32] = DT_NCCL_I32, [DT_I64] = DT_NCCL_I64,
					     [DT_U8] = DT_NCCL_U8,   [DT_U16] = -1,
					     [DT_I8] = DT_NCCL_I8};

	return type[t];
}

static int op_of(enum dt_redop op)
{
	return op == DT_SUM   ? DT_NCCL_SUM
	       : op == DT_MAX ? DT_NCCL_MAX
	       : op == DT_MIN ? DT_NCCL_MIN
			      : DT_NCCL_AVG;
}

/* All-to-all: block i to rank i. */
static int exchange(struct dt_comm *c, const char *src, char *dst, size_t bytes)
{
	const struct dt_comm_nccl_lib *lib = &c->w->nccl->lib;
	struct dt_comm_nccl_link *l = &c->nccl->all;
	void *comm = atomic_load(&l->comm);
	int rc = lib->GroupStart(), end;

	for (int i = 0; i < c->size && rc == DT_NCCL_SUCCESS; i++) {
		rc = lib->Send(src + (size_t)i * bytes, bytes, DT_NCCL_U8, i, comm, l->queue);
		if (rc == DT_NCCL_SUCCESS)
			rc = lib->Recv(dst + (size_t)i * bytes, bytes, DT_NCCL_U8, i, comm, l->queue);
	}
	end = lib->GroupEnd();
	return rc != DT_NCCL_SUCCESS ? rc : end;
}

/*
 * Gather and scatter: root exchanges one block with every other rank and copies its own, unless that is in
 * place already.
 */
static int spread(struct dt_comm *c, const struct dt_comm_op *o, size_t bytes)
{
	const struct dt_comm_nccl_lib *lib = &c->w->nccl->lib;
	const struct dt_comm_card *d = c->w->device.card;
	struct dt_comm_nccl_link *l = &c->nccl->all;
	void *comm = atomic_load(&l->comm);
	const bool gather = o->kind == DT_COMM_GATHER;
	char *wide = gather ? o->dst : (char *)o->src;
	int rc, end;

	if (c->rank != o->root)
		return gather ? lib->Send(o->src, bytes, DT_NCCL_U8, o->root, comm, l->queue)
			      : lib->Recv(o->dst, bytes, DT_NCCL_U8, o->root, comm, l->queue);
	rc = lib->GroupStart();
	for (int i = 0; i < c->size && rc == DT_NCCL_SUCCESS; i++) {
		char *at = wide + (size_t)i * bytes;

		if (i == c->rank)
			continue;
		rc = gather ? lib->Recv(at, bytes, DT_NCCL_U8, i, comm, l->queue)
			    : lib->Send(at, bytes, DT_NCCL_U8, i, comm, l->queue);
	}
	end = lib->GroupEnd();
	if (rc != DT_NCCL_SUCCESS || end != DT_NCCL_SUCCESS)
		return rc != DT_NCCL_SUCCESS ? rc : end;
	wide += (size_t)c->rank * bytes;
	if (gather && o->src)
		end = d->copy(c->w->device.arg, l->queue, wide, o->src, bytes);
	else if (!gather && o->dst)
		end = d->copy(c->w->device.arg, l->queue, o->dst, wide, bytes);
	return end;
}

/* All-to-all; in place through a copy in spare memory. */
static int turn_around(struct dt_comm *c, const struct dt_comm_op *o, size_t bytes)
{
	const struct dt_comm_device *d = &c->w->device;
	struct dt_comm_nccl_group *g = c->nccl;
	const size_t all = bytes * (size_t)c->size;
	int rc = 0;

	if (o->src)
		return exchange(c, o->src, o->dst, bytes);
	if (g->spare_n < all) {
		if (g->spare)
			d->card->free(d->arg, g->spare);
		g->spare = NULL;
		g->spare_n = 0;
		rc = d->card->alloc(d->arg, &g->spare, all);
		if (rc < 0)
			return rc;
		g->spare_n = all;
	}
	rc = d->card->copy(d->arg, g->all.queue, g->spare, o->dst, all);
	return rc < 0 ? rc : exchange(c, g->spare, o->dst, bytes);
}

/* In place: NCCL leaves the result in this rank's block, dt_reduce_scatter moves it to the front. */
static int reduce_scatter(struct dt_comm *c, const struct dt_comm_op *o, size_t bytes)
{
	const struct dt_comm_nccl_lib *lib = &c->w->nccl->lib;
	struct dt_comm_nccl_link *l = &c->nccl->all;
	char *block = (char *)o->dst + (size_t)c->rank * bytes;
	int rc = lib->ReduceScatter(o->src ? o->src : o->dst, o->src ? o->dst : block, o->n,
				    dt_comm_nccl_type(o->t), op_of(o->op), atomic_load(&l->comm), l->queue);

	if (rc == DT_NCCL_SUCCESS && !o->src && c->rank)
		rc = c->w->device.card->copy(c->w->device.arg, l->queue, o->dst, block, bytes);
	return rc;
}

/* Returns an ncclResult_t (positive) or a negative errno. */
static int collective(struct dt_comm *c, const struct dt_comm_op *o)
{
	const struct dt_comm_nccl_lib *lib = &c->w->nccl->lib;
	struct dt_comm_nccl_link *l = &c->nccl->all;
	void *comm = atomic_load(&l->comm), *q = l->queue;
	const void *src = o->src ? o->src : o->dst;
	const size_t bytes = o->n * (size_t)dt_dtype_size(o->t);

	switch (o->kind) {
	case DT_COMM_ALL_REDUCE:
		return lib->AllReduce(src, o->dst, o->n, dt_comm_nccl_type(o->t), op_of(o->op), comm, q);
	case DT_COMM_REDUCE:
		return lib->Reduce(src, o->dst, o->n, dt_comm_nccl_type(o->t), op_of(o->op), o->root, comm,
				   q);
	case DT_COMM_REDUCE_SCATTER:
		return reduce_scatter(c, o, bytes);
	case DT_COMM_ALL_GATHER:
		return lib->AllGather(o->src ? o->src : (char *)o->dst + (size_t)c->rank * bytes, o->dst,
				      bytes, DT_NCCL_U8, comm, q);
	case DT_COMM_BROADCAST:
		return lib->Broadcast(o->dst, o->dst, bytes, DT_NCCL_U8, o->root, comm, q);
	case DT_COMM_ALL_TO_ALL:
		return turn_around(c, o, bytes);
	default:
		return spread(c, o, bytes);
	}
}

static int message(struct dt_comm_nccl_link *l, const struct dt_comm_op *o)
{
	const size_t bytes = o->n * (size_t)dt_dtype_size(o->t);
	void *comm = atomic_load(&l->comm);

	if (o->kind == DT_COMM_SEND)
		return l->k->lib.Send(o->src, bytes, DT_NCCL_U8, 1, comm, l->queue);
	return l->k->lib.Recv(o->dst, bytes, DT_NCCL_U8, 0, comm, l->queue);
}

/* Until leave_nccl, dt_comm_nccl_give_up waits before it aborts communicators. False: they are aborted. */
static bool enter_nccl(struct dt_comm_nccl *k)
{
	atomic_store(&k->calling, 1);
	return !atomic_load(&k->given_up);
}

static void leave_nccl(struct dt_comm_nccl *k)
{
	atomic_store(&k->calling, 0);
}

int dt_comm_nccl_call(struct dt_comm *c, const struct dt_comm_op *o, struct dt_comm_nccl_link *l)
{
	int rc = !enter_nccl(l->k)				      ? -ETIMEDOUT
		 : o->kind == DT_COMM_SEND || o->kind == DT_COMM_RECV ? message(l, o)
								      : collective(c, o);

	leave_nccl(l->k);
	return rc;
}

int dt_comm_nccl_async_error(struct dt_comm_nccl_link *l)
{
	int word = DT_NCCL_SUCCESS;

	if (enter_nccl(l->k))
		l->k->lib.CommGetAsyncError(atomic_load(&l->comm), &word);
	leave_nccl(l->k);
	return word == DT_NCCL_IN_PROGRESS ? DT_NCCL_SUCCESS : word;
}
/* SPDX-License-Identifier: Apache-2.0 */
