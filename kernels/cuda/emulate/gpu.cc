/*
 * gpu.h without a card. Every allocation ends (within 16 bytes) at an unmapped page, starts as NaN, and
 * cannot be accessed by the host outside launches and copies.
 */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/emulate/memory.h"
#include "kernels/cuda/emulate/queue.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20) /* mprotect, called twice per launch, handles a huge page as one page */

/*
 * A kernel's accesses walk the list without the lock while another thread allocates and frees. A node is
 * therefore never freed but used again: whoever stands on one goes on into the list, at worst from its start.
 */
struct region {
	char *all, *map, *base; /* all: the whole mapping; map: its first huge page */
	size_t room, mapped, n;
	int uses; /* copies that have it open */
	struct region *next, *next_spare;
};

static struct region *regions, *spare;
/* The region of the last access to a page, by page number mod FOUND. A freed node, with n 0, matches none. */
#define FOUND 64
static struct region *found[FOUND];
static int opened;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct region *load(struct region *const *at)
{
	return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

static void store(struct region **at, struct region *r)
{
	__atomic_store_n(at, r, __ATOMIC_RELEASE);
}

static bool has(const struct region *r, const void *p, size_t n)
{
	return (const char *)p >= r->base && (const char *)p + n <= r->base + r->n;
}

static struct region *region_of(const void *p, size_t n)
{
	struct region **at = &found[(uintptr_t)p / PAGE % FOUND], *r = load(at);

	if (r && has(r, p, n))
		return r;
	for (r = load(&regions); r; r = load(&r->next))
		if (has(r, p, n)) {
			store(at, r);
			return r;
		}
	return NULL;
}

bool dt_emu_is_device(const void *p, size_t n)
{
	return region_of(p, n) != NULL;
}

static void protect(struct region *r, int how)
{
	if (mprotect(r->map, r->mapped, how) < 0)
		dt_emu_die("mprotect failed");
}

void dt_emu_open_memory(bool open)
{
	pthread_mutex_lock(&lock);
	opened += open ? 1 : -1;
	if (opened == (open ? 1 : 0))
		for (struct region *r = regions; r; r = r->next)
			if (!r->uses)
				protect(r, open ? PROT_READ | PROT_WRITE : PROT_NONE);
	pthread_mutex_unlock(&lock);
}

void dt_emu_open_at(const void *p, size_t n, bool open)
{
	struct region *r;

	pthread_mutex_lock(&lock);
	r = region_of(p, n);
	if (r) {
		r->uses += open ? 1 : -1;
		if (!opened && r->uses == (open ? 1 : 0))
			protect(r, open ? PROT_READ | PROT_WRITE : PROT_NONE);
	}
	pthread_mutex_unlock(&lock);
}

void dt_emu_device_memory(int open)
{
	dt_emu_open_memory(open != 0);
}

/* DT_EMULATED_CARDS: number of cards, default 1. */
int dt_gpu_count(void)
{
	const char *s = getenv("DT_EMULATED_CARDS");
	const int n = s ? atoi(s) : 1;

	return n > 0 ? n : -ENODEV;
}

/* DT_EMULATED_SM: their compute capability, default 90. */
int dt_gpu_info(int index, struct dt_gpu_info *ret)
{
	const char *s = getenv("DT_EMULATED_SM");
	const int sm = s ? atoi(s) : 90;

	if (index < 0 || index >= dt_gpu_count())
		return -ENODEV;
	*ret = (struct dt_gpu_info){"emulated", sm / 10, sm % 10, 4, (size_t)4 << 30, {0}};
	snprintf((char *)ret->id, sizeof ret->id, "card %d", index);
	return 0;
}

int dt_gpu_use(int index)
{
	return index < 0 || index >= dt_gpu_count() ? -ENODEV : 0;
}

int dt_gpu_memory(size_t *ret_free, size_t *ret_total)
{
	*ret_total = *ret_free = (size_t)4 << 30;
	pthread_mutex_lock(&lock);
	for (struct region *r = regions; r; r = r->next)
		*ret_free -= r->n < *ret_free ? r->n : *ret_free;
	pthread_mutex_unlock(&lock);
	return 0;
}

bool dt_gpu_emulated(void)
{
	return true;
}

static struct region *node(void)
{
	struct region *r;

	pthread_mutex_lock(&lock);
	r = spare;
	if (r)
		spare = r->next_spare;
	pthread_mutex_unlock(&lock);
	return r ? r : (struct region *)calloc(1, sizeof *r);
}

int dt_gpu_alloc(void **ret, size_t n)
{
	const size_t room = (n + 15) / 16 * 16, mapped = (room + PAGE - 1) / PAGE * PAGE + !room * PAGE;
	const size_t all = mapped + PAGE + (mapped < HUGE ? 0 : HUGE);
	char *map = (char *)mmap(NULL, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct region *r = map == MAP_FAILED ? NULL : node();

	if (!r) {
		if (map != MAP_FAILED)
			munmap(map, all);
		return -ENOMEM;
	}
	r->all = map;
	r->room = all;
	if (mapped >= HUGE) {
		map += -(uintptr_t)map % HUGE;
		madvise(map, mapped / HUGE * HUGE, MADV_HUGEPAGE);
	}
	r->map = map;
	r->base = map + mapped - room;
	r->mapped = mapped;
	r->n = n;
	protect(r, PROT_READ | PROT_WRITE);
	memset(map, 0xff, mapped);
	pthread_mutex_lock(&lock);
	if (!opened)
		protect(r, PROT_NONE);
	store(&r->next, regions);
	store(&regions, r);
	pthread_mutex_unlock(&lock);
	*ret = r->base;
	return 0;
}

void dt_gpu_free(void *p)
{
	struct region **at = &regions, *r;
	size_t n;

	if (!p)
		return;
	dt_emu_finish_all();
	pthread_mutex_lock(&lock);
	while (*at && (*at)->base != p)
		at = &(*at)->next;
	r = *at;
	if (!r)
		dt_emu_die("freed what was never allocated");
	store(at, r->next);
	n = r->n;
	r->n = 0;
	pthread_mutex_unlock(&lock);
	protect(r, PROT_READ | PROT_WRITE);
	for (const char *c = r->map; c < r->map + r->mapped; c++)
		if ((c < r->base || c >= r->base + n) && *c != (char)0xff)
			dt_emu_die("a kernel wrote beside an allocation");
	munmap(r->all, r->room);
	pthread_mutex_lock(&lock);
	r->next_spare = spare;
	spare = r;
	pthread_mutex_unlock(&lock);
}

int dt_gpu_host_alloc(void **ret, size_t n)
{
	*ret = aligned_alloc(64, (n + 63) / 64 * 64 + !n * 64);
	return *ret ? 0 : -ENOMEM;
}

void dt_gpu_host_free(void *p)
{
	if (p)
		dt_emu_finish_all();
	free(p);
}

int dt_gpu_event_ms(void *from, void *to, float *ret)
{
	(void)from;
	(void)to;
	*ret = 0; /* emulated time is meaningless */
	return 0;
}

int dt_gpu_map(struct dt_gpu_map *ret, const void *from, const int64_t n[4], const int64_t step[3])
{
	struct dt_emu_map m = {(const char *)from, {n[0], n[1], n[2], n[3]}, {step[0], step[1], step[2]}};

	for (int i = 0; i < 3; i++)
		if (step[i] % 8 || step[i] <= 0)
			return -EINVAL;
	for (int i = 0; i < 4; i++)
		if (n[i] <= 0)
			return -EINVAL;
	if ((uintptr_t)from % 16)
		return -EINVAL;
	memcpy(ret->of, &m, sizeof m);
	return 0;
}

int dt_gpu_copy_rows(void *to, size_t to_step, const void *from, size_t from_step, size_t n, size_t rows,
		     void *stream)
{
	int rc = 0;

	for (size_t i = 0; i < rows && rc == 0; i++)
		rc = dt_gpu_copy((char *)to + i * to_step, (const char *)from + i * from_step, n, stream);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
