/*
 * The key of a cache block: a 128-bit hash of its tokens, the tokens of all blocks before it, and the salt.
 * It is the same in every process, so that blocks can be found on disk and on other servers too.
 */
#ifndef DT_SERVE_KVKEY_H
#define DT_SERVE_KVKEY_H

#include <stdbool.h>
#include <stdint.h>

/* Who may share blocks: a block is found only under an equal salt. */
struct dt_kv_salt {
	uint64_t owner, word;
	uint64_t adapter; /* checksum of the adapter's changes to the base weights; 0: none */
};

struct dt_kvkey {
	uint64_t w[2];
};

/* SplitMix64's finaliser (Steele, Lea & Flood 2014): each bit of h ^ v reaches all of the result. */
static inline uint64_t dt_kvkey_mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) + 0x9e3779b97f4a7c15u;
	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

/* The initial key, before the first block. */
static inline struct dt_kvkey dt_kvkey_first(struct dt_kv_salt s)
{
	struct dt_kvkey k = {{dt_kvkey_mix(dt_kvkey_mix(1, s.owner), s.word),
			      dt_kvkey_mix(dt_kvkey_mix(2, s.word), s.owner)}};

	if (s.adapter)
		k = (struct dt_kvkey){{dt_kvkey_mix(k.w[0], s.adapter), dt_kvkey_mix(k.w[1], ~s.adapter)}};
	return k;
}

/* The key of the block of n tokens that follows the one with key k. */
static inline struct dt_kvkey dt_kvkey_next(struct dt_kvkey k, const int32_t *tokens, int n)
{
	for (int i = 0; i < n; i++) {
		k.w[0] = dt_kvkey_mix(k.w[0], (uint32_t)tokens[i]);
		k.w[1] = dt_kvkey_mix(k.w[1], ~(uint64_t)(uint32_t)tokens[i] << 7);
	}
	return (struct dt_kvkey){{dt_kvkey_mix(k.w[0], k.w[1]), dt_kvkey_mix(k.w[1], ~k.w[0])}};
}

static inline bool dt_kvkey_equal(struct dt_kvkey a, struct dt_kvkey b)
{
	return a.w[0] == b.w[0] && a.w[1] == b.w[1];
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
