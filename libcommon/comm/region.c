/*
 * Registered memory: a memfd mapped over a range of a process, and mappings of it in the other ranks of the
 * machine, made when a collective first needs them. A region is identified by its slot on the owner's part of
 * the board and a generation number that is never reused, so stale mappings are detected and dropped.
 */
#include "comm/internal.h"
#include "comm/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Mapping in this process of a region of another rank of the machine. */
struct dt_comm_region_map {
	uint64_t gen;
	char *base;
	size_t bytes;
};

static struct dt_comm_region *own(struct dt_world *w, int i)
{
	return &atomic_load_explicit(&w->me, memory_order_relaxed)->region[i];
}

static int add(struct dt_world *w, char *base, size_t bytes, bool fixed, void **ret, struct dt_err *err)
{
	int i = 0, fd, rc;
	void *p;

	while (i < DT_COMM_REGIONS_MAX && own(w, i)->gen)
		i++;
	if (i == DT_COMM_REGIONS_MAX)
		return dt_err_set(err, -ENOSPC, "cannot register memory: %d ranges are already",
				  DT_COMM_REGIONS_MAX);
	fd = memfd_create("dt", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		rc = dt_err_sys(err, -errno, "cannot register %zu bytes", bytes);
		if (fd >= 0)
			close(fd);
		return rc;
	}
	p = mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | (fixed ? MAP_FIXED : 0), fd, 0);
	if (p == MAP_FAILED) {
		rc = dt_err_sys(err, -errno, "cannot map %zu bytes", bytes);
		close(fd);
		return rc;
	}
	madvise(p, bytes, MADV_HUGEPAGE); /* if the system allows it for shared memory */
	*own(w, i) = (struct dt_comm_region){
		.gen = ++w->region_gen, .base = p, .bytes = bytes, .fd = fd, .allocated = !fixed};
	*ret = p;
	return 0;
}

int dt_buffer_alloc(struct dt_world *w, size_t bytes, void **ret, struct dt_err *err)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (bytes > SIZE_MAX - page)
		return dt_err_set(err, -EOVERFLOW, "cannot register %zu bytes", bytes);
	return add(w, NULL, bytes ? (bytes + page - 1) / page * page : page, false, ret, err);
}

int dt_buffer_share(struct dt_world *w, void *base, size_t bytes, struct dt_err *err)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)base / page * page;
	uintptr_t to = ((uintptr_t)base + bytes + page - 1) / page * page;
	void *at;

	if (w->board_n < 2 || w->opts.transport != DT_TRANSPORT_AUTO || !bytes)
		return 0;
	for (int i = 0; i < DT_COMM_REGIONS_MAX; i++) {
		const struct dt_comm_region *r = own(w, i);

		if (r->gen && (uintptr_t)r->base < to && (uintptr_t)r->base + r->bytes > from)
			return dt_err_set(err, -EEXIST, "cannot register %zu bytes: some are already", bytes);
	}
	return add(w, (char *)from, to - from, true, &at, err);
}

static void forget(struct dt_world *w, struct dt_comm_region *r)
{
	if (r->allocated) {
		munmap(r->base, r->bytes);
		if (ftruncate(r->fd, 0)) /* frees the memory now, even while others map it */
			dt_log_msg(w->log, "cannot free %zu bytes of shared memory", r->bytes);
	}
	close(r->fd);
	*r = (struct dt_comm_region){0};
}

void dt_buffer_free(struct dt_world *w, void *base)
{
	for (int i = 0; base && i < DT_COMM_REGIONS_MAX; i++)
		if (own(w, i)->gen && own(w, i)->allocated && own(w, i)->base == base)
			forget(w, own(w, i));
}

void dt_buffer_unshare(struct dt_world *w, void *base, size_t bytes)
{
	for (int i = 0; i < DT_COMM_REGIONS_MAX; i++) {
		struct dt_comm_region *r = own(w, i);

		if (r->gen && !r->allocated && r->base < (char *)base + bytes &&
		    r->base + r->bytes > (char *)base)
			forget(w, r);
	}
}

struct dt_comm_offer dt_comm_region_find(struct dt_world *w, const void *p, size_t bytes)
{
	for (int i = 0; p && i < DT_COMM_REGIONS_MAX; i++) {
		const struct dt_comm_region *r = own(w, i);

		if (r->gen && (const char *)p >= r->base &&
		    (const char *)p - r->base <= (ptrdiff_t)r->bytes &&
		    bytes <= r->bytes - (size_t)((const char *)p - r->base))
			return (struct dt_comm_offer){i, r->gen, (size_t)((const char *)p - r->base)};
	}
	return (struct dt_comm_offer){.region = -1};
}

/*
 * Why another rank's memory cannot be opened. The files of a process that dies are closed some time before it
 * counts as dead.
 */
static int cannot_open(const struct dt_world *w, int local, int error, struct dt_err *err)
{
	const int pid = atomic_load(&w->board[local].pid);
	uint64_t born;

	for (int i = 0; i < 100; i++) {
		if (dt_comm_process(pid, &born) == 0)
			return dt_err_set(err, -EIO, "rank %d died (process %d is gone)",
					  w->node_ranks[local], pid);
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	}
	return dt_err_sys(err, -error, "cannot open the memory of rank %d", w->node_ranks[local]);
}

int dt_comm_region_reach(struct dt_world *w, int local, const struct dt_comm_offer *o, char **ret,
			 struct dt_err *err)
{
	const struct dt_comm_region *r = &w->board[local].region[o->region];
	struct dt_comm_region_map *m;
	char path[64];
	struct stat st;
	void *p;
	int fd;

	if (!w->maps) {
		w->maps = calloc((size_t)w->board_n * DT_COMM_REGIONS_MAX, sizeof(*w->maps));
		if (!w->maps)
			return dt_err_sys(err, -ENOMEM, "maps of %d ranks", w->board_n);
	}
	m = &w->maps[local * DT_COMM_REGIONS_MAX + o->region];
	if (m->gen != o->gen) {
		if (m->base)
			munmap(m->base, m->bytes);
		*m = (struct dt_comm_region_map){0};
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", atomic_load(&w->board[local].pid), r->fd);
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			return cannot_open(w, local, errno, err);
		if (fstat(fd, &st) || (size_t)st.st_size < r->bytes) {
			close(fd);
			return dt_err_set(err, -EIO, "the memory of rank %d is gone", w->node_ranks[local]);
		}
		p = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
		if (p == MAP_FAILED)
			return dt_err_sys(err, -errno, "cannot map %zu bytes of rank %d", r->bytes,
					  w->node_ranks[local]);
		*m = (struct dt_comm_region_map){o->gen, p, r->bytes};
	}
	*ret = m->base + o->offset;
	return 0;
}

void dt_comm_regions_release(struct dt_world *w)
{
	for (int i = 0; i < DT_COMM_REGIONS_MAX; i++)
		if (own(w, i)->gen)
			forget(w, own(w, i));
	for (int i = 0; w->maps && i < w->board_n * DT_COMM_REGIONS_MAX; i++)
		if (w->maps[i].base)
			munmap(w->maps[i].base, w->maps[i].bytes);
	free(w->maps);
	w->maps = NULL;
}
/* SPDX-License-Identifier: Apache-2.0 */
