/*
 * The pool of KV-cache blocks. Blocks are numbers; the model knows where their keys and values are
 * (nn/infer.h: row = block * block_size + offset). Allocating and releasing is O(1) a block and allocates no
 * memory.
 *
 * Each block has a count of the block tables that hold it. A full block whose tokens are computed may be
 * published: it can then be found by its tokens, the tokens of all blocks before it and its salt. This holds
 * also after its last table released it, until the block is reused. Blocks are reused in order of release,
 * the last block of a sequence first. The lookup uses a hash and then compares the tokens themselves, so that
 * hash collisions never mix two texts.
 */
#ifndef DT_SERVE_KVPOOL_H
#define DT_SERVE_KVPOOL_H

#include "serve/sched/kvkey.h"
#include "serve/sched/kvmarks.h"

struct dt_kvblock; /* kvpool.c */

/* Callbacks for lower cache levels. Either may be NULL; neither may change the pool. */
struct dt_kvwatch {
	void *arg;
	void (*published)(void *arg, int32_t b); /* block b can be found from now on */
	void (*evicted)(void *arg, int32_t b);	 /* it cannot be found any more; its rows will change */
};

struct dt_kvpool {
	int nblocks, block_size;
	int nfree;		  /* blocks that no table holds, including published ones */
	bool share;		  /* publish blocks and find them again (prefix caching) */
	struct dt_kvblock *block; /* [nblocks] */
	int32_t *tokens;	  /* [nblocks, block_size] of published blocks */
	int32_t *bucket;	  /* [most + 1]: 1 + the first block of each hash chain, 0: none */
	uint32_t mask, most;	  /* buckets up to mask are in use */
	bool forked;		  /* tables may share blocks that are not full */
	int32_t fresh;	    /* this block and those after it have never been used; memory is not touched */
	int32_t head, tail; /* list of the other blocks that no table holds, next first; -1: none */
	uint64_t serial;    /* of the block published last */
	struct dt_kvwatch watch;  /* set after dt_kvpool_init */
	struct dt_kvmarks *marks; /* set after dt_kvpool_init; NULL: none */
	size_t marks_from;	  /* number of block 0 in marks, which all replicas share */
};

/* The blocks of one sequence in order; all zero is an empty table. */
struct dt_block_table {
	int32_t *b;
	int n, cap;
	int gone;	     /* leading blocks that were released; their entries are -1 */
	int published;	     /* leading blocks that are published */
	uint64_t chain;	     /* serial of the last published block, 0: none */
	struct dt_kvkey key; /* key of the last published block */
};

int dt_kvpool_init(struct dt_kvpool *p, int nblocks, int block_size, bool share); /* -EINVAL, -ENOMEM */
void dt_kvpool_release(struct dt_kvpool *p);

/* Blocks that hold n tokens. */
static inline int dt_kvpool_blocks(const struct dt_kvpool *p, int64_t n)
{
	return (int)((n + p->block_size - 1) / p->block_size);
}

/* Extends t to at least n blocks, or leaves it unchanged. -ENOSPC: not enough free blocks; -ENOMEM. */
int dt_kvpool_grow(struct dt_kvpool *p, struct dt_block_table *t, int n);
/*
 * Releases the first n blocks of t; the others keep their positions. Released blocks that are published can
 * still be found.
 */
void dt_kvpool_trim(struct dt_kvpool *p, struct dt_block_table *t, int n);
/* Releases all blocks of t and empties it. */
void dt_kvpool_free(struct dt_kvpool *p, struct dt_block_table *t);

/*
 * Returns the number of published blocks that hold a prefix of tokens [n]: whole blocks, longest match. free:
 * how many of them no table holds. dt_kvpool_attach puts them at the front of the empty table t; -ENOMEM.
 */
int dt_kvpool_match(const struct dt_kvpool *p, struct dt_kv_salt salt, const int32_t *tokens, int64_t n,
		    int *ret_free);
int dt_kvpool_attach(struct dt_kvpool *p, struct dt_block_table *t, struct dt_kv_salt salt,
		     const int32_t *tokens, int64_t n);

/*
 * Publishes the full blocks of t, given that the first n of tokens are computed. If an equal block is
 * published already, t takes that one in place of its own.
 */
void dt_kvpool_publish(struct dt_kvpool *p, struct dt_block_table *t, struct dt_kv_salt salt,
		       const int32_t *tokens, int64_t n);

/*
 * To load blocks from elsewhere. dt_kvpool_seek finds the place behind the published blocks that hold a
 * prefix of tokens. dt_kvpool_adopt publishes a free block there for the next tokens. 1: the caller must
 * write the rows of *ret; 0: there is such a block already; -ENOSPC: no block is free except those before the
 * place; -ESTALE: a block before the place is gone. After 0 and 1 the place has moved by one block.
 */
struct dt_kvplace {
	int n;		/* blocks before it */
	int32_t last;	/* the last of them */
	uint64_t chain; /* its serial, 0: none */
	struct dt_kvkey key;
};
struct dt_kvplace dt_kvpool_seek(struct dt_kvpool *p, struct dt_kv_salt salt, const int32_t *tokens,
				 int64_t n);
int dt_kvpool_adopt(struct dt_kvpool *p, struct dt_kvplace *at, struct dt_kv_salt salt, const int32_t *tokens,
		    int32_t *ret);

/* Unpublishes an adopted block whose rows could not be written. No table may hold it. */
void dt_kvpool_disown(struct dt_kvpool *p, int32_t b);

/* Sets *ret to the key of block b; false: b is not published. Its tokens are p->tokens + b * block_size. */
bool dt_kvpool_published(const struct dt_kvpool *p, int32_t b, struct dt_kvkey *ret);

/* Makes the empty table `to` share the first n blocks of `from`. -ENOMEM. */
int dt_kvpool_fork(struct dt_kvpool *p, struct dt_block_table *to, const struct dt_block_table *from, int n);

/*
 * Makes block i of t, which is not full, private before one of its rows is written (copy on write). 0: it
 * already is; 1: the caller must copy the rows of *ret_from to t->b[i]; -ENOSPC.
 */
int dt_kvpool_own(struct dt_kvpool *p, struct dt_block_table *t, int i, int32_t *ret_from);

/* The cache row of the token at position pos. */
static inline int64_t dt_kvpool_slot(const struct dt_kvpool *p, const struct dt_block_table *t, int pos)
{
	return (int64_t)t->b[pos / p->block_size] * p->block_size + pos % p->block_size;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
