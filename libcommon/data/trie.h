/*
 * The tokens of a vocabulary as a trie of their bytes: which tokens does a text start with? The nodes are in
 * breadth-first order, so that the children of node i are first[i] .. first[i + 1] - 1, in order of their
 * bytes. It takes 9 bytes a node; a vocabulary of 250000 tokens has about a million nodes.
 */
#ifndef DT_DATA_TRIE_H
#define DT_DATA_TRIE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DT_TRIE_ROOT 0
#define DT_TRIE_NONE UINT32_MAX

struct dt_trie_word {
	const char *s;
	uint32_t n; /* above 0 */
	int32_t id;
};

struct dt_trie {	/* all zero: released */
	uint8_t *label; /* the last byte of a node's string */
	uint32_t *first;
	int32_t *id; /* of the token that is a node's string, -1: none */
	uint32_t n;
};

/* Sorts w. Of equal strings the one with the largest id stays. -ENOMEM. */
int dt_trie_build(struct dt_trie *t, struct dt_trie_word *w, size_t n);
void dt_trie_release(struct dt_trie *t);

/* The child of a node by a byte, or DT_TRIE_NONE. */
static inline uint32_t dt_trie_next(const struct dt_trie *t, uint32_t node, uint8_t byte)
{
	const uint32_t at = t->first[node], n = t->first[node + 1] - at;
	const uint8_t *label = t->label + at, *hit;

	if (n == 256) /* the root often has all of them */
		return at + byte;
	if (n <= 8) {
		for (uint32_t i = 0; i < n; i++)
			if (label[i] == byte)
				return at + i;
		return DT_TRIE_NONE;
	}
	hit = memchr(label, byte, n);
	return hit ? at + (uint32_t)(hit - label) : DT_TRIE_NONE;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
