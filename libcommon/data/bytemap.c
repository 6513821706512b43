#include "data/bytemap.h"

#include "base/room.h"

#include <errno.h>
#include <stdlib.h>

/* The slot that holds s, or the free slot for it. */
static uint32_t *find_slot(const struct dt_bytemap *m, const char *s, size_t n, uint32_t hash)
{
	for (uint32_t i = hash & m->mask;; i = (i + 1) & m->mask) {
		uint32_t *p = &m->slot[i];
		const struct dt_bytekey *k;

		if (!*p)
			return p;
		k = &m->key[*p - 1];
		if (k->hash == hash && k->n == n && !memcmp(m->blob + k->at, s, n))
			return p;
	}
}

int64_t dt_bytemap_find(const struct dt_bytemap *m, const char *s, size_t n)
{
	uint32_t v;

	if (!m->slot)
		return -1;
	v = *find_slot(m, s, n, (uint32_t)dt_bytes_hash(s, n));
	return (int64_t)v - 1;
}

static int grow_slots(struct dt_bytemap *m)
{
	uint32_t size = m->slot ? 2 * (m->mask + 1) : 1024;
	uint32_t *slot = calloc(size, sizeof(*slot));

	if (!slot || size == 0) {
		free(slot);
		return -ENOMEM;
	}
	free(m->slot);
	m->slot = slot;
	m->mask = size - 1;
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t at = m->key[i].hash & m->mask;

		while (m->slot[at])
			at = (at + 1) & m->mask;
		m->slot[at] = i + 1;
	}
	return 0;
}

static int reserve(struct dt_bytemap *m, size_t n)
{
	if (!DT_ROOM(m->key, m->n, m->cap, 512))
		return -ENOMEM;
	if (m->blob_n + n > m->blob_cap) {
		size_t cap = 2 * m->blob_cap + n + 4096;
		char *blob = realloc(m->blob, cap);

		if (!blob)
			return -ENOMEM;
		m->blob = blob;
		m->blob_cap = cap;
	}
	return 0;
}

int64_t dt_bytemap_add(struct dt_bytemap *m, const char *s, size_t n)
{
	uint32_t hash = (uint32_t)dt_bytes_hash(s, n), *p;

	if (n > UINT32_MAX || m->n >= UINT32_MAX / 4)
		return -ENOMEM;
	if ((!m->slot || m->n >= m->mask / 2) && grow_slots(m) < 0)
		return -ENOMEM;
	p = find_slot(m, s, n, hash);
	if (*p)
		return (int64_t)*p - 1;
	if (reserve(m, n) < 0)
		return -ENOMEM;
	if (n)
		memcpy(m->blob + m->blob_n, s, n);
	m->key[m->n] = (struct dt_bytekey){.at = m->blob_n, .n = (uint32_t)n, .hash = hash};
	m->blob_n += n;
	*p = ++m->n;
	return (int64_t)*p - 1;
}

void dt_bytemap_release(struct dt_bytemap *m)
{
	free(m->blob);
	free(m->key);
	free(m->slot);
	memset(m, 0, sizeof(*m));
}
/* SPDX-License-Identifier: Apache-2.0 */
