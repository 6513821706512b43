#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int dt_arena_init(struct dt_arena *a, size_t bytes, struct dt_err *err)
{
	void *p;

	if (!bytes)
		bytes = DT_ALIGN;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return dt_err_sys(err, -errno, "cannot map %zu bytes", bytes);
	madvise(p, bytes, MADV_HUGEPAGE);
	a->base = p;
	a->bytes = bytes;
	return 0;
}

void dt_arena_release(struct dt_arena *a)
{
	if (a->base)
		munmap(a->base, a->bytes);
	a->base = NULL;
	a->bytes = 0;
}

struct dt_pool_block {
	struct dt_pool_block *next;
	size_t used, cap;
	_Alignas(16) char data[];
};

void *dt_pool_alloc(struct dt_pool *p, size_t n)
{
	struct dt_pool_block *b = p->head;
	void *ret;

	if (n > SIZE_MAX / 2)
		return NULL;
	n = (n + 15) & ~(size_t)15;
	if (!b || b->cap - b->used < n) {
		size_t cap = n > 16384 ? n : 16384;

		b = calloc(1, sizeof(*b) + cap);
		if (!b)
			return NULL;
		b->cap = cap;
		b->next = p->head;
		p->head = b;
	}
	ret = b->data + b->used;
	b->used += n;
	return ret;
}

char *dt_pool_strdup(struct dt_pool *p, const char *s)
{
	size_t n = strlen(s) + 1;
	char *d = dt_pool_alloc(p, n);

	if (d)
		memcpy(d, s, n);
	return d;
}

void dt_pool_release(struct dt_pool *p)
{
	while (p->head) {
		struct dt_pool_block *b = p->head;

		p->head = b->next;
		free(b);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
