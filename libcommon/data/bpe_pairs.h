/*
 * The pairs of neighbours in the words of a text that bpe_train.c trains on, and which of them is the most
 * frequent.
 */
#ifndef DT_DATA_BPE_PAIRS_H
#define DT_DATA_BPE_PAIRS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpe_pair { /* where it occurs (words may repeat, and may no longer have it) and how often */
	uint64_t key;
	int64_t count;
	uint32_t *word, n, cap;
	bool queued; /* since the last merge */
};

struct bpe_candidate;

struct bpe_pairs { /* zeroed: none */
	struct bpe_pair *pair;
	uint32_t n, cap;
	uint32_t *slot, mask; /* key -> pair number + 1 */
	struct bpe_candidate *heap;
	size_t heap_n, heap_cap;
	uint32_t *fresh; /* pairs that grew since the last bpe_pairs_queue */
	size_t fresh_n, fresh_cap;
};

/* All return -ENOMEM on failure. Pointers to pairs are valid until the next call. */

/* Adds `by` (which may be negative) to the count of a pair in word w. */
int bpe_pairs_change(struct bpe_pairs *s, int32_t left, int32_t right, uint32_t w, int64_t by);
/* Makes candidates of the pairs whose counts have grown. */
int bpe_pairs_queue(struct bpe_pairs *s);
/*
 * Removes and returns the most frequent candidate, among equals the one with the lowest key. NULL: none is
 * left.
 */
int bpe_pairs_most(struct bpe_pairs *s, struct bpe_pair **ret);
void bpe_pairs_release(struct bpe_pairs *s);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
