/*
 * Byte pair encoding of one word (Sennrich et al. 2016, as in GPT-2): of all neighbouring pairs that have a
 * merge, the one of lowest rank, leftmost first, becomes one symbol, until none is left.
 */
#ifndef DT_DATA_BPE_H
#define DT_DATA_BPE_H

#include "base/err.h"
#include "data/bytemap.h"

#include <stddef.h>
#include <stdint.h>

#define DT_BPE_SHORT   48 /* symbols: up to here scanning an array beats a heap */
#define DT_BPE_NO_RANK UINT32_MAX

struct dt_bpe_merge {
	uint64_t pair; /* left << 32 | right; UINT64_MAX: free */
	uint32_t rank;
	int32_t id; /* what the pair becomes */
};

struct dt_bpe {
	int32_t byte_id[256]; /* -1: the vocabulary has no token for this byte */
	struct dt_bpe_merge *tab;
	uint64_t mask;
	int64_t merges;
	struct dt_bytemap words; /* ignore_merges: words that are a token as they stand ... */
	int32_t *word_id;	 /* ... and which */
};

static inline uint64_t dt_bpe_pair(int32_t left, int32_t right)
{
	return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline uint64_t dt_bpe_hash(uint64_t pair)
{
	pair *= 0x9e3779b97f4a7c15ull;
	return pair ^ pair >> 32;
}

/* The merge of a pair, or NULL. */
static inline const struct dt_bpe_merge *dt_bpe_find(const struct dt_bpe *b, int32_t left, int32_t right)
{
	uint64_t pair = dt_bpe_pair(left, right);

	if (!b->tab)
		return NULL;
	for (uint64_t i = dt_bpe_hash(pair) & b->mask;; i = (i + 1) & b->mask) {
		if (b->tab[i].pair == pair)
			return &b->tab[i];
		if (b->tab[i].pair == UINT64_MAX)
			return NULL;
	}
}

int dt_bpe_init(struct dt_bpe *b, size_t merges, struct dt_err *err);
void dt_bpe_release(struct dt_bpe *b);
/* At most as many as dt_bpe_init was told; a pair given again takes the later rank. */
void dt_bpe_add(struct dt_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id);

/* Merges sym[0..n) in place and returns how many symbols are left. _short: n <= DT_BPE_SHORT. */
size_t dt_bpe_short(const struct dt_bpe *b, int32_t *sym, size_t n);
/* O(n log n). A count, or -ENOMEM. */
int64_t dt_bpe_long(const struct dt_bpe *b, int32_t *sym, size_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
