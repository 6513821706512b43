#include "serve/sched/kvpool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct dt_kvblock {
	int refs;
	int32_t prev, next; /* in the list of blocks that no table holds */
	/* of published blocks */
	uint64_t serial; /* never reused; 0: not published */
	uint64_t parent; /* serial of the block before it, 0: none */
	struct dt_kv_salt salt;
	struct dt_kvkey key;
	uint64_t hash;
	int32_t chain; /* 1 + the next block in its bucket, 0: none */
};

int dt_kvpool_init(struct dt_kvpool *p, int nblocks, int block_size, bool share)
{
	uint32_t buckets = 1;

	memset(p, 0, sizeof(*p));
	if (nblocks < 1 || block_size < 1)
		return -EINVAL;
	while (buckets < (uint32_t)nblocks && buckets < 1u << 30)
		buckets *= 2;
	p->block = calloc((size_t)nblocks, sizeof(*p->block));
	p->tokens = malloc((size_t)nblocks * (size_t)block_size * sizeof(*p->tokens));
	p->bucket = calloc(buckets, sizeof(*p->bucket));
	if (!p->block || !p->tokens || !p->bucket) {
		dt_kvpool_release(p);
		return -ENOMEM;
	}
	p->most = buckets - 1;
	p->mask = p->most < 1023 ? p->most : 1023; /* at first one page */
	p->nblocks = p->nfree = nblocks;
	p->block_size = block_size;
	p->share = share;
	p->head = p->tail = -1;
	return 0;
}

void dt_kvpool_release(struct dt_kvpool *p)
{
	free(p->block);
	free(p->tokens);
	free(p->bucket);
	memset(p, 0, sizeof(*p));
}

/* ---- the list of blocks that no table holds ---- */

static void unlink_free(struct dt_kvpool *p, int32_t b)
{
	struct dt_kvblock *k = &p->block[b];

	*(k->prev >= 0 ? &p->block[k->prev].next : &p->head) = k->next;
	*(k->next >= 0 ? &p->block[k->next].prev : &p->tail) = k->prev;
	p->nfree--;
}

/* Unpublished blocks go to the front, so that they are allocated first. */
static void link_free(struct dt_kvpool *p, int32_t b)
{
	struct dt_kvblock *k = &p->block[b];
	bool last = k->serial != 0;

	k->prev = last ? p->tail : -1;
	k->next = last ? -1 : p->head;
	*(k->prev >= 0 ? &p->block[k->prev].next : &p->head) = b;
	*(k->next >= 0 ? &p->block[k->next].prev : &p->tail) = b;
	p->nfree++;
}

static void hold(struct dt_kvpool *p, int32_t b)
{
	if (p->block[b].refs++ == 0)
		unlink_free(p, b);
}

static void drop(struct dt_kvpool *p, int32_t b)
{
	assert(p->block[b].refs > 0);
	if (--p->block[b].refs == 0)
		link_free(p, b);
}

/* ---- published blocks ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15u;
	return h ^ h >> 32;
}

static uint64_t hash_of(const struct dt_kvpool *p, uint64_t parent, struct dt_kv_salt salt,
			const int32_t *tokens)
{
	uint64_t h = mix(mix(mix(mix(1, parent), salt.owner), salt.word), salt.adapter);

	for (int i = 0; i < p->block_size; i++)
		h = mix(h, (uint32_t)tokens[i]);
	return h;
}

/* The published block that holds tokens, whose hash is h, after the block `parent`; -1: none. */
static int32_t lookup_hash(const struct dt_kvpool *p, uint64_t h, uint64_t parent, struct dt_kv_salt salt,
			   const int32_t *tokens)
{
	size_t n = (size_t)p->block_size;
	int32_t next = p->bucket[h & p->mask];

	for (int32_t b; (b = next - 1) >= 0; next = p->block[b].chain) {
		const struct dt_kvblock *k = &p->block[b];

		if (k->hash == h && k->parent == parent && k->salt.owner == salt.owner &&
		    k->salt.word == salt.word && k->salt.adapter == salt.adapter &&
		    !memcmp(p->tokens + (size_t)b * n, tokens, n * sizeof(*tokens)))
			return b;
	}
	return -1;
}

static int32_t lookup(const struct dt_kvpool *p, uint64_t parent, struct dt_kv_salt salt,
		      const int32_t *tokens)
{
	return lookup_hash(p, hash_of(p, parent, salt, tokens), parent, salt, tokens);
}

static void forget(struct dt_kvpool *p, int32_t b)
{
	struct dt_kvblock *k = &p->block[b];
	int32_t *at = &p->bucket[k->hash & p->mask];

	if (k->serial == 0)
		return;
	if (p->marks)
		dt_kvmarks_drop(p->marks, p->marks_from + (size_t)b);
	while (*at != b + 1)
		at = &p->block[*at - 1].chain;
	*at = k->chain;
	k->serial = 0;
}

static int reserve(struct dt_block_table *t, int n)
{
	int cap = n > 2 * t->cap ? n : 2 * t->cap;
	int32_t *b;

	if (n <= t->cap)
		return 0;
	b = realloc(t->b, (size_t)cap * sizeof(*b));
	if (!b)
		return -ENOMEM;
	t->b = b;
	t->cap = cap;
	return 0;
}

/* Takes a free block; there must be one. Published blocks come last. */
static int32_t take(struct dt_kvpool *p)
{
	int32_t b = p->head;

	if (p->fresh < p->nblocks && (b < 0 || p->block[b].serial)) {
		b = p->fresh++;
		p->block[b].refs = 1;
		p->nfree--;
		return b;
	}
	if (p->block[b].serial && p->watch.evicted)
		p->watch.evicted(p->watch.arg, b);
	forget(p, b);
	hold(p, b);
	return b;
}

int dt_kvpool_grow(struct dt_kvpool *p, struct dt_block_table *t, int n)
{
	if (n - t->n > p->nfree)
		return -ENOSPC;
	if (reserve(t, n) < 0)
		return -ENOMEM;
	while (t->n < n)
		t->b[t->n++] = take(p);
	return 0;
}

void dt_kvpool_trim(struct dt_kvpool *p, struct dt_block_table *t, int n)
{
	for (; t->gone < n && t->gone < t->n; t->gone++) {
		drop(p, t->b[t->gone]);
		t->b[t->gone] = -1;
	}
}

void dt_kvpool_free(struct dt_kvpool *p, struct dt_block_table *t)
{
	while (t->n > t->gone)
		drop(p, t->b[--t->n]);
	free(t->b);
	*t = (struct dt_block_table){0};
}

int dt_kvpool_match(const struct dt_kvpool *p, struct dt_kv_salt salt, const int32_t *tokens, int64_t n,
		    int *ret_free)
{
	uint64_t parent = 0;
	int found = 0;

	*ret_free = 0;
	for (; p->share && (int64_t)(found + 1) * p->block_size <= n; found++) {
		int32_t b = lookup(p, parent, salt, tokens + (size_t)found * (size_t)p->block_size);

		if (b < 0)
			break;
		parent = p->block[b].serial;
		*ret_free += p->block[b].refs == 0;
	}
	return found;
}

int dt_kvpool_attach(struct dt_kvpool *p, struct dt_block_table *t, struct dt_kv_salt salt,
		     const int32_t *tokens, int64_t n)
{
	while (p->share && (int64_t)(t->n + 1) * p->block_size <= n) {
		int32_t b = lookup(p, t->chain, salt, tokens + (size_t)t->n * (size_t)p->block_size);

		if (b < 0)
			break;
		if (reserve(t, t->n + 1) < 0) {
			dt_kvpool_free(p, t);
			return -ENOMEM;
		}
		hold(p, b);
		t->b[t->n++] = b;
		t->chain = p->block[b].serial;
		t->key = p->block[b].key;
	}
	t->published = t->n;
	return 0;
}

/* Doubles the buckets in use: few where few blocks are. Bucket i's chain goes to buckets i and i + n. */
static void divide_buckets(struct dt_kvpool *p)
{
	const uint32_t n = p->mask + 1;

	for (uint32_t i = 0; i < n; i++) {
		int32_t *stay = &p->bucket[i], *go = &p->bucket[i + n];

		for (int32_t next = *stay; next; next = p->block[next - 1].chain) {
			int32_t **to = p->block[next - 1].hash & n ? &go : &stay;

			**to = next;
			*to = &p->block[next - 1].chain;
		}
		*stay = *go = 0;
	}
	p->mask = 2 * n - 1;
}

/*
 * Publishes block b: from now on it is found as `ids`, with their hash, after the block `parent` with the key
 * `before`.
 */
static void enter(struct dt_kvpool *p, int32_t b, uint64_t hash, uint64_t parent, struct dt_kvkey before,
		  struct dt_kv_salt salt, const int32_t *ids)
{
	struct dt_kvblock *k = &p->block[b];

	k->serial = ++p->serial;
	k->parent = parent;
	k->salt = salt;
	k->key = dt_kvkey_next(parent ? before : dt_kvkey_first(salt), ids, p->block_size);
	k->hash = hash;
	while (p->mask < p->most && (uint32_t)p->fresh > p->mask + 1)
		divide_buckets(p);
	k->chain = p->bucket[k->hash & p->mask];
	p->bucket[k->hash & p->mask] = b + 1;
	memcpy(p->tokens + (size_t)b * (size_t)p->block_size, ids, (size_t)p->block_size * sizeof(*ids));
}

void dt_kvpool_publish(struct dt_kvpool *p, struct dt_block_table *t, struct dt_kv_salt salt,
		       const int32_t *tokens, int64_t n)
{
	size_t size = (size_t)p->block_size;

	for (; p->share && (int64_t)(t->published + 1) * p->block_size <= n; t->published++) {
		const int32_t *ids = tokens + (size_t)t->published * size;
		const uint64_t hash = hash_of(p, t->chain, salt, ids);
		int32_t b = t->b[t->published], other = lookup_hash(p, hash, t->chain, salt, ids);
		struct dt_kvblock *k;

		if (b < 0 && other < 0) /* the block before it was reused: no chain to continue */
			return;
		k = &p->block[b >= 0 ? b : other];
		if (b >= 0 && other >= 0 && other != b) {
			hold(p, other);
			drop(p, b);
			t->b[t->published] = other;
			k = &p->block[other];
		} else if (other < 0) {
			enter(p, b, hash, t->chain, t->key, salt, ids);
			if (p->watch.published)
				p->watch.published(p->watch.arg, b);
		}
		t->chain = k->serial;
		t->key = k->key;
	}
}

struct dt_kvplace dt_kvpool_seek(struct dt_kvpool *p, struct dt_kv_salt salt, const int32_t *tokens,
				 int64_t n)
{
	struct dt_kvplace at = {.last = -1, .key = dt_kvkey_first(salt)};

	for (; p->share && (int64_t)(at.n + 1) * p->block_size <= n; at.n++) {
		int32_t b = lookup(p, at.chain, salt, tokens + (size_t)at.n * (size_t)p->block_size);

		if (b < 0)
			break;
		if (p->block[b].refs == 0) { /* moves to the end of the list: used last */
			unlink_free(p, b);
			link_free(p, b);
		}
		at.last = b;
		at.chain = p->block[b].serial;
		at.key = p->block[b].key;
	}
	return at;
}

int dt_kvpool_adopt(struct dt_kvpool *p, struct dt_kvplace *at, struct dt_kv_salt salt, const int32_t *tokens,
		    int32_t *ret)
{
	const int32_t *ids = tokens + (size_t)at->n * (size_t)p->block_size;
	const uint64_t hash = hash_of(p, at->chain, salt, ids);
	bool is_new;
	int32_t b;

	if (at->chain && p->block[at->last].serial != at->chain)
		return -ESTALE;
	b = lookup_hash(p, hash, at->chain, salt, ids);
	is_new = b < 0;
	if (is_new) {
		if (p->nfree <= at->n)
			return -ENOSPC;
		*ret = b = take(p);
		enter(p, b, hash, at->chain, at->key, salt, ids);
		drop(p, b);
	}
	*at = (struct dt_kvplace){at->n + 1, b, p->block[b].serial, p->block[b].key};
	return is_new;
}

void dt_kvpool_disown(struct dt_kvpool *p, int32_t b)
{
	forget(p, b);
}

bool dt_kvpool_published(const struct dt_kvpool *p, int32_t b, struct dt_kvkey *ret)
{
	*ret = p->block[b].key;
	return p->block[b].serial != 0;
}

int dt_kvpool_fork(struct dt_kvpool *p, struct dt_block_table *to, const struct dt_block_table *from, int n)
{
	if (reserve(to, n) < 0)
		return -ENOMEM;
	p->forked = true;
	for (; to->n < n; to->n++) {
		to->b[to->n] = from->b[to->n];
		if (to->b[to->n] >= 0)
			hold(p, to->b[to->n]);
	}
	to->gone = from->gone < n ? from->gone : n;
	if (from->published <= n) { /* else the copy finds its chain when it publishes */
		to->published = from->published;
		to->chain = from->chain;
		to->key = from->key;
	}
	return 0;
}

int dt_kvpool_own(struct dt_kvpool *p, struct dt_block_table *t, int i, int32_t *ret_from)
{
	if (!p->forked || p->block[t->b[i]].refs == 1)
		return 0;
	if (p->nfree == 0)
		return -ENOSPC;
	*ret_from = t->b[i];
	t->b[i] = take(p);
	drop(p, *ret_from);
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
