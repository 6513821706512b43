/* Shared by ranks.c, ranks_message.c and ranks_follow.c. */
#ifndef DT_SERVE_RANKS_PRIV_H
#define DT_SERVE_RANKS_PRIV_H

#include "serve/engine/kvparts.h"
#include "serve/engine/ranks.h"
#include "serve/engine/ranks_adapters.h"

enum dt_serve_kind {
	DT_SERVE_STEP = 1,
	DT_SERVE_COPY,
	DT_SERVE_READ,
	DT_SERVE_WRITE,
	DT_SERVE_BEAT,
	DT_SERVE_ADAPTER,
	DT_SERVE_END
};

enum { DT_SERVE_GONE, DT_SERVE_GIVEN, DT_SERVE_MEASURED }; /* what the message says of an adapter */

#define DT_SERVE_FIRST 4096 /* bytes of a message in its first broadcast */

enum { DT_SERVE_TAG_BLOCK = 1, DT_SERVE_TAG_ANSWER };

struct dt_serve_head {
	int32_t kind;
	int32_t nseq, ntokens, max_blocks, nwant, pools; /* pools: some sequence is pooled */
	int32_t adapters;				 /* whether some sequence has an adapter */
	/*
	 * from: the block to copy, read or write, or the number of an adapter; to: destination of a copy, or
	 * GONE, GIVEN or MEASURED. MEASURED: replica is the portion, nseq the number of portions.
	 */
	int32_t from, to;
	int32_t replica; /* of a copy */
};

/* Pointers to the tables in a message. */
struct dt_serve_tables {
	int64_t *slot;					      /* [ntokens] */
	int32_t *ids, *pos, *q_start, *kv_len, *block, *want; /* as in struct dt_infer_batch */
	int32_t *replica;				      /* [nseq] */
	int32_t *pool;					      /* [nseq] whether it is pooled */
	int32_t *adapter;				      /* [nseq] its adapter's number, 0: none */
};

/* Results of a step that the rank with a replica's logits keeps until rank 0 has received them. */
struct dt_serve_kept {
	float *logits, *pooled; /* [seqs, vocab], [seqs, hidden]; pooled: only of pooled sequences */
	struct dt_comm_req *sent[2];
};

struct dt_serve_ranks {
	struct dt_infer *m;
	struct dt_comm *all, *stage; /* stage: the ranks of this rank's stage */
	struct dt_infer_params p;
	int64_t table; /* max entries of the block tables of a step */
	char *buf;     /* message buffer, in the same registered memory as `kept` */
	size_t room;
	struct dt_comm_req *passed; /* the send of buf to the next stage */
	struct dt_layout layout;
	struct dt_coords at;
	int depth, seqs;	 /* steps in flight; sequences (and rows of logits) of one step and replica */
	int32_t *q_start, *want; /* [max_seqs + 1], [max_seqs] of this rank's part of a step */
	int32_t *tokens_of;	 /* [dt_layout_joined] */
	struct dt_serve_kept *kept;  /* [depth] on ranks that send results to rank 0; NULL on others */
	int64_t answered;	     /* steps answered so far */
	float *pooled;		     /* rank 0, and all ranks with cp > 1: [seqs, hidden] of one replica */
	float **pool;		     /* ranks that have `kept` or `pooled`: [dp * max_seqs] of a step */
	struct dt_serve_given given; /* adapters received; not on rank 0 */
	const struct dt_infer_adapter **adapter; /* [dp * max_seqs] of a step; not on rank 0 */
	struct dt_kvparts parts;		 /* how a block is split over ranks */
	char *part;				 /* buffer for one rank's part */
	uint64_t name;
};

/* A replica's part of a step: sequences [first, last), rows [row, end), wanted rows [want, want +
 * batch.nwant). */
struct dt_serve_part {
	int first, last, row, want;
	struct dt_infer_batch batch;
};

/* ---- ranks_message.c ---- */

size_t dt_serve_ranks_bytes(const struct dt_serve_head *h);
struct dt_serve_tables dt_serve_ranks_tables(char *buf, const struct dt_serve_head *h);
/*
 * Rank 0: dt_serve_ranks_free_buf waits until r->buf may be written. dt_serve_ranks_tell sends the first
 * `bytes` bytes of r->buf to all ranks. dt_serve_ranks_tell_kind sends a message that is only a head.
 */
int dt_serve_ranks_free_buf(struct dt_serve_ranks *r, struct dt_err *err);
int dt_serve_ranks_tell(struct dt_serve_ranks *r, size_t bytes, struct dt_err *err);
int dt_serve_ranks_tell_kind(struct dt_serve_ranks *r, struct dt_serve_head h, struct dt_err *err);
/* Other ranks: receives the next message into r->buf. -EPROTO: it is not a valid message. */
int dt_serve_ranks_hear(struct dt_serve_ranks *r, struct dt_serve_head *ret, struct dt_err *err);
/*
 * Returns replica i's part of b; writes its q_start and want to the arrays given. NULL: only counts are
 * needed.
 */
struct dt_serve_part dt_serve_ranks_part_of(const struct dt_infer_batch *b, int i, int32_t *q_start,
					    int32_t *want);
/*
 * Computes this rank's part of b. Returns 0 without work if the rank has no part and shares no experts with
 * replicas that have one.
 */
int dt_serve_ranks_compute(struct dt_serve_ranks *r, const struct dt_infer_batch *b, float *logits,
			   struct dt_err *err);
/* The rank that sends the results of replica i. */
static inline int dt_serve_ranks_answerer(const struct dt_serve_ranks *r, int i)
{
	return dt_layout_rank(&r->layout, (struct dt_coords){.dp = i, .pp = r->layout.pp - 1});
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
