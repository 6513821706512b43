/*
 * Collectives between ranks of one machine through a shared segment.
 *
 * Each rank has two buffers of PIECE bytes in the segment, and the group has two more for results. An
 * operation is cut into pieces that fit; the buffers alternate, so one piece is read while the next is
 * written. The whole segment stays in the last-level cache, so memory traffic is little more than reading the
 * input once and writing the result once (with non-temporal stores where it does not fit in the cache): 2pS
 * bytes for an all-reduce of S bytes over p ranks, the lower bound.
 *
 * Phases of one piece, each rank by itself:
 *   a  copy the input into my buffer                        then IN[me] = k + 1
 *   b  when all IN > k: reduce my share of all buffers      then RED[me] = k + 1
 *   c  when all RED > k: copy the result out                then OUT[me] = k + 1
 * and phase a of piece k + 2 waits for all OUT > k. Small all-reduces skip c: every rank reduces everything.
 * The other collectives have phases a and b only. Each counter has one writer and only grows. Every element
 * is reduced in rank order, so all ranks get the same bits.
 *
 * The latency of small operations is that of moving a cache line between two cores, so they move one line: an
 * input of up to TINY bytes is stored beside its IN counter (two alternate, like the buffers), and OUT is not
 * read for a piece that is known to be done. A rank that has arrived at an operation has done all before it.
 *
 * From MEET_LEAST bytes on ranks first exchange the places of their buffers. If all are registered, the
 * ranks work on the buffers themselves (shm_direct.c), otherwise in pieces. The exchange takes one more
 * number: IN = k + 1 means that a rank has arrived, OUT past the whole operation that its share is done.
 *
 * A waiting rank spins, yields, then sleeps on a futex, which is woken only if some rank sleeps.
 */
#include "comm/shm.h"

#include "base/progress.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PIECE	     ((size_t)256 << 10)
#define SMALL	     ((size_t)256 << 10) /* bytes over all ranks: every rank reduces everything */
#define STREAM_LEAST ((size_t)1 << 20)	 /* larger results are written with non-temporal stores */
#define MEET_LEAST   ((size_t)32 << 10)
#define WORK	     ((size_t)1 << 20) /* bytes of work before other operations are stepped */

#define TINY	  ((size_t)56)
#define TRY_EVERY 16
#define PATIENCE  32 /* idle steps before sleepers are woken: the fence waits for our own stores */

enum { RED, OUT, IN };

struct dt_comm_shm_line {
	struct {
		_Alignas(128) _Atomic uint64_t v;
		char tiny[TINY];
	} in[2];
	_Alignas(128) _Atomic uint64_t v[2]; /* RED, OUT */
	struct dt_comm_offers offers;
};

struct dt_comm_shm_header {
	_Alignas(128) _Atomic uint32_t event;
	_Alignas(128) _Atomic uint32_t sleepers;
};

int dt_comm_shm_open(struct dt_comm *c, struct dt_err *err)
{
	size_t p = (size_t)c->size,
	       lines = sizeof(struct dt_comm_shm_header) + p * sizeof(struct dt_comm_shm_line), cache;
	struct dt_comm_shm *s = calloc(1, sizeof(*s));
	long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
	void *base;
	int rc;

	lines = (lines + 4095) / 4096 * 4096;
	if (s) {
		s->src = calloc(p, sizeof(*s->src));
		s->peer_src = calloc(2 * p, sizeof(*s->peer_src));
	}
	if (!s || !s->src || !s->peer_src) {
		if (s) {
			free(s->src);
			free(s->peer_src);
		}
		free(s);
		return dt_err_sys(err, -ENOMEM, "shared memory of group %s", c->name);
	}
	s->bytes = lines + (p + 1) * 2 * PIECE;
	rc = dt_comm_shared_map(c->mpi, s->bytes, &base, err);
	if (rc) {
		free(s->src);
		free(s->peer_src);
		free(s);
		return rc;
	}
	s->peer_dst = s->peer_src + p;
	s->h = base;
	s->line = (struct dt_comm_shm_line *)((char *)base + sizeof(struct dt_comm_shm_header));
	s->in = (char *)base + lines;
	s->result = s->in + p * 2 * PIECE;
	s->cache = l3 > 0 ? (size_t)l3 : 2 * STREAM_LEAST;
	cache = l3 > 0 ? (size_t)l3 / (2 * p) : STREAM_LEAST;
	s->stream = cache < STREAM_LEAST ? cache : STREAM_LEAST;
	c->shm = s;
	return 0;
}

void dt_comm_shm_close(struct dt_comm *c)
{
	if (!c->shm)
		return;
	munmap(c->shm->h, c->shm->bytes);
	free(c->shm->src);
	free(c->shm->peer_src);
	free(c->shm);
	c->shm = NULL;
}

/* IN has two counters in turn: value k is written to that of piece k - 1. */
static _Atomic uint64_t *counter(const struct dt_comm *c, int rank, int which, uint64_t k)
{
	struct dt_comm_shm_line *l = &c->shm->line[rank];

	return which == IN ? &l->in[(k - 1) & 1].v : &l->v[which];
}

static bool all_past(const struct dt_comm *c, int which, uint64_t k)
{
	for (int r = 0; r < c->size; r++)
		if (atomic_load_explicit(counter(c, r, which, k), memory_order_acquire) < k)
			return false;
	return true;
}

static void wake(struct dt_comm *c)
{
	struct dt_comm_shm_header *h = c->shm->h;

	c->shm->told = 0;
	/* either this rank sees the sleeper, or the sleeper sees the counter */
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&h->sleepers, memory_order_relaxed)) {
		atomic_fetch_add(&h->event, 1);
		syscall(SYS_futex, &h->event, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	}
}

/* Sleepers are woken after a short wait or at the end of the operation: the fence then costs nothing. */
static void publish(struct dt_comm *c, int which, uint64_t k)
{
	atomic_store_explicit(counter(c, c->rank, which, k), k, memory_order_release);
	if (c->w->crowded)
		wake(c);
	else if (!c->shm->told)
		c->shm->told = 1;
}

static void shm_sleep(struct dt_comm *c)
{
	struct dt_comm_shm_header *h = c->shm->h;
	struct timespec most = {0, 1000000};
	struct dt_comm_req *r = c->head;
	uint32_t event;

	if (c->shm->told)
		wake(c);
	atomic_fetch_add(&h->sleepers, 1);
	event = atomic_load(&h->event);
	dt_comm_step_all(c->w);
	if (c->head == r && r)
		syscall(SYS_futex, &h->event, FUTEX_WAIT, event, &most, NULL, 0);
	atomic_fetch_sub(&h->sleepers, 1);
}

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
	p.tiny = p.m * p.e * (blocks(o->kind) ? (size_t)r->c->size : 1) <= TINY;
	p.src = o->src ? o->src : o->dst;
	if ((o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_GATHER) && !o->src)
		p.src += (size_t)r->c->rank * o->n * p.e;
	return p;
}

static char *buffer(const struct piece *p, int rank)
{
	if (p->tiny)
		return p->c->shm->line[rank].in[p->buf].tiny;
	return p->c->shm->in + ((size_t)rank * 2 + (size_t)p->buf) * PIECE;
}

static char *result(const struct piece *p)
{
	return p->c->shm->result + (size_t)p->buf * PIECE;
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
	share(&p, p.c->rank, &from, &end); /* is there already */
	copy_out(r, dst, result(&p), from * p.e);
	copy_out(r, dst + end * p.e, result(&p) + end * p.e, (p.m - end) * p.e);
}

static bool wide(enum dt_comm_op_kind k)
{
	return k == DT_COMM_ALL_GATHER || k == DT_COMM_ALL_TO_ALL || k == DT_COMM_REDUCE_SCATTER ||
	       k == DT_COMM_GATHER || k == DT_COMM_SCATTER;
}

static int shm_start(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	const struct dt_comm_op *o = &r->op;
	size_t most = PIECE / (size_t)dt_dtype_size(o->t), p = (size_t)r->c->size;
	size_t bytes = o->n * (size_t)dt_dtype_size(o->t);

	if (blocks(o->kind))
		most /= p;
	x->piece_n = most > 64 ? most / 64 * 64 : most;
	if (!x->piece_n)
		return dt_err_set(err, -ENOTSUP, "%s '%s': %d ranks on one machine are too many",
				  dt_comm_op_name(o->kind), o->what, r->c->size);
	/* a result in place is cached when it is written: its lines were read */
	x->stream = (o->src || !dt_comm_op_reduces(o->kind)) &&
		    bytes * (o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_ALL_TO_ALL ? p : 1) >=
			    r->c->shm->stream;
	x->past = three_phases(r) && pick_past(r->c->shm, r->c->w->crowded);
	x->meet = bytes * (wide(o->kind) ? p : 1) >= MEET_LEAST;
	x->pieces = o->kind == DT_COMM_BARRIER ? 1 : (o->n + x->piece_n - 1) / x->piece_n;
	x->base = r->c->shm->next;
	r->c->shm->next += x->pieces + x->meet;
	return 0;
}

static bool step_pieces(struct dt_comm_req *r)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	struct dt_comm *c = r->c;
	bool three = three_phases(r), moved = true;

	while (moved) {
		uint64_t k = x->base + x->a;

		moved = false;
		if (x->a < x->pieces && (k < 2 || c->shm->known >= k - 1 || all_past(c, OUT, k - 1))) {
			phase_a(r, x->a);
			publish(c, IN, k + 1);
			x->a++;
			moved = true;
		}
		k = x->base + x->b;
		if (x->b < x->a && all_past(c, IN, k + 1)) {
			if (three && !x->b) /* the time from here on is this rank's own */
				x->met = r->waited ? dt_now() : 0;
			phase_b(r, x->b);
			if (!three && x->pieces == 1) /* no rank waits for this counter */
				atomic_store_explicit(&c->shm->line[c->rank].v[OUT], k + 1,
						      memory_order_release);
			else
				publish(c, three ? RED : OUT, k + 1);
			x->b++;
			if (!three)
				x->c++;
			moved = true;
		}
		k = x->base + x->c;
		if (three && x->c < x->b && all_past(c, RED, k + 1)) {
			phase_c(r, x->c);
			publish(c, OUT, k + 1);
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

/* All ranks have arrived: are all buffers registered? Every rank finds the same answer. */
static int decide(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	struct dt_comm *c = r->c;
	bool src = true, dst = true, direct;
	int rc = 0;

	for (int j = 0; j < c->size; j++) {
		const struct dt_comm_offers *o = &c->shm->line[j].offers;

		src &= o->src.region >= 0;
		dst &= o->dst.region >= 0;
	}
	direct = dt_comm_direct_choose(r, src, dst);
	for (int j = 0; j < c->size && direct && !rc; j++)
		rc = dt_comm_direct_reach(r, &c->shm->line[j].offers, j, err);
	if (rc)
		return rc;
	x->way = direct ? DT_COMM_WAY_DIRECT : DT_COMM_WAY_PIECES;
	x->base++;
	if (!direct)
		publish(c, OUT, x->base);
	return 0;
}

static int step(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	struct dt_comm *c = r->c;
	int rc;

	if (!x->meet)
		return step_pieces(r);
	if (x->way == DT_COMM_WAY_UNKNOWN) {
		dt_comm_direct_offer(r, &c->shm->line[c->rank].offers);
		publish(c, IN, x->base + 1);
		x->way = DT_COMM_WAY_ARRIVED;
	}
	if (x->way == DT_COMM_WAY_ARRIVED) {
		if (!all_past(c, IN, x->base + 1))
			return 0;
		rc = decide(r, err);
		if (rc)
			return rc;
	}
	if (x->way == DT_COMM_WAY_PIECES)
		return step_pieces(r);
	if (x->way == DT_COMM_WAY_DIRECT) {
		if (!dt_comm_direct_work(r, WORK))
			return 0;
		x->way = DT_COMM_WAY_LEAVING;
		publish(c, OUT, x->base + x->pieces); /* counts the pieces that were not needed */
	}
	if (!all_past(c, OUT, x->base + x->pieces))
		return 0;
	dt_comm_direct_finish(r);
	c->shm->direct++;
	return 1;
}

static int shm_step(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_shm *s = r->c->shm;
	int rc = step(r, err);

	if (s->told && (rc || !r->waited || ++s->told > PATIENCE))
		wake(r->c);
	return rc;
}

static size_t shm_progress(const struct dt_comm_req *r)
{
	const struct dt_comm_shm_state *x = dt_comm_shm_state(r);

	return x->a + x->b + x->c;
}

const struct dt_comm_transport dt_comm_transport_shm = {
	.name = "shm",
	.state = sizeof(struct dt_comm_shm_state),
	.ordered = true,
	.start = shm_start,
	.step = shm_step,
	.progress = shm_progress,
	.sleep = shm_sleep,
};
