/*
 * Allocates memory of packed parts in 2 MiB pages where available: a single row reads every weight once, and
 * with 4 KiB pages would wait for page walks. Small parts share chunks; a chunk is freed with its last part.
 */
#include "kernels/cpu/quant.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define LARGE	  ((size_t)DT_PANELS_SHARED) /* larger parts get their own memory, of whole pages */
#define CHUNK	  (4 * LARGE)
#define ALIGN	  ((size_t)64)

struct chunk { /* header of a chunk, which is aligned to CHUNK */
	size_t used, parts;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk *newest; /* the chunk with free space; NULL: none */

static size_t lines(size_t n)
{
	return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void *of_pages(size_t bytes)
{
	void *p = aligned_alloc(HUGE_PAGE, bytes);

	if (p)
		madvise(p, bytes, MADV_HUGEPAGE); /* failure is harmless */
	return p;
}

/* By mmap, not malloc: unused memory is never touched and takes no pages. */
static struct chunk *chunk_open(void)
{
	char *p = mmap(NULL, 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *at;

	if (p == MAP_FAILED)
		return NULL;
	at = p + (CHUNK - (uintptr_t)p % CHUNK) % CHUNK;
	if (at > p)
		munmap(p, (size_t)(at - p));
	munmap(at + CHUNK, (size_t)(p + CHUNK - at));
	madvise(at, CHUNK, MADV_HUGEPAGE);
	return (struct chunk *)at;
}

static void *of_chunk(size_t bytes)
{
	char *at;

	if (!newest || newest->used + bytes > CHUNK) {
		struct chunk *c = chunk_open();

		if (!c)
			return NULL;
		*c = (struct chunk){.used = lines(sizeof(*c))};
		newest = c;
	}
	at = (char *)newest + newest->used;
	newest->used += bytes;
	newest->parts++;
	return at;
}

void *dt_panel_alloc(size_t bytes)
{
	void *p;

	if (bytes >= LARGE)
		return of_pages(bytes);
	pthread_mutex_lock(&lock);
	p = of_chunk(lines(bytes));
	pthread_mutex_unlock(&lock);
	return p;
}

void dt_panel_free(void *p, size_t bytes)
{
	struct chunk *c = (struct chunk *)((uintptr_t)p / CHUNK * CHUNK);

	if (!p || bytes >= LARGE) {
		free(p);
		return;
	}
	pthread_mutex_lock(&lock);
	if (--c->parts == 0) {
		if (c == newest)
			newest = NULL;
		munmap(c, CHUNK);
	}
	pthread_mutex_unlock(&lock);
}
/* SPDX-License-Identifier: Apache-2.0 */
