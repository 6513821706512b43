/*
 * Preloaded by tests to imitate a slow disk: every pread of a file whose name ends in .h5 takes
 * DT_SLOW_READ_MS milliseconds longer.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Compiled with _FILE_OFFSET_BITS=64, so that the symbol is pread64, the one that dt calls. */
ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
	static ssize_t (*next)(int, void *, size_t, off_t);
	const char *ms = getenv("DT_SLOW_READ_MS");
	char link[64], path[4096];
	ssize_t k;

	if (!next)
		next = (__typeof__(next))dlsym(RTLD_NEXT, "pread64");
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	k = readlink(link, path, sizeof(path));
	if (ms && k > 3 && !memcmp(path + k - 3, ".h5", 3))
		usleep((useconds_t)atoi(ms) * 1000);
	return next(fd, buf, n, at);
}

/* SPDX-License-Identifier: Apache-2.0 */
