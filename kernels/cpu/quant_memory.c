/*
 * Allocates memory of packed parts in 2 MiB pages where available: a single row reads every weight once, and
 * with 4 KiB pages would wait for page walks. Small parts share chunks; a chunk is freed with its last part.
 * The space of a freed part is used again: if weights are loaded only to be written to disk, few parts stay.
 */
#include "kernels/cpu/quant.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define LARGE	  ((size_t)DT_PANELS_SHARED) /* larger parts get their own memory, of whole pages */
#define CHUNK	  (4 * LARGE)
#define ALIGN	  ((size_t)64)

struct chunk { /* header of a chunk, which is aligned to CHUNK */
	size_t used, parts;
	size_t writable; /* bytes from the start; the others are reserved addresses, which no limit counts */
};

struct hole { /* of freed parts, inside the used bytes of a chunk */
	char *at;
	size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the fields below */
static struct chunk *newest;				 /* the chunk with free space; NULL: none */
static struct hole *hole;				 /* by address; neighbours are one hole */
static size_t holes, room;

static struct chunk *chunk_of(const void *p)
{
	return (struct chunk *)((uintptr_t)p / CHUNK * CHUNK);
}

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
	char *p = mmap(NULL, 2 * CHUNK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *at;
	struct chunk *c;

	if (p == MAP_FAILED)
		return NULL;
	at = p + (CHUNK - (uintptr_t)p % CHUNK) % CHUNK;
	if (at > p)
		munmap(p, (size_t)(at - p));
	munmap(at + CHUNK, (size_t)(p + CHUNK - at));
	madvise(at, CHUNK, MADV_HUGEPAGE);
	if (mprotect(at, HUGE_PAGE, PROT_READ | PROT_WRITE) < 0) {
		munmap(at, CHUNK);
		return NULL;
	}
	c = (struct chunk *)at;
	*c = (struct chunk){.used = lines(sizeof(*c)), .writable = HUGE_PAGE};
	return c;
}

/* Makes the first n bytes writable, in whole huge pages. */
static int extend(struct chunk *c, size_t n)
{
	const size_t end = (n + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;

	if (end <= c->writable)
		return 0;
	if (mprotect((char *)c + c->writable, end - c->writable, PROT_READ | PROT_WRITE) < 0)
		return -1;
	c->writable = end;
	return 0;
}

static void remove_holes(size_t first, size_t n)
{
	if (!n)
		return;
	memmove(hole + first, hole + first + n, (holes - first - n) * sizeof(*hole));
	holes -= n;
}

/* The front of the first hole that is large enough; NULL: there is none. */
static void *of_hole(size_t bytes)
{
	size_t i = 0;
	char *at;

	while (i < holes && hole[i].bytes < bytes)
		i++;
	if (i == holes)
		return NULL;
	at = hole[i].at;
	hole[i].at += bytes;
	hole[i].bytes -= bytes;
	if (!hole[i].bytes)
		remove_holes(i, 1);
	chunk_of(at)->parts++;
	return at;
}

static void *of_chunk(size_t bytes)
{
	char *at = of_hole(bytes);

	if (at)
		return at;
	if (!newest || newest->used + bytes > CHUNK) {
		struct chunk *c = chunk_open();

		if (!c)
			return NULL;
		newest = c;
	}
	if (extend(newest, newest->used + bytes) < 0)
		return NULL;
	at = (char *)newest + newest->used;
	newest->used += bytes;
	newest->parts++;
	return at;
}

/* The index of the hole that has the bytes at p now; holes: without memory for the list, they stay unused. */
static size_t add_hole(char *p, size_t bytes)
{
	size_t i = 0;

	while (i < holes && hole[i].at < p)
		i++;
	if (i > 0 && hole[i - 1].at + hole[i - 1].bytes == p) {
		hole[--i].bytes += bytes;
	} else {
		if (holes == room) {
			struct hole *more = realloc(hole, (2 * room + 16) * sizeof(*hole));

			if (!more)
				return holes;
			hole = more;
			room = 2 * room + 16;
		}
		memmove(hole + i + 1, hole + i, (holes++ - i) * sizeof(*hole));
		hole[i] = (struct hole){p, bytes};
	}
	if (i + 1 < holes && hole[i].at + hole[i].bytes == hole[i + 1].at) {
		hole[i].bytes += hole[i + 1].bytes;
		remove_holes(i + 1, 1);
	}
	return i;
}

/* Returns the whole pages of a hole to the system, as far as the freed bytes at p touch them. */
static void drop_pages(const struct hole *h, const char *p, size_t bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)h->at,
			end = begin + h->bytes;
	uintptr_t from = (uintptr_t)p / page * page, to = ((uintptr_t)p + bytes + page - 1) / page * page;

	if (from < begin)
		from = (begin + page - 1) / page * page;
	if (to > end)
		to = end / page * page;
	if (from < to)
		madvise((void *)from, to - from, MADV_DONTNEED); /* failure is harmless */
}

static void free_in_chunk(struct chunk *c, char *p, size_t bytes)
{
	const size_t i = add_hole(p, bytes);

	if (i == holes)
		return;
	drop_pages(&hole[i], p, bytes);
	if (hole[i].at + hole[i].bytes == (char *)c + c->used) { /* free space at the end again */
		c->used -= hole[i].bytes;
		remove_holes(i, 1);
	}
}

static void free_chunk(struct chunk *c)
{
	size_t first = 0, n = 0;

	while (first < holes && hole[first].at < (char *)c)
		first++;
	while (first + n < holes && chunk_of(hole[first + n].at) == c)
		n++;
	remove_holes(first, n);
	if (c == newest)
		newest = NULL;
	munmap(c, CHUNK);
	if (!holes) {
		free(hole);
		hole = NULL;
		room = 0;
	}
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
	struct chunk *c = chunk_of(p);

	if (!p || bytes >= LARGE) {
		free(p);
		return;
	}
	pthread_mutex_lock(&lock);
	if (--c->parts == 0)
		free_chunk(c);
	else
		free_in_chunk(c, p, lines(bytes));
	pthread_mutex_unlock(&lock);
}
/* SPDX-License-Identifier: Apache-2.0 */
