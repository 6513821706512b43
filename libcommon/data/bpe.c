#include "data/bpe.h"

#include "base/room.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int dt_bpe_init(struct dt_bpe *b, size_t merges, struct dt_err *err)
{
	size_t size = 16;

	memset(b, 0, sizeof(*b));
	for (int i = 0; i < 256; i++)
		b->byte_id[i] = -1;
	if (!merges)
		return 0;
	while (size < 2 * merges)
		size *= 2;
	b->tab = malloc(size * sizeof(*b->tab));
	if (!b->tab)
		return dt_err_sys(err, -ENOMEM, "cannot hold %zu merges", merges);
	memset(b->tab, 0xff, size * sizeof(*b->tab));
	b->mask = size - 1;
	return 0;
}

void dt_bpe_release(struct dt_bpe *b)
{
	free(b->tab);
	free(b->word_id);
	dt_bytemap_release(&b->words);
	memset(b, 0, sizeof(*b));
}

void dt_bpe_add(struct dt_bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
	uint64_t pair = dt_bpe_pair(left, right), i = dt_bpe_hash(pair) & b->mask;

	while (b->tab[i].pair != UINT64_MAX && b->tab[i].pair != pair)
		i = (i + 1) & b->mask;
	if (b->tab[i].pair == UINT64_MAX)
		b->merges++;
	b->tab[i] = (struct dt_bpe_merge){.pair = pair, .rank = rank, .id = id};
}

struct link { /* the merge of a symbol with the next one */
	uint32_t rank;
	int32_t id;
};

static struct link link_of(const struct dt_bpe *b, int32_t left, int32_t right)
{
	const struct dt_bpe_merge *m = dt_bpe_find(b, left, right);

	return m ? (struct link){m->rank, m->id} : (struct link){DT_BPE_NO_RANK, -1};
}

size_t dt_bpe_short(const struct dt_bpe *b, int32_t *sym, size_t n)
{
	struct link link[DT_BPE_SHORT];

	for (size_t i = 0; i + 1 < n; i++)
		link[i] = link_of(b, sym[i], sym[i + 1]);
	while (n > 1) {
		size_t at = 0;

		for (size_t i = 1; i + 1 < n; i++)
			if (link[i].rank < link[at].rank)
				at = i;
		if (link[at].rank == DT_BPE_NO_RANK)
			break;
		sym[at] = link[at].id;
		n--;
		memmove(sym + at + 1, sym + at + 2, (n - at - 1) * sizeof(*sym));
		if (at + 1 < n) {
			memmove(link + at + 1, link + at + 2, (n - at - 2) * sizeof(*link));
			link[at] = link_of(b, sym[at], sym[at + 1]);
		}
		if (at > 0)
			link[at - 1] = link_of(b, sym[at - 1], sym[at]);
	}
	return n;
}

struct cand {		/* a merge in the queue, possibly stale */
	uint64_t order; /* rank << 32 | position: lowest first */
	uint64_t pair;
	int32_t id;
};

struct queue {
	struct cand *v;
	size_t n, cap;
};

static int queue_push(struct queue *q, struct cand c)
{
	size_t i = q->n;

	if (!DT_ROOM(q->v, q->n, q->cap, 256))
		return -ENOMEM;
	q->n++;
	for (; i > 0 && q->v[(i - 1) / 2].order > c.order; i = (i - 1) / 2)
		q->v[i] = q->v[(i - 1) / 2];
	q->v[i] = c;
	return 0;
}

static struct cand queue_pop(struct queue *q)
{
	struct cand top = q->v[0], last = q->v[--q->n];
	size_t i = 0, c;

	while ((c = 2 * i + 1) < q->n) {
		if (c + 1 < q->n && q->v[c + 1].order < q->v[c].order)
			c++;
		if (q->v[c].order >= last.order)
			break;
		q->v[i] = q->v[c];
		i = c;
	}
	q->v[i] = last;
	return top;
}

struct chain { /* linked list of the remaining symbols; n marks the end */
	int32_t *sym;
	uint32_t *prev, *next;
	uint32_t n;
};

static int offer(const struct dt_bpe *b, struct queue *q, const struct chain *c, uint32_t at)
{
	struct link l;
	uint32_t next = c->next[at];

	if (next >= c->n)
		return 0;
	l = link_of(b, c->sym[at], c->sym[next]);
	if (l.rank == DT_BPE_NO_RANK)
		return 0;
	return queue_push(q, (struct cand){.order = (uint64_t)l.rank << 32 | at,
					   .pair = dt_bpe_pair(c->sym[at], c->sym[next]),
					   .id = l.id});
}

static int merge_all(const struct dt_bpe *b, struct queue *q, struct chain *c)
{
	for (uint32_t i = 0; i + 1 < c->n; i++)
		if (offer(b, q, c, i) < 0)
			return -ENOMEM;
	while (q->n) {
		struct cand top = queue_pop(q);
		uint32_t at = (uint32_t)top.order, next = c->next[at];

		if (c->sym[at] < 0 || next >= c->n || dt_bpe_pair(c->sym[at], c->sym[next]) != top.pair)
			continue;
		c->sym[at] = top.id;
		c->sym[next] = -1;
		c->next[at] = c->next[next];
		if (c->next[at] < c->n)
			c->prev[c->next[at]] = at;
		if (offer(b, q, c, at) < 0 || (at > 0 && offer(b, q, c, c->prev[at]) < 0))
			return -ENOMEM;
	}
	return 0;
}

int64_t dt_bpe_long(const struct dt_bpe *b, int32_t *sym, size_t n)
{
	struct queue q = {0};
	struct chain c = {.sym = sym, .n = (uint32_t)n};
	int64_t rc = -ENOMEM;
	size_t out = 0;

	if (n >= INT32_MAX)
		return -ENOMEM;
	c.prev = malloc((n + 1) * sizeof(*c.prev));
	c.next = malloc((n + 1) * sizeof(*c.next));
	if (!c.prev || !c.next)
		goto out;
	for (uint32_t i = 0; i < c.n; i++) {
		c.prev[i] = i - 1;
		c.next[i] = i + 1;
	}
	if (merge_all(b, &q, &c) < 0)
		goto out;
	for (size_t i = 0; i < n; i++)
		if (sym[i] >= 0)
			sym[out++] = sym[i];
	rc = (int64_t)out;
out:
	free(c.prev);
	free(c.next);
	free(q.v);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
