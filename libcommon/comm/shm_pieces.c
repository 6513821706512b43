/* Collectives in pieces through the buffers of the segment; the phases are described in shm.c. */
#include "comm/shm.h"

#include "base/progress.h"

#include <errno.h>
#include <string.h>

#define SMALL	  ((size_t)256 << 10) /* bytes over all ranks: every rank reduces everything */
#define TRY_EVERY 16

/* One piece: elements [lo, lo + m) of every block of the operation. */
struct piece {
	struct dt_comm *c;
	const struct dt_comm_op *o;
	size_t e, lo, m;
	int buf;
	bool tiny;	 /* stored beside the counter */
	const char *src; /* input, in place or not; for an in-place all-gather this rank's own block */
};

/* Whether a rank's buffer holds one block for each rank. */
static bool blocks(enum dt_comm_op_kind k)
{
	return k == DT_COMM_REDUCE_SCATTER || k == DT_COMM_ALL_TO_ALL || k == DT_COMM_SCATTER;
}

static struct piece piece_at(const struct dt_comm_req *r, size_t i)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	const struct dt_comm_op *o = &r->op;
	struct piece p = {.c = r->c, .o = o, .e = (size_t)dt_dtype_size(o->t), .lo = i * x->piece_n};

	p.m = o->n - p.lo < x->piece_n ? o->n - p.lo : x->piece_n;
	p.buf = (int)((x->base + i) & 1);
	p.tiny = p.m * p.e * (blocks(o->kind) ? (size_t)r->c->size : 1) <= DT_COMM_SHM_TINY;
	p.src = o->src ? o->src : o->dst;
	if ((o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_GATHER) && !o->src)
		p.src += (size_t)r->c->rank * o->n * p.e;
	return p;
}

static char *buffer(const struct piece *p, int rank)
{
	if (p->tiny)
		return p->c->shm->line[rank].in[p->buf].tiny;
	return p->c->shm->in + ((size_t)rank * 2 + (size_t)p->buf) * DT_COMM_SHM_PIECE;
}

static char *result(const struct piece *p)
{
	return p->c->shm->result + (size_t)p->buf * DT_COMM_SHM_PIECE;
}

static void copy_out(const struct dt_comm_req *r, void *dst, const void *src, size_t bytes)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	if (x->stream)
		dt_comm_copy_stream(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

/* Elements [*from, *to) of a piece of an all-reduce are this rank's to reduce. */
static void share(const struct piece *p, int rank, size_t *from, size_t *to)
{
	size_t each = (p->m + (size_t)p->c->size - 1) / (size_t)p->c->size;

	each = (each + 63) / 64 * 64;
	*from = (size_t)rank * each < p->m ? (size_t)rank * each : p->m;
	*to = *from + each < p->m ? *from + each : p->m;
}

static bool small(const struct dt_comm_req *r)
{
	return r->op.n * (size_t)dt_dtype_size(r->op.t) * (size_t)r->c->size <= SMALL;
}

static bool three_phases(const struct dt_comm_req *r)
{
	return (r->op.kind == DT_COMM_ALL_REDUCE || r->op.kind == DT_COMM_REDUCE) && !small(r);
}

static void put(bool past, char *dst, const char *src, size_t bytes)
{
	if (past)
		dt_comm_copy_stream_open(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

static void phase_a(const struct dt_comm_req *r, size_t i)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	struct piece p = piece_at(r, i);
	int me = p.c->rank, n = p.c->size;
	char *to = buffer(&p, me);
	size_t from, end;

	switch (p.o->kind) {
	case DT_COMM_ALL_REDUCE:
	case DT_COMM_REDUCE:
		if (small(r)) {
			memcpy(to, p.src, p.m * p.e);
			break;
		}
		share(&p, me, &from, &end); /* no other rank reads this rank's share */
		put(x->past, to, p.src + p.lo * p.e, from * p.e);
		put(x->past, to + end * p.e, p.src + (p.lo + end) * p.e, (p.m - end) * p.e);
		if (x->past)
			dt_comm_stream_fence();
		break;
	case DT_COMM_REDUCE_SCATTER:
	case DT_COMM_ALL_TO_ALL:
		for (int j = 0; j < n; j++)
			if (j != me)
				memcpy(to + (size_t)j * p.m * p.e, p.src + ((size_t)j * p.o->n + p.lo) * p.e,
				       p.m * p.e);
		break;
	case DT_COMM_ALL_GATHER:
		memcpy(to, p.src + p.lo * p.e, p.m * p.e);
		break;
	case DT_COMM_BROADCAST:
		if (me == p.o->root)
			memcpy(to, p.src + p.lo * p.e, p.m * p.e);
		break;
	case DT_COMM_GATHER:
		if (me != p.o->root)
			memcpy(to, p.src + p.lo * p.e, p.m * p.e);
		break;
	case DT_COMM_SCATTER:
		for (int j = 0; j < n && me == p.o->root; j++)
			if (j != me)
				memcpy(to + (size_t)j * p.m * p.e, p.src + ((size_t)j * p.o->n + p.lo) * p.e,
				       p.m * p.e);
		break;
	default:
		break;
	}
}

/* dst = reduction over ranks of m elements at offset in their buffers; own: this rank's input. */
static void reduce(const struct piece *p, char *dst, size_t offset, const char *own, size_t m)
{
	const void **src = p->c->shm->src;

	for (int j = 0; j < p->c->size; j++)
		src[j] = j == p->c->rank ? own : buffer(p, j) + offset;
	dt_comm_reduce_many(dst, src, p->c->size, m, p->o->t, p->o->op);
}

/*
 * Whether non-temporal stores hand results to the other ranks faster than cached ones: not if the cores share
 * a cache; twice as fast if they do not and would fetch lines from each other. The scheduler may move ranks,
 * so both ways are timed, the unused one every TRY_EVERY calls. Each rank decides for itself; the results are
 * the same bits.
 */
static bool pick_past(struct dt_comm_shm *s, bool crowded)
{
	bool past = s->pace[1] < s->pace[0];

	if (crowded)
		return false;
	return s->paced++ % TRY_EVERY == 0 ? !past : past;
}

static void note_pace(struct dt_comm_req *r)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	size_t bytes = r->op.n * (size_t)dt_dtype_size(r->op.t);
	double *pace = &r->c->shm->pace[x->past], now = (dt_now() - x->met) / (double)bytes;

	if (x->met > 0)
		*pace = *pace > 0 && now > 2 * *pace ? 1.5 * *pace : *pace > 0 ? (*pace + now) / 2 : now;
}

/* Writes this rank's share for the others and, while it is in L1, to its own result. */
static void reduce_share(const struct dt_comm_req *r, const struct piece *p, char *dst, size_t from,
			 size_t end)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	bool mine = p->o->kind == DT_COMM_ALL_REDUCE || p->c->rank == p->o->root;
	_Alignas(64) char block[DT_COMM_REDUCE_BLOCK * 8];

	for (size_t i = from, m; i < end; i += m) {
		char *to = result(p) + i * p->e, *sum = x->past ? block : to;

		m = end - i < DT_COMM_REDUCE_BLOCK ? end - i : DT_COMM_REDUCE_BLOCK;
		reduce(p, sum, i * p->e, p->src + (p->lo + i) * p->e, m);
		if (x->past)
			dt_comm_copy_stream_open(to, sum, m * p->e);
		if (mine)
			put(x->stream, dst + i * p->e, sum, m * p->e);
	}
	if (x->past || (mine && x->stream))
		dt_comm_stream_fence();
}

static void phase_b(const struct dt_comm_req *r, size_t i)
{
	struct piece p = piece_at(r, i);
	int me = p.c->rank, n = p.c->size;
	char *dst = (char *)p.o->dst + (p.o->dst ? p.lo * p.e : 0);
	size_t block = p.o->n * p.e, from, end;

	switch (p.o->kind) {
	case DT_COMM_ALL_REDUCE:
	case DT_COMM_REDUCE:
		if (small(r)) {
			if (p.o->kind == DT_COMM_ALL_REDUCE || me == p.o->root)
				reduce(&p, dst, 0, p.src, p.m);
			break;
		}
		share(&p, me, &from, &end);
		reduce_share(r, &p, dst, from, end);
		break;
	case DT_COMM_REDUCE_SCATTER:
		reduce(&p, dst, (size_t)me * p.m * p.e, p.src + (size_t)me * block + p.lo * p.e, p.m);
		break;
	case DT_COMM_SCATTER:
		if (me != p.o->root)
			copy_out(r, dst, buffer(&p, p.o->root) + (size_t)me * p.m * p.e, p.m * p.e);
		else if (dst)
			copy_out(r, dst, p.src + (size_t)me * block + p.lo * p.e, p.m * p.e);
		break;
	case DT_COMM_GATHER:
		if (me != p.o->root)
			break;
		/* the root has all ranks' blocks */
		/* fall through */
	case DT_COMM_ALL_GATHER:
		for (int j = 0; j < n; j++)
			if (j != me)
				copy_out(r, dst + (size_t)j * block, buffer(&p, j), p.m * p.e);
			else if (p.o->src)
				copy_out(r, dst + (size_t)j * block, p.src + p.lo * p.e, p.m * p.e);
		break;
	case DT_COMM_ALL_TO_ALL:
		for (int j = 0; j < n; j++)
			if (j != me)
				copy_out(r, dst + (size_t)j * block, buffer(&p, j) + (size_t)me * p.m * p.e,
					 p.m * p.e);
			else if (p.o->src)
				copy_out(r, dst + (size_t)j * block, p.src + (size_t)j * block + p.lo * p.e,
					 p.m * p.e);
		break;
	case DT_COMM_BROADCAST:
		if (me != p.o->root)
			copy_out(r, dst, buffer(&p, p.o->root), p.m * p.e);
		break;
	default:
		break;
	}
}

static void phase_c(const struct dt_comm_req *r, size_t i)
{
	struct piece p = piece_at(r, i);
	size_t from, end;
	char *dst;

	if (p.o->kind == DT_COMM_REDUCE && p.c->rank != p.o->root)
		return;
	dst = (char *)p.o->dst + p.lo * p.e;
	share(&p, p.c->rank, &from, &end); /* that share is in place already */
	copy_out(r, dst, result(&p), from * p.e);
	copy_out(r, dst + end * p.e, result(&p) + end * p.e, (p.m - end) * p.e);
}

int dt_comm_pieces_start(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	const struct dt_comm_op *o = &r->op;
	size_t most = DT_COMM_SHM_PIECE / (size_t)dt_dtype_size(o->t);

	if (blocks(o->kind))
		most /= (size_t)r->c->size;
	x->piece_n = most > 64 ? most / 64 * 64 : most;
	if (!x->piece_n)
		return dt_err_set(err, -ENOTSUP, "%s '%s': %d ranks on one machine are too many",
				  dt_comm_op_name(o->kind), o->what, r->c->size);
	x->past = three_phases(r) && pick_past(r->c->shm, r->c->w->crowded);
	x->pieces = o->kind == DT_COMM_BARRIER ? 1 : (o->n + x->piece_n - 1) / x->piece_n;
	return 0;
}

bool dt_comm_pieces_step(struct dt_comm_req *r)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	struct dt_comm *c = r->c;
	bool three = three_phases(r), moved = true;

	while (moved) {
		uint64_t k = x->base + x->a;

		moved = false;
		if (x->a < x->pieces &&
		    (k < 2 || c->shm->known >= k - 1 || dt_comm_shm_all_past(c, DT_COMM_SHM_OUT, k - 1))) {
			phase_a(r, x->a);
			dt_comm_shm_publish(c, DT_COMM_SHM_IN, k + 1);
			x->a++;
			moved = true;
		}
		k = x->base + x->b;
		if (x->b < x->a && dt_comm_shm_all_past(c, DT_COMM_SHM_IN, k + 1)) {
			if (three && !x->b) /* from here on the time is this rank's own work */
				x->met = r->waited ? dt_now() : 0;
			phase_b(r, x->b);
			if (!three && x->pieces == 1) /* no rank waits for this counter */
				atomic_store_explicit(&c->shm->line[c->rank].v[DT_COMM_SHM_OUT], k + 1,
						      memory_order_release);
			else
				dt_comm_shm_publish(c, three ? DT_COMM_SHM_RED : DT_COMM_SHM_OUT, k + 1);
			x->b++;
			if (!three)
				x->c++;
			moved = true;
		}
		k = x->base + x->c;
		if (three && x->c < x->b && dt_comm_shm_all_past(c, DT_COMM_SHM_RED, k + 1)) {
			phase_c(r, x->c);
			dt_comm_shm_publish(c, DT_COMM_SHM_OUT, k + 1);
			x->c++;
			moved = true;
		}
	}
	if (x->c < x->pieces)
		return false;
	if (x->pieces) /* all had arrived */
		c->shm->known = x->base;
	if (three)
		note_pace(r);
	return true;
}
/* SPDX-License-Identifier: Apache-2.0 */
