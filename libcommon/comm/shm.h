/* What shm.c and shm_direct.c share. */
#ifndef DT_COMM_SHM_H
#define DT_COMM_SHM_H

#include "comm/internal.h"

struct dt_shm_header;
struct dt_shm_line;

struct dt_shm {
	struct dt_shm_header *h;
	struct dt_shm_line *line; /* [size] */
	char *in, *result;
	size_t bytes;
	uint64_t next;	/* number of the next piece */
	uint64_t known; /* all ranks have done the pieces before this one */
	int told; /* counters were written and sleepers not yet looked for: 1 + looks since; otherwise 0 */
	size_t stream;	/* results of this size and more go past the caches */
	size_t cache;	/* bytes of the last-level cache */
	double pace[2]; /* seconds a byte of three phases by way of the caches, past them; 0: not known */
	unsigned paced;
	uint64_t direct; /* operations done on registered buffers */
	const void **src;
	char **peer_src, **peer_dst; /* [size]: buffers of the operation under way; NULL: not needed */
};

enum dt_shm_way {
	DT_WAY_UNKNOWN,
	DT_WAY_ARRIVED,
	DT_WAY_PIECES,
	DT_WAY_DIRECT,
	DT_WAY_LEAVING,
};

/* Private state of a request. The operation is cut into pieces; a, b, c: pieces past each phase. */
struct dt_shm_state {
	uint64_t base;
	size_t pieces, piece_n, a, b, c;
	bool meet;   /* ranks exchange the places of their buffers first */
	bool stream; /* non-temporal stores of the result */
	bool past;   /* non-temporal stores of what ranks hand each other */
	bool push;   /* blocks are written to the others, not read from them */
	double met;  /* when all had arrived; 0: unknown */
	enum dt_shm_way way;
};

static inline struct dt_shm_state *dt_shm_state(const struct dt_comm_req *r)
{
	return r->state;
}

/* What a rank lets others reach for one operation. region -1: it cannot; gen 0: nobody needs it. */
struct dt_offers {
	struct dt_offer src, dst;
};
void dt_direct_offer(const struct dt_comm_req *r, struct dt_offers *ret);
/*
 * Whether it can be done so where every rank's src, every rank's dst can be reached. All ranks must come to
 * the same answer.
 */
bool dt_direct_choose(struct dt_comm_req *r, bool src, bool dst);
int dt_direct_reach(struct dt_comm_req *r, const struct dt_offers *o, int rank, struct dt_err *err);
/* Does about so many bytes of this rank's share; returns whether it is done with it. */
bool dt_direct_work(struct dt_comm_req *r, size_t most);
/* After all ranks are done. */
void dt_direct_finish(struct dt_comm_req *r);

#endif
