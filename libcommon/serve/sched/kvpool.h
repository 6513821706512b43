/*
 * The pool of KV-cache blocks. Blocks are numbers; where their keys and values lie is the model's business
 * (nn/infer.h: row = block * block_size + offset). Taking and giving back is O(1) a block and allocates
 * nothing.
 *
 * A block has a count of the tables that hold it. A full block whose tokens are computed may be published:
 * then it is found again by its tokens, those of every block before it and its salt, also after its last
 * table gave it back, until it is needed for something else; the block given back longest ago goes first, of
 * one sequence its last block first. The lookup is by hash and then compares the tokens themselves, so that
 * equal hashes never mix two texts.
 */
#ifndef DT_SERVE_KVPOOL_H
#define DT_SERVE_KVPOOL_H

#include "serve/sched/kvkey.h"
#include "serve/sched/kvmarks.h"

struct dt_kvblock; /* kvpool.c */

/* Who else keeps what is computed. Either may be NULL; neither may change the pool. */
struct dt_kvwatch {
	void *arg;
	void (*published)(void *arg, int32_t b); /* block b can be found from now on */
	void (*evicted)(void *arg, int32_t b);	 /* it no longer can, and its rows are about to be written */
};

struct dt_kvpool {
	int nblocks, block_size;
	int nfree;		  /* blocks no table holds, the published ones among them */
	bool share;		  /* publish and find */
	struct dt_kvblock *block; /* [nblocks] */
	int32_t *tokens;	  /* [nblocks, block_size] of published blocks */
	int32_t *bucket;	  /* [mask + 1]: first block of a chain, -1 */
	uint32_t mask;
	int32_t head, tail;	  /* blocks no table holds: the next to be taken first, -1: none */
	uint64_t serial;	  /* of the block published last */
	struct dt_kvwatch watch;  /* set after init */
	struct dt_kvmarks *marks; /* the same; NULL: none */
	size_t marks_from;	  /* the number of block 0 in marks, which replicas share */
};

/* The blocks of one sequence in order; zero-initialised is empty. */
struct dt_block_table {
	int32_t *b;
	int n, cap;
	int gone;	     /* leading blocks that were given back: -1 stands for them */
	int published;	     /* leading blocks that are published */
	uint64_t chain;	     /* serial of the last of them, 0: none */
	struct dt_kvkey key; /* of the last of them */
};

int dt_kvpool_init(struct dt_kvpool *p, int nblocks, int block_size, bool share); /* -EINVAL, -ENOMEM */
void dt_kvpool_release(struct dt_kvpool *p);

/* Blocks that hold n tokens. */
static inline int dt_kvpool_blocks(const struct dt_kvpool *p, int64_t n)
{
	return (int)((n + p->block_size - 1) / p->block_size);
}

/* Makes t at least n blocks long; all or nothing. -ENOSPC: not enough free blocks. */
int dt_kvpool_grow(struct dt_kvpool *p, struct dt_block_table *t, int n);
/* Gives back the first n blocks of t, which keeps the others where they are. Who asks for what was published
 * of them can still find it. */
void dt_kvpool_trim(struct dt_kvpool *p, struct dt_block_table *t, int n);
/* Drops every block of t and empties it. */
void dt_kvpool_free(struct dt_kvpool *p, struct dt_block_table *t);

/*
 * Published blocks that hold the beginning of tokens [n], whole blocks only, longest first match: their
 * number. free: how many of them no table holds. dt_kvpool_attach puts them at the front of the empty table
 * t; -ENOMEM.
 */
int dt_kvpool_match(const struct dt_kvpool *p, struct dt_kv_salt salt, const int32_t *tokens, int64_t n,
		    int *ret_free);
int dt_kvpool_attach(struct dt_kvpool *p, struct dt_block_table *t, struct dt_kv_salt salt,
		     const int32_t *tokens, int64_t n);

/*
 * The first n of tokens are computed in t: publishes its blocks that are full now. Where an equal one is
 * published already, t takes that one in place of its own.
 */
void dt_kvpool_publish(struct dt_kvpool *p, struct dt_block_table *t, struct dt_kv_salt salt,
		       const int32_t *tokens, int64_t n);

/*
 * Where blocks come from elsewhere: a place behind the published blocks that hold the beginning of tokens.
 * dt_kvpool_seek finds it. dt_kvpool_adopt publishes a block there that no table holds, as one that holds the
 * next tokens: 1, *ret's rows are the caller's to write; 0: there is one already; -ENOSPC: no block is free
 * but those before it; -ESTALE: one before it is gone. After 0 and 1 the place is behind it.
 */
struct dt_kvplace {
	int n;		/* blocks before it */
	int32_t last;	/* of them */
	uint64_t chain; /* its serial, 0: none */
	struct dt_kvkey key;
};
struct dt_kvplace dt_kvpool_seek(struct dt_kvpool *p, struct dt_kv_salt salt, const int32_t *tokens,
				 int64_t n);
int dt_kvpool_adopt(struct dt_kvpool *p, struct dt_kvplace *at, struct dt_kv_salt salt, const int32_t *tokens,
		    int32_t *ret);

/* What was adopted is not computed after all: it is found no more. No table holds it. */
void dt_kvpool_disown(struct dt_kvpool *p, int32_t b);

/* Of a published block; false: b is not. Its tokens are p->tokens + b * block_size. */
bool dt_kvpool_published(const struct dt_kvpool *p, int32_t b, struct dt_kvkey *ret);

/* Makes the empty table to hold the first n blocks of from. -ENOMEM. */
int dt_kvpool_fork(struct dt_kvpool *p, struct dt_block_table *to, const struct dt_block_table *from, int n);

/*
 * Makes block i of t its own before a row of it is written: 0 it is already; 1 *ret_from's rows must be
 * copied to t->b[i]; -ENOSPC.
 */
int dt_kvpool_own(struct dt_kvpool *p, struct dt_block_table *t, int i, int32_t *ret_from);

/* The cache row of token pos. */
static inline int64_t dt_kvpool_slot(const struct dt_kvpool *p, const struct dt_block_table *t, int pos)
{
	return (int64_t)t->b[pos / p->block_size] * p->block_size + pos % p->block_size;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
