#include "serve/engine/kvhost.h"

#include "base/arena.h"
#include "base/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	struct dt_kvkey key;
	bool hidden;	    /* no longer found */
	int32_t chain;	    /* next in its bucket, -1: none */
	int32_t prev, next; /* LRU list; the first is the oldest */
};

struct dt_kvhost {
	struct dt_arena data; /* [cap, bytes] */
	size_t bytes;
	int block_size, cap, used;
	struct entry *entry; /* [cap] */
	int32_t *tokens;     /* [cap, block_size] */
	int32_t *bucket;     /* [mask + 1] */
	uint32_t mask;
	int32_t first, last;
};

int dt_kvhost_open(struct dt_kvhost **ret, uint64_t room, size_t block_bytes, int block_size,
		   struct dt_err *err)
{
	struct dt_kvhost *h = calloc(1, sizeof(*h));
	uint64_t n = room / block_bytes;
	uint32_t buckets = 1;
	char have[32], need[32];
	int rc = h ? 0 : -ENOMEM;

	if (rc == 0 && n < 2) { /* one block may be read while another is written */
		free(h);
		return dt_err_set(err, -ENOSPC,
				  "%s of host memory are too small for two cache blocks of %s each",
				  dt_format_size(room, have, sizeof(have)),
				  dt_format_size_up(block_bytes, need, sizeof(need)));
	}
	n = n < 1 << 24 ? n : 1 << 24;
	while (buckets < n)
		buckets *= 2;
	if (rc == 0) {
		*h = (struct dt_kvhost){.bytes = block_bytes,
					.block_size = block_size,
					.cap = (int)n,
					.mask = buckets - 1,
					.first = -1,
					.last = -1};
		h->entry = calloc(n, sizeof(*h->entry));
		h->tokens = calloc(n * (size_t)block_size, sizeof(*h->tokens));
		h->bucket = malloc(buckets * sizeof(*h->bucket));
		rc = h->entry && h->tokens && h->bucket ? dt_arena_init(&h->data, n * block_bytes, err)
							: -ENOMEM;
	}
	if (rc < 0) {
		dt_kvhost_close(h);
		return dt_err_sys(err, rc, "cannot keep %s of cache blocks in host memory",
				  dt_format_size(room, have, sizeof(have)));
	}
	memset(h->bucket, -1, buckets * sizeof(*h->bucket));
	*ret = h;
	return 0;
}

void dt_kvhost_close(struct dt_kvhost *h)
{
	if (!h)
		return;
	dt_arena_release(&h->data);
	free(h->entry);
	free(h->tokens);
	free(h->bucket);
	free(h);
}

static void unlink_entry(struct dt_kvhost *h, int32_t i)
{
	const struct entry *e = &h->entry[i];

	*(e->prev >= 0 ? &h->entry[e->prev].next : &h->first) = e->next;
	*(e->next >= 0 ? &h->entry[e->next].prev : &h->last) = e->prev;
}

static void link_last(struct dt_kvhost *h, int32_t i)
{
	struct entry *e = &h->entry[i];

	e->prev = h->last;
	e->next = -1;
	*(h->last >= 0 ? &h->entry[h->last].next : &h->first) = i;
	h->last = i;
}

static int32_t *bucket_of(struct dt_kvhost *h, struct dt_kvkey key)
{
	return &h->bucket[key.w[0] & h->mask];
}

static char *data_of(struct dt_kvhost *h, int32_t i)
{
	return h->data.base + (size_t)i * h->bytes;
}

/* Returns the entry's index, -1: none. */
static int32_t lookup(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens)
{
	const size_t n = (size_t)h->block_size;

	for (int32_t i = *bucket_of(h, key); i >= 0; i = h->entry[i].chain)
		if (dt_kvkey_equal(h->entry[i].key, key) &&
		    !memcmp(h->tokens + (size_t)i * n, tokens, n * sizeof(*tokens)))
			return i;
	return -1;
}

const void *dt_kvhost_find(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens)
{
	int32_t i = lookup(h, key, tokens);

	if (i < 0)
		return NULL;
	unlink_entry(h, i);
	link_last(h, i);
	return data_of(h, i);
}

/* Removes entry i from its bucket; it stays in the LRU list. */
static void hide(struct dt_kvhost *h, int32_t i)
{
	int32_t *at = bucket_of(h, h->entry[i].key);

	while (*at != i)
		at = &h->entry[*at].chain;
	*at = h->entry[i].chain;
}

void *dt_kvhost_room(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens)
{
	const size_t n = (size_t)h->block_size;
	int32_t *bucket, i = h->used;

	if (i == h->cap) {
		i = h->first;
		if (!h->entry[i].hidden)
			hide(h, i);
		unlink_entry(h, i);
	} else {
		h->used++;
	}
	bucket = bucket_of(h, key);
	h->entry[i].key = key;
	h->entry[i].hidden = false;
	h->entry[i].chain = *bucket;
	*bucket = i;
	link_last(h, i);
	memcpy(h->tokens + (size_t)i * n, tokens, n * sizeof(*tokens));
	return data_of(h, i);
}

void dt_kvhost_forget(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens)
{
	int32_t i = lookup(h, key, tokens);

	if (i < 0)
		return;
	hide(h, i);
	h->entry[i].hidden = true; /* its memory is reused when it becomes the oldest */
}

int dt_kvhost_used(const struct dt_kvhost *h)
{
	return h->used;
}
/* SPDX-License-Identifier: Apache-2.0 */
