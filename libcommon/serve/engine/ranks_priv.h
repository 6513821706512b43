/* What ranks.c, ranks_message.c and ranks_follow.c share; not for others. */
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

enum { DT_SERVE_GONE, DT_SERVE_GIVEN, DT_SERVE_MEASURED }; /* what an adapter is */

#define DT_SERVE_FIRST 4096 /* bytes of a message that go first */

enum { DT_SERVE_TAG_BLOCK = 1, DT_SERVE_TAG_ANSWER };

struct dt_serve_head {
	int32_t kind;
	int32_t nseq, ntokens, max_blocks, nwant, pools; /* pools: whether some sequence is pooled */
	int32_t adapters;				 /* whether some sequence has one */
	/* from: the block that is copied, read or written, or the number of an adapter; to: of a copy, or
	 * what that is. Measured: replica and nseq say which portion, and of how many parts. */
	int32_t from, to;
	int32_t replica; /* of a copy */
};

/* Where the tables of a message are. */
struct dt_serve_tables {
	int64_t *slot;					      /* [ntokens] */
	int32_t *ids, *pos, *q_start, *kv_len, *block, *want; /* as in struct dt_infer_batch */
	int32_t *replica;				      /* [nseq] */
	int32_t *pool;					      /* [nseq] whether it is pooled */
	int32_t *adapter;				      /* [nseq] its adapter's number, 0: none */
};

/* What a rank that has a replica's logits keeps of a step until rank 0 takes it. */
struct dt_serve_kept {
	float *logits, *pooled; /* [seqs, vocab], [seqs, hidden]: of those that are pooled */
	struct dt_comm_req *sent[2];
};

struct dt_serve_ranks {
	struct dt_infer *m;
	struct dt_comm *all, *stage; /* stage: the ranks of this one's */
	struct dt_infer_params p;
	int64_t table; /* blocks of all sequences of a step */
	char *buf;     /* a message, registered as what is kept is */
	size_t room;
	struct dt_comm_req *passed; /* it goes to the next stage */
	struct dt_layout layout;
	struct dt_coords at;
	int depth, seqs; /* steps under way, and the sequences and rows of logits of each, of a replica */
	int32_t *q_start, *want;    /* [max_seqs + 1], [max_seqs] of its part of a step */
	int32_t *tokens_of;	    /* [dt_layout_joined] */
	struct dt_serve_kept *kept; /* [depth] where this rank answers; NULL elsewhere */
	int64_t answered;	    /* steps */
	float *pooled; /* rank 0, and all where rows are cut over cp: [seqs, hidden] of one replica */
	float **pool;  /* where it answers or has these: [dp * max_seqs] of a step */
	struct dt_serve_given given;		 /* a follower's adapters */
	const struct dt_infer_adapter **adapter; /* a follower's, [dp * max_seqs] of a step */
	struct dt_kvparts parts;		 /* of a block */
	char *part;				 /* one rank's */
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
/* Rank 0: r->buf may be written; the message in it, bytes, goes to all; one that is a head alone. */
int dt_serve_ranks_free_buf(struct dt_serve_ranks *r, struct dt_err *err);
int dt_serve_ranks_tell(struct dt_serve_ranks *r, size_t bytes, struct dt_err *err);
int dt_serve_ranks_tell_kind(struct dt_serve_ranks *r, struct dt_serve_head h, struct dt_err *err);
/* The others: the next message, whole in r->buf. -EPROTO: it cannot be rank 0's. */
int dt_serve_ranks_hear(struct dt_serve_ranks *r, struct dt_serve_head *ret, struct dt_err *err);
/* What replica i has of b; its q_start and want are written to those. NULL: the numbers alone are wanted. */
struct dt_serve_part dt_serve_ranks_part_of(const struct dt_infer_batch *b, int i, int32_t *q_start,
					    int32_t *want);
/* This rank's part of b is computed; 0 where it has none, and no share in the experts of another's. */
int dt_serve_ranks_compute(struct dt_serve_ranks *r, const struct dt_infer_batch *b, float *logits,
			   struct dt_err *err);
/* The rank that has the logits of replica i. */
static inline int dt_serve_ranks_answerer(const struct dt_serve_ranks *r, int i)
{
	return dt_layout_rank(&r->layout, (struct dt_coords){.dp = i, .pp = r->layout.pp - 1});
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
