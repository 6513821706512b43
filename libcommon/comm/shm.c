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

#define STREAM_LEAST ((size_t)1 << 20) /* larger results are written with non-temporal stores */
#define MEET_LEAST   ((size_t)32 << 10)
#define WORK	     ((size_t)1 << 20) /* bytes of work before other operations are stepped */
#define PATIENCE     32 /* idle steps before sleepers are woken: the fence waits for our own stores */

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
	s->bytes = lines + (p + 1) * 2 * DT_COMM_SHM_PIECE;
	rc = dt_comm_shared_map(c->w, c->mpi, c->ranks, c->size, s->bytes, &base, err);
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
	s->result = s->in + p * 2 * DT_COMM_SHM_PIECE;
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
void dt_comm_shm_publish(struct dt_comm *c, int which, uint64_t k)
{
	atomic_store_explicit(dt_comm_shm_counter(c, c->rank, which, k), k, memory_order_release);
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

static bool wide(enum dt_comm_op_kind k)
{
	return k == DT_COMM_ALL_GATHER || k == DT_COMM_ALL_TO_ALL || k == DT_COMM_REDUCE_SCATTER ||
	       k == DT_COMM_GATHER || k == DT_COMM_SCATTER;
}

static int shm_start(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	const struct dt_comm_op *o = &r->op;
	size_t p = (size_t)r->c->size, bytes = o->n * (size_t)dt_dtype_size(o->t);
	int rc = dt_comm_pieces_start(r, err);

	if (rc)
		return rc;
	/* a result in place is cached when it is written: its lines were read */
	x->stream = (o->src || !dt_comm_op_reduces(o->kind)) &&
		    bytes * (o->kind == DT_COMM_ALL_GATHER || o->kind == DT_COMM_ALL_TO_ALL ? p : 1) >=
			    r->c->shm->stream;
	x->meet = bytes * (wide(o->kind) ? p : 1) >= MEET_LEAST;
	x->base = r->c->shm->next;
	r->c->shm->next += x->pieces + x->meet;
	return 0;
}

/* When all ranks have arrived: decides if all buffers are registered. All ranks find the same result. */
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
		dt_comm_shm_publish(c, DT_COMM_SHM_OUT, x->base);
	return 0;
}

static int step(struct dt_comm_req *r, struct dt_err *err)
{
	struct dt_comm_shm_state *x = dt_comm_shm_state(r);
	struct dt_comm *c = r->c;
	int rc;

	if (!x->meet)
		return dt_comm_pieces_step(r);
	if (x->way == DT_COMM_WAY_UNKNOWN) {
		dt_comm_direct_offer(r, &c->shm->line[c->rank].offers);
		dt_comm_shm_publish(c, DT_COMM_SHM_IN, x->base + 1);
		x->way = DT_COMM_WAY_ARRIVED;
	}
	if (x->way == DT_COMM_WAY_ARRIVED) {
		if (!dt_comm_shm_all_past(c, DT_COMM_SHM_IN, x->base + 1))
			return 0;
		rc = decide(r, err);
		if (rc)
			return rc;
	}
	if (x->way == DT_COMM_WAY_PIECES)
		return dt_comm_pieces_step(r);
	if (x->way == DT_COMM_WAY_DIRECT) {
		if (!dt_comm_direct_work(r, WORK))
			return 0;
		x->way = DT_COMM_WAY_LEAVING;
		dt_comm_shm_publish(c, DT_COMM_SHM_OUT, x->base + x->pieces); /* counts the unused pieces */
	}
	if (!dt_comm_shm_all_past(c, DT_COMM_SHM_OUT, x->base + x->pieces))
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
/* SPDX-License-Identifier: Apache-2.0 */
