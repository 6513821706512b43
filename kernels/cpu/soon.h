/*
 * Cache rows that a thread will read in the next layer's attention. A product with many rows is limited by
 * arithmetic and leaves the memory idle; attention is limited by memory. So each thread lists the rows of its
 * share of the sequences, and prefetches them into L2 during the products in between, a few lines per step.
 * SmolLM2-135M in Q8_0 takes 0.93 of the time per step with 32 sequences of 160 keys (Zen 4).
 */
#ifndef DT_KERNELS_CPU_SOON_H
#define DT_KERNELS_CPU_SOON_H

#include "kernels/cpu/cpu.h"

enum {
	DT_SOON_ROWS = 16,	/* rows of x from which products are limited by arithmetic */
	DT_SOON_PIECES = 512,	/* most pieces per thread and cache */
	DT_SOON_BYTES = 2 << 20 /* most bytes per thread: about the L2 of a core */
};

/* A thread's list. Piece i of a cache begins at cache + i bytes; those of two caches take turns. */
struct dt_soon_list {
	const char *cache[2], *at, *end; /* at: the rest of the piece that was begun last */
	int64_t bytes;			 /* of a piece */
	int both, n, taken;		 /* both: 1 with two caches; n, taken: pieces of all caches */
	int64_t wait;			 /* bytes that could be prefetched before the first piece is */
	int64_t room, usual; /* bytes that could be prefetched since the list was made; and before it was */
	int32_t piece[DT_SOON_PIECES];
};

/* Begins this thread's list for caches k and v (NULL: one cache). */
void dt_soon_begin(const void *k, const void *v, int64_t bytes);
/* Adds piece i of each cache; false: the list is full. */
bool dt_soon_add(int64_t i);
/* Ends it: spreads the list over the last steps before it is needed. */
void dt_soon_end(void);

/* This thread's list for a product of m rows that can prefetch `bytes` bytes; NULL: there is nothing to do
 * yet. */
struct dt_soon_list *dt_soon_take(int64_t m, int64_t bytes);

/* Whether this thread has a list that a product of m rows reads. */
bool dt_soon_there(int64_t m);

/* Prefetches the next `lines` lines of the list. lines is a constant. */
DT_INLINE void dt_soon_ask(struct dt_soon_list *s, const int lines)
{
	const char *at = s->at;

	if (at >= s->end) {
		if (s->taken == s->n)
			return;
		at = s->cache[s->taken & s->both] + s->piece[s->taken >> s->both] * s->bytes;
		s->end = at + s->bytes;
		s->taken++;
	}
	DT_FOR (8, int i = 0; i < lines; i++)
		__builtin_prefetch(at + i * 64, 0, 2);
	s->at = at + lines * 64;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
