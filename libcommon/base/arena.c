#include "base/arena.h"

#include <errno.h>
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
/* SPDX-License-Identifier: Apache-2.0 */
