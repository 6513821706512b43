/*
 * Collectives on buffers that every rank of the group can map: each rank does its share of the work on all
 * buffers, so every byte is read once and written once (2pS for an all-reduce of S bytes over p ranks, the
 * lower bound). The caller (shm.c) waits until all ranks have arrived before, and until all have finished
 * after.
 *
 * An all-gather pushes or pulls. If every result is registered, each rank pushes its block to all results
 * while the block is in its L1 and L2: it is read once, and lines in another core's cache are overwritten
 * without being fetched. Otherwise each rank pulls the blocks of all.
 */
#include "comm/shm.h"

#include <string.h>

#define PUSH_PAST ((size_t)1 << 10) /* bytes read once and written to all with non-temporal stores */

/* Which of this rank's src and dst the other ranks must map. */
static void needs(const struct dt_comm_req *r, bool *src, bool *dst)
{
	bool root = r->c->rank == r->op.root;

	switch (r->op.kind) {
	case DT_COMM_ALL_REDUCE:
	case DT_COMM_ALL_GATHER: /* either one is enough */
		*src = *dst = true;
		break;
	case DT_COMM_REDUCE:
		*src = true;
		*dst = root;
		break;
	case DT_COMM_GATHER:
		*src = false;
		*dst = root;
		break;
	case DT_COMM_BROADCAST:
	case DT_COMM_SCATTER:
		*src = root;
		*dst = false;
		break;
	default:
		*src = true;
		*dst = false;
	}
}

static size_t wide(const struct dt_comm_req *r, bool src)
{
	size_t p = (size_t)r->c->size;

	switch (r->op.kind) {
	case DT_COMM_REDUCE_SCATTER:
	case DT_COMM_SCATTER:
		return src ? p : 1;
	case DT_COMM_ALL_GATHER:
	case DT_COMM_GATHER:
		return src ? 1 : p;
	case DT_COMM_ALL_TO_ALL:
		return p;
	default:
		return 1;
	}
}

static const char *input(const struct dt_comm_req *r)
{
	const struct dt_comm_op *o = &r->op;
	bool mine = o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_GATHER;

	if (o->src)
		return o->src;
	return (char *)o->dst + (mine ? (size_t)r->c->rank * o->n * (size_t)dt_dtype_size(o->t) : 0);
}

void dt_comm_direct_offer(const struct dt_comm_req *r, struct dt_comm_offers *ret)
{
	size_t bytes = r->op.n * (size_t)dt_dtype_size(r->op.t);
	bool src, dst;

	needs(r, &src, &dst);
	ret->src = ret->dst = (struct dt_comm_offer){.region = 0};
	if (src)
		ret->src = dt_comm_region_find(r->c->w, input(r), bytes * wide(r, true));
	if (dst)
		ret->dst = dt_comm_region_find(r->c->w, r->op.dst, bytes * wide(r, false));
	if (r->op.kind == DT_COMM_ALL_TO_ALL && !r->op.src) /* two ranks would write what the other reads */
		ret->src.region = -1;
}

bool dt_comm_direct_choose(struct dt_comm_req *r, bool src, bool dst)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	if (r->op.kind != DT_COMM_ALL_GATHER)
		return src && dst;
	x->push = dst;
	return src || dst;
}

int dt_comm_direct_reach(struct dt_comm_req *r, const struct dt_comm_offers *o, int rank, struct dt_err *err)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	bool gather = r->op.kind == DT_COMM_ALL_GATHER;
	struct dt_comm *c = r->c;
	struct dt_comm_shm *s = c->shm;
	int rc = 0;

	s->peer_src[rank] = s->peer_dst[rank] = NULL;
	if (rank == c->rank) {
		s->peer_src[rank] = (char *)(uintptr_t)input(r);
		s->peer_dst[rank] = r->op.dst;
		return 0;
	}
	if (o->src.gen && !(gather && x->push))
		rc = dt_comm_region_reach(c->w, c->local[rank], &o->src, &s->peer_src[rank], err);
	if (!rc && o->dst.gen && !(gather && !x->push))
		rc = dt_comm_region_reach(c->w, c->local[rank], &o->dst, &s->peer_dst[rank], err);
	return rc;
}

static void put(const struct dt_comm_req *r, void *dst, const void *src, size_t bytes)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	if (dst == src)
		return;
	if (x->stream)
		dt_comm_copy_stream_open(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

/*
 * Writes bytes [from, from + m) of this rank's block to the results of all, its own first; with non-temporal
 * stores if the inputs and results of all would not fit into half of the last-level cache.
 */
static void push(const struct dt_comm_req *r, size_t block, size_t from, size_t m)
{
	size_t p = (size_t)r->c->size, me = (size_t)r->c->rank, step;
	struct dt_comm_shm *s = r->c->shm;
	const char *src = s->peer_src[me];
	bool past = (p + 1) * p * block > s->cache / 2;

	for (size_t end = from + m; from < end; from += step) {
		step = past ? PUSH_PAST : DT_COMM_COPY_BLOCK;
		step = end - from < step ? end - from : step;
		for (size_t i = 0; i < p; i++) {
			char *dst = s->peer_dst[(me + i) % p] + me * block;

			if (dst == src)
				continue;
			if (past)
				dt_comm_copy_stream_open(dst + from, src + from, step);
			else
				memcpy(dst + from, src + from, step);
		}
	}
	if (past)
		dt_comm_stream_fence();
}

/*
 * Reduces elements [lo, lo + m) of all src, from byte offset at on, to ndst buffers. Where every destination
 * replaces its source, its lines are cached already, so ordinary stores are used for any size.
 */
static void reduce(const struct dt_comm_req *r, size_t at, char *const *dst, int ndst, size_t lo, size_t m)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	size_t e = (size_t)dt_dtype_size(r->op.t);
	struct dt_comm_shm *s = r->c->shm;
	bool past = x->stream;

	for (int k = 0; k < ndst && past; k++)
		for (int j = 0; j < r->c->size && past; j++)
			past = dst[k] != s->peer_src[j] + at;
	for (size_t i = lo; i < lo + m; i += DT_COMM_REDUCE_BLOCK) {
		size_t n = lo + m - i < DT_COMM_REDUCE_BLOCK ? lo + m - i : DT_COMM_REDUCE_BLOCK;

		for (int j = 0; j < r->c->size; j++)
			s->src[j] = s->peer_src[j] + at + i * e;
		if (past) {
			dt_comm_reduce_stream(dst, ndst, i * e, s->src, r->c->size, n, r->op.t, r->op.op);
			continue;
		}
		dt_comm_reduce_many(dst[0] + i * e, s->src, r->c->size, n, r->op.t, r->op.op);
		for (int k = 1; k < ndst; k++)
			memcpy(dst[k] + i * e, dst[0] + i * e, n * e);
	}
}

/* This rank's share of the operation's n elements. */
static void share(const struct dt_comm_req *r, size_t *from, size_t *to)
{
	size_t p = (size_t)r->c->size, n = r->op.n, each = (n + p - 1) / p;

	*from = 0;
	*to = n;
	if (r->op.kind != DT_COMM_ALL_REDUCE && r->op.kind != DT_COMM_REDUCE)
		return;
	each = (each + 63) / 64 * 64;
	*from = (size_t)r->c->rank * each < n ? (size_t)r->c->rank * each : n;
	*to = *from + each < n ? *from + each : n;
}

bool dt_comm_direct_work(struct dt_comm_req *r, size_t most)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	const struct dt_comm_op *o = &r->op;
	struct dt_comm_shm *s = r->c->shm;
	size_t from, to, e = (size_t)dt_dtype_size(o->t), m, block = o->n * e, me = (size_t)r->c->rank;
	char *mine = s->peer_dst[me];

	share(r, &from, &to);
	from += x->a;
	m = most / e;
	m = to - from < m ? to - from : m;
	to -= from + m; /* remaining */
	switch (o->kind) {
	case DT_COMM_ALL_REDUCE:
		reduce(r, 0, s->peer_dst, r->c->size, from, m);
		break;
	case DT_COMM_REDUCE:
		reduce(r, 0, &s->peer_dst[o->root], 1, from, m);
		break;
	case DT_COMM_REDUCE_SCATTER: /* in place: others still read the front; see finish */
		mine += o->src ? 0 : me * block;
		reduce(r, me * block, &mine, 1, from, m);
		break;
	case DT_COMM_ALL_GATHER:
		if (x->push) {
			push(r, block, from * e, m * e);
			break;
		}
		for (int j = 0; j < r->c->size; j++)
			put(r, mine + (size_t)j * block + from * e, s->peer_src[j] + from * e, m * e);
		break;
	case DT_COMM_ALL_TO_ALL:
		for (int j = 0; j < r->c->size; j++)
			put(r, mine + (size_t)j * block + from * e, s->peer_src[j] + me * block + from * e,
			    m * e);
		break;
	case DT_COMM_BROADCAST:
		if (r->c->rank != o->root)
			put(r, mine + from * e, s->peer_src[o->root] + from * e, m * e);
		break;
	case DT_COMM_GATHER:
		put(r, s->peer_dst[o->root] + me * block + from * e, s->peer_src[me] + from * e, m * e);
		break;
	case DT_COMM_SCATTER:
		if (mine)
			put(r, mine + from * e, s->peer_src[o->root] + me * block + from * e, m * e);
		break;
	default:
		break;
	}
	if (x->stream)
		dt_comm_stream_fence();
	x->a += m;
	return !to;
}

void dt_comm_direct_finish(struct dt_comm_req *r)
{
	size_t block = r->op.n * (size_t)dt_dtype_size(r->op.t);

	if (r->op.kind == DT_COMM_REDUCE_SCATTER && !r->op.src && r->c->rank)
		memcpy(r->op.dst, (char *)r->op.dst + (size_t)r->c->rank * block, block);
}
/* SPDX-License-Identifier: Apache-2.0 */
