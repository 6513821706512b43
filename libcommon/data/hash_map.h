/* Keys of 64 bits that are hashes already, each with a number; several entries may have one key. */
#ifndef DT_DATA_HASH_MAP_H
#define DT_DATA_HASH_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct hash_map {
	uint64_t *key; /* 0: free */
	uint32_t *value;
	size_t slots, n; /* slots a power of two, at least 3/2 n */
};

static inline size_t hash_map_slot(const struct hash_map *m, uint64_t key)
{
	return (size_t)(key * 0x9e3779b97f4a7c15u >> 7) & (m->slots - 1);
}

static inline void hash_map_put(struct hash_map *m, uint64_t key, uint32_t value)
{
	size_t at = hash_map_slot(m, key);

	while (m->key[at])
		at = (at + 1) & (m->slots - 1);
	m->key[at] = key;
	m->value[at] = value;
	m->n++;
}

/* 0 or -1 (no memory). */
static inline int hash_map_add(struct hash_map *m, uint64_t key, uint32_t value)
{
	key = key ? key : 1;
	if (m->n + 1 > m->slots / 3 * 2) {
		struct hash_map old = *m;

		m->slots = old.slots ? old.slots * 2 : 1024;
		m->key = calloc(m->slots, sizeof(*m->key));
		m->value = malloc(m->slots * sizeof(*m->value));
		m->n = 0;
		if (!m->key || !m->value) {
			free(m->key);
			free(m->value);
			*m = old;
			return -1;
		}
		for (size_t i = 0; i < old.slots; i++)
			if (old.key[i])
				hash_map_put(m, old.key[i], old.value[i]);
		free(old.key);
		free(old.value);
	}
	hash_map_put(m, key, value);
	return 0;
}

/* The next entry of key behind *at (SIZE_MAX at first): true, *ret its number; false: there is none. */
static inline bool hash_map_next(const struct hash_map *m, uint64_t key, size_t *at, uint32_t *ret)
{
	if (!m->slots)
		return false;
	key = key ? key : 1;
	*at = *at == SIZE_MAX ? hash_map_slot(m, key) : (*at + 1) & (m->slots - 1);
	for (; m->key[*at]; *at = (*at + 1) & (m->slots - 1))
		if (m->key[*at] == key) {
			*ret = m->value[*at];
			return true;
		}
	return false;
}

static inline bool hash_map_has(const struct hash_map *m, uint64_t key)
{
	size_t at = SIZE_MAX;
	uint32_t v;

	return hash_map_next(m, key, &at, &v);
}

static inline void hash_map_free(struct hash_map *m)
{
	free(m->key);
	free(m->value);
	*m = (struct hash_map){0};
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
