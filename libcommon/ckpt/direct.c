/*
 * Large transfers with O_DIRECT, which bypass the page cache: no copy, no pages to allocate, and other cached
 * data stays. If a file system does not support it, callers use the page cache.
 */
#include "ckpt/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)2 << 20)

char *ck_bounce_new(void)
{
	char *p = aligned_alloc(HUGE_PAGE, CK_DIRECT_BLOCK);

	if (p)
		madvise(p, CK_DIRECT_BLOCK, MADV_HUGEPAGE);
	return p;
}

int ck_set_direct(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) < 0 ? -errno : 0;
}

bool ck_cached(int fd, uint64_t at)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	unsigned char there = 1;
	void *map = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, (off_t)(at / page * page));

	if (map == MAP_FAILED)
		return true;
	mincore(map, page, &there); /* on failure it stays 1: the page cache is always correct */
	munmap(map, page);
	return there & 1;
}

int64_t ck_direct_read(int fd, char *bounce, uint64_t at, size_t n)
{
	uint64_t first = at / CK_DIRECT_ALIGN * CK_DIRECT_ALIGN;
	size_t skip = (size_t)(at - first), want = skip + n, got = 0;

	want = (want + CK_DIRECT_ALIGN - 1) / CK_DIRECT_ALIGN * CK_DIRECT_ALIGN;
	while (got < skip + n) {
		ssize_t k = pread(fd, bounce + got, want - got, (off_t)(first + got));

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			return -errno;
		got += (size_t)k;
		if (k == 0 || got % CK_DIRECT_ALIGN) /* end of file */
			break;
	}
	return got < skip + n ? -EBADMSG : (int64_t)skip;
}

int ck_direct_write(int fd, const char *data, size_t n, uint64_t at, size_t *ret_done)
{
	size_t done = 0;
	int rc = 0;

	while (done < n && rc == 0) {
		ssize_t k = pwrite(fd, data + done, n - done, (off_t)(at + done));

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			rc = k < 0 ? -errno : -EIO;
		else
			done += (size_t)k;
		if (done % CK_DIRECT_ALIGN)
			break; /* the rest is no longer aligned */
	}
	*ret_done = done;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
