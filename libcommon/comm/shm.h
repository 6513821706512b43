/* Shared by shm.c, shm_pieces.c and shm_direct.c: the segment, a request's state, counters. */
#ifndef DT_COMM_SHM_H
#define DT_COMM_SHM_H

#include "comm/internal.h"

#define DT_COMM_SHM_PIECE ((size_t)256 << 10) /* bytes of a buffer */
#define DT_COMM_SHM_TINY  ((size_t)56)	      /* bytes of an input stored beside its counter */

/* The buffers that a rank offers for one operation. region -1: not registered; gen 0: not needed. */
struct dt_comm_offers {
	struct dt_comm_offer src, dst;
};

enum { DT_COMM_SHM_RED, DT_COMM_SHM_OUT, DT_COMM_SHM_IN };

struct dt_comm_shm_line {
	struct {
		_Alignas(128) _Atomic uint64_t v;
		char tiny[DT_COMM_SHM_TINY];
	} in[2];
	_Alignas(128) _Atomic uint64_t v[2]; /* RED, OUT */
	struct dt_comm_offers offers;
};

struct dt_comm_shm_header {
	_Alignas(128) _Atomic uint32_t event;
	_Alignas(128) _Atomic uint32_t sleepers;
};

struct dt_comm_shm {
	struct dt_comm_shm_header *h;
	struct dt_comm_shm_line *line; /* [size] */
	char *in, *result;
	size_t bytes;
	uint64_t next;	/* number of the next piece */
	uint64_t known; /* all ranks have done the pieces before this one */
	int told;	/* 0: no wake-up is due; else 1 + steps since a counter was written */
	size_t stream;	/* results of this size and more use non-temporal stores */
	size_t cache;	/* bytes of the last-level cache */
	double pace[2]; /* seconds a byte of three phases with cached, non-temporal stores; 0: unknown */
	unsigned paced;
	uint64_t direct; /* operations done on registered buffers */
	const void **src;
	char **peer_src, **peer_dst; /* [size]: buffers of the operation under way; NULL: not needed */
};

enum dt_comm_shm_way {
	DT_COMM_WAY_UNKNOWN,
	DT_COMM_WAY_ARRIVED,
	DT_COMM_WAY_PIECES,
	DT_COMM_WAY_DIRECT,
	DT_COMM_WAY_LEAVING,
};

/* Private state of a request. The operation is cut into pieces; a, b, c: pieces past each phase. */
struct dt_comm_shm_state {
	uint64_t base;
	size_t pieces, piece_n, a, b, c;
	bool meet;   /* ranks exchange the places of their buffers first */
	bool stream; /* non-temporal stores of the result */
	bool past;   /* non-temporal stores of what ranks hand each other */
	bool push;   /* blocks are written to the others, not read from them */
	double met;  /* when all had arrived; 0: unknown */
	enum dt_comm_shm_way way;
};

static inline struct dt_comm_shm_state *dt_comm_shm_state(const struct dt_comm_req *r)
{
	return r->state;
}

void dt_comm_direct_offer(const struct dt_comm_req *r, struct dt_comm_offers *ret);
/*
 * Whether the operation can work on the buffers; src, dst: every rank's src, every rank's dst is registered.
 * The same answer on all ranks.
 */
bool dt_comm_direct_choose(struct dt_comm_req *r, bool src, bool dst);
int dt_comm_direct_reach(struct dt_comm_req *r, const struct dt_comm_offers *o, int rank, struct dt_err *err);
/* Does at most so many bytes of this rank's share; returns whether the share is done. */
bool dt_comm_direct_work(struct dt_comm_req *r, size_t most);
/* After all ranks are done. */
void dt_comm_direct_finish(struct dt_comm_req *r);

/* IN has two counters in turn: value k is written to that of piece k - 1. */
static inline _Atomic uint64_t *dt_comm_shm_counter(const struct dt_comm *c, int rank, int which, uint64_t k)
{
	struct dt_comm_shm_line *l = &c->shm->line[rank];

	return which == DT_COMM_SHM_IN ? &l->in[(k - 1) & 1].v : &l->v[which];
}

static inline bool dt_comm_shm_all_past(const struct dt_comm *c, int which, uint64_t k)
{
	for (int r = 0; r < c->size; r++)
		if (atomic_load_explicit(dt_comm_shm_counter(c, r, which, k), memory_order_acquire) < k)
			return false;
	return true;
}

/* Sets this rank's counter; sleepers are woken by a later step. */
void dt_comm_shm_publish(struct dt_comm *c, int which, uint64_t k);

/* shm_pieces.c */
/* Cuts the operation into pieces. -ENOTSUP: too many ranks for a piece. */
int dt_comm_pieces_start(struct dt_comm_req *r, struct dt_err *err);
/* Returns whether the operation is done. */
bool dt_comm_pieces_step(struct dt_comm_req *r);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
