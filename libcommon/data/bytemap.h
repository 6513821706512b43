/* A set of byte strings, each known by the number it was added under: 0, 1, 2, ... */
#ifndef DT_DATA_BYTEMAP_H
#define DT_DATA_BYTEMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct dt_bytekey {
	uint64_t at; /* in blob */
	uint32_t n, hash;
};

struct dt_bytemap { /* all zero: empty */
	char *blob;
	size_t blob_n, blob_cap;
	struct dt_bytekey *key;
	uint32_t n, cap;
	uint32_t *slot; /* number + 1; 0 is free */
	uint32_t mask;
};

/* The number of s, or -1. */
int64_t dt_bytemap_find(const struct dt_bytemap *m, const char *s, size_t n);
/* The number of s, added when it was not there; -ENOMEM. */
int64_t dt_bytemap_add(struct dt_bytemap *m, const char *s, size_t n);
void dt_bytemap_release(struct dt_bytemap *m);

static inline const char *dt_bytemap_key(const struct dt_bytemap *m, uint32_t i, size_t *ret_n)
{
	*ret_n = m->key[i].n;
	return m->blob + m->key[i].at;
}

static inline uint64_t dt_bytes_hash(const char *s, size_t n)
{
	uint64_t h = n * 0x9e3779b97f4a7c15ull, v;

	for (; n >= 8; s += 8, n -= 8) {
		memcpy(&v, s, 8);
		h = (h ^ v) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	v = 0;
	memcpy(&v, s, n);
	h = (h ^ v) * 0xff51afd7ed558ccdull;
	return h ^ h >> 29;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
