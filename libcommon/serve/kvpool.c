#include "serve/kvpool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BOTTOM (-1) /* last block of the stack */
#define IN_USE (-2)

int dt_kvpool_init(struct dt_kvpool *p, int nblocks, int block_size)
{
	memset(p, 0, sizeof(*p));
	if (nblocks < 1 || block_size < 1)
		return -EINVAL;
	p->next = malloc((size_t)nblocks * sizeof(*p->next));
	if (!p->next)
		return -ENOMEM;
	p->nblocks = p->nfree = nblocks;
	p->block_size = block_size;
	for (int i = 0; i < nblocks; i++)
		p->next[i] = i + 1 < nblocks ? i + 1 : BOTTOM;
	return 0;
}

void dt_kvpool_release(struct dt_kvpool *p)
{
	free(p->next);
	memset(p, 0, sizeof(*p));
}

int dt_kvpool_grow(struct dt_kvpool *p, struct dt_block_table *t, int n)
{
	if (n - t->n > p->nfree)
		return -ENOSPC;
	if (n > t->cap) {
		int cap = n > 2 * t->cap ? n : 2 * t->cap;
		int32_t *b = realloc(t->b, (size_t)cap * sizeof(*b));

		if (!b)
			return -ENOMEM;
		t->b = b;
		t->cap = cap;
	}
	while (t->n < n) {
		int32_t b = p->head;

		p->head = p->next[b];
		p->next[b] = IN_USE;
		p->nfree--;
		t->b[t->n++] = b;
	}
	return 0;
}

void dt_kvpool_free(struct dt_kvpool *p, struct dt_block_table *t)
{
	while (t->n > 0) {
		int32_t b = t->b[--t->n];

		assert(p->next[b] == IN_USE);
		p->next[b] = p->head;
		p->head = b;
		p->nfree++;
	}
	free(t->b);
	*t = (struct dt_block_table){0};
}
