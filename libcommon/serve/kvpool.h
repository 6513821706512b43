/*
 * The pool of KV-cache blocks. Blocks are numbers; where their keys and values lie is the model's business
 * (nn/infer.h: row = block * block_size + offset). Free blocks form a stack threaded through one array, so
 * taking and giving back is O(1) a block and allocates nothing.
 *
 * One owner a block today. A prefix cache goes in here: a count a block, and a table from a full block's
 * tokens to its number that dt_kvpool_grow asks before it pops a free one.
 */
#ifndef DT_SERVE_KVPOOL_H
#define DT_SERVE_KVPOOL_H

#include <stdint.h>

struct dt_kvpool {
	int nblocks, block_size, nfree;
	int32_t head;  /* top of the stack, -1: none free */
	int32_t *next; /* [nblocks]: the free block below, or one of the marks in kvpool.c */
};

/* The blocks of one sequence in order; zero-initialised is empty. */
struct dt_block_table {
	int32_t *b;
	int n, cap;
};

int dt_kvpool_init(struct dt_kvpool *p, int nblocks, int block_size); /* -EINVAL, -ENOMEM */
void dt_kvpool_release(struct dt_kvpool *p);

/* Blocks that hold n tokens. */
static inline int dt_kvpool_blocks(const struct dt_kvpool *p, int64_t n)
{
	return (int)((n + p->block_size - 1) / p->block_size);
}

/* Makes t at least n blocks long; all or nothing. -ENOSPC: not enough free blocks. */
int dt_kvpool_grow(struct dt_kvpool *p, struct dt_block_table *t, int n);
/* Gives every block back and empties t. */
void dt_kvpool_free(struct dt_kvpool *p, struct dt_block_table *t);

/* The cache row of token pos. */
static inline int64_t dt_kvpool_slot(const struct dt_kvpool *p, const struct dt_block_table *t, int pos)
{
	return (int64_t)t->b[pos / p->block_size] * p->block_size + pos % p->block_size;
}

#endif
