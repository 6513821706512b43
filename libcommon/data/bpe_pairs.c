/* A hash table of pairs with open addressing, and a heap of them by count. */
#include "data/bpe_pairs.h"

#include "base/room.h"
#include "data/bpe.h"

#include <errno.h>
#include <stdlib.h>

struct bpe_candidate {
	int64_t count;
	uint64_t key;
};

static int grow_slots(struct bpe_pairs *s)
{
	uint32_t size = s->slot ? 2 * (s->mask + 1) : 1 << 16;
	uint32_t *slot = calloc(size, sizeof(*slot));

	if (!slot || !size) {
		free(slot);
		return -ENOMEM;
	}
	free(s->slot);
	s->slot = slot;
	s->mask = size - 1;
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t at = (uint32_t)dt_bpe_hash(s->pair[i].key) & s->mask;

		while (slot[at])
			at = (at + 1) & s->mask;
		slot[at] = i + 1;
	}
	return 0;
}

/* Finds a pair, or adds it. */
static struct bpe_pair *get_pair(struct bpe_pairs *s, uint64_t key)
{
	uint32_t at;

	if ((!s->slot || s->n >= s->mask / 2) && grow_slots(s) < 0)
		return NULL;
	for (at = (uint32_t)dt_bpe_hash(key) & s->mask; s->slot[at]; at = (at + 1) & s->mask)
		if (s->pair[s->slot[at] - 1].key == key)
			return &s->pair[s->slot[at] - 1];
	if (!DT_ROOM(s->pair, s->n, s->cap, 1 << 15))
		return NULL;
	s->pair[s->n] = (struct bpe_pair){.key = key};
	s->slot[at] = ++s->n;
	return &s->pair[s->n - 1];
}

int bpe_pairs_change(struct bpe_pairs *s, int32_t left, int32_t right, uint32_t w, int64_t by)
{
	struct bpe_pair *p = get_pair(s, dt_bpe_pair(left, right));

	if (!p)
		return -ENOMEM;
	p->count += by;
	if (by < 0)
		return 0;
	if (!p->n || p->word[p->n - 1] != w) {
		if (!DT_ROOM(p->word, p->n, p->cap, 4))
			return -ENOMEM;
		p->word[p->n++] = w;
	}
	if (!p->queued) {
		if (!DT_ROOM(s->fresh, s->fresh_n, s->fresh_cap, 1024))
			return -ENOMEM;
		p->queued = true;
		s->fresh[s->fresh_n++] = (uint32_t)(p - s->pair);
	}
	return 0;
}

static bool before(struct bpe_candidate a, struct bpe_candidate b)
{
	return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static int heap_push(struct bpe_pairs *s, struct bpe_candidate c)
{
	size_t i = s->heap_n;

	if (!DT_ROOM(s->heap, s->heap_n, s->heap_cap, 1 << 15))
		return -ENOMEM;
	s->heap_n++;
	for (; i > 0 && before(c, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = c;
	return 0;
}

static struct bpe_candidate heap_pop(struct bpe_pairs *s)
{
	struct bpe_candidate top = s->heap[0], last = s->heap[--s->heap_n];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < s->heap_n) {
		if (c + 1 < s->heap_n && before(s->heap[c + 1], s->heap[c]))
			c++;
		if (!before(s->heap[c], last))
			break;
		s->heap[i] = s->heap[c];
		i = c;
	}
	s->heap[i] = last;
	return top;
}

int bpe_pairs_queue(struct bpe_pairs *s)
{
	for (size_t i = 0; i < s->fresh_n; i++) {
		struct bpe_pair *p = &s->pair[s->fresh[i]];

		p->queued = false;
		if (p->count > 0 &&
		    heap_push(s, (struct bpe_candidate){.count = p->count, .key = p->key}) < 0)
			return -ENOMEM;
	}
	s->fresh_n = 0;
	return 0;
}

int bpe_pairs_most(struct bpe_pairs *s, struct bpe_pair **ret)
{
	while (s->heap_n) {
		struct bpe_candidate top = heap_pop(s);
		struct bpe_pair *p = get_pair(s, top.key);

		if (!p)
			return -ENOMEM;
		if (p->count == top.count) {
			*ret = p;
			return 0;
		}
		/* Its count has decreased since it was queued. */
		if (p->count > 0 &&
		    heap_push(s, (struct bpe_candidate){.count = p->count, .key = p->key}) < 0)
			return -ENOMEM;
	}
	*ret = NULL;
	return 0;
}

void bpe_pairs_release(struct bpe_pairs *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		free(s->pair[i].word);
	free(s->pair);
	free(s->slot);
	free(s->heap);
	free(s->fresh);
	*s = (struct bpe_pairs){0};
}
/* SPDX-License-Identifier: Apache-2.0 */
