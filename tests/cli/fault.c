/*
 * Preloaded by tests: makes a call on a file of a checkpoint fail, or kills or stops the process at that
 * call. DT_FAULT=CALL:N[+]:WHAT
 *
 * CALL is pwrite, fsync, fallocate, rename or latest (the rename of the link "latest"). N is the number of
 * the call within the process, counted from 1 over all files with "step-" or "latest" in their path; with +
 * all later calls are affected, too. WHAT is an errno as a number, kill, stop or slow. A stopped process
 * completes the call once it is continued; a slow call is carried out 2 s later, while other threads go on.
 *
 * CALL scratch-pread, scratch-pwrite or scratch-fallocate concerns files of base/scratch.h, for which
 * io_uring is then disabled. WHAT may then also be short (the call transfers only 8 KiB) or, for
 * scratch-pread, change (one bit of the data read is flipped). scratch-statvfs: the file system reports no
 * free block.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static atomic_int calls;

/*
 * Returns 1: the call fails with errno set; 2: it transfers only a part; 3: it changes a bit; 0: it is
 * carried out.
 */
static int fails(const char *call, const char *path, int fd)
{
	const char *want = getenv("DT_FAULT"), *p;
	char name[64], real[4096];
	int n, used = 0, now;
	ssize_t k;

	if (!want || strncmp(want, call, strlen(call)) || want[strlen(call)] != ':')
		return 0;
	if (!path) {
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
		k = readlink(name, real, sizeof(real) - 1);
		if (k < 0)
			return 0;
		real[k] = '\0';
		path = real;
	}
	if (!strncmp(call, "scratch-", 8) ? !strstr(path, "dt-scratch-")
					  : !strstr(path, "step-") && !strstr(path, "latest"))
		return 0;
	p = want + strlen(call) + 1;
	if (sscanf(p, "%d%n", &n, &used) != 1)
		return 0;
	now = atomic_fetch_add(&calls, 1) + 1;
	if (now != n && !(p[used] == '+' && now > n))
		return 0;
	want = strrchr(want, ':') + 1;
	if (!strcmp(want, "kill"))
		raise(SIGKILL);
	if (!strcmp(want, "stop")) {
		raise(SIGSTOP);
		return 0;
	}
	if (!strcmp(want, "slow")) {
		sleep(2);
		return 0;
	}
	if (!strcmp(want, "short"))
		return 2;
	if (!strcmp(want, "change"))
		return 3;
	errno = atoi(want);
	return 1;
}

#define NEXT(name) ((__typeof__(&(name)))dlsym(RTLD_NEXT, #name))

ssize_t pwrite(int fd, const void *buf, size_t n, off_t at)
{
	int k = fails("scratch-pwrite", NULL, fd);

	if (k == 2)
		n = n > 8192 ? 8192 : n;
	return k == 1 || fails("pwrite", NULL, fd) ? -1 : NEXT(pwrite64)(fd, buf, n, at);
}

ssize_t pread(int fd, void *buf, size_t n, off_t at)
{
	int k = fails("scratch-pread", NULL, fd);
	ssize_t got;

	if (k == 2)
		n = n > 8192 ? 8192 : n;
	got = k == 1 ? -1 : NEXT(pread64)(fd, buf, n, at);
	if (k == 3 && got > 0)
		((char *)buf)[got / 2] ^= 1;
	return got;
}

int io_uring_queue_init(unsigned entries, void *ring, unsigned flags)
{
	const char *want = getenv("DT_FAULT");
	int (*next)(unsigned, void *, unsigned) = (__typeof__(next))dlsym(RTLD_NEXT, "io_uring_queue_init");

	return !next || (want && strstr(want, "scratch")) ? -EPERM : next(entries, ring, flags);
}

int statvfs(const char *path, struct statvfs *v)
{
	int rc = NEXT(statvfs64)(path, (void *)v);

	if (getenv("DT_FAULT") && strstr(getenv("DT_FAULT"), "scratch-statvfs"))
		v->f_bavail = 0;
	return rc;
}

int fsync(int fd)
{
	return fails("fsync", NULL, fd) ? -1 : NEXT(fsync)(fd);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
	return fails("fallocate", NULL, fd) || fails("scratch-fallocate", NULL, fd)
		       ? -1
		       : NEXT(fallocate64)(fd, mode, at, n);
}

int rename(const char *from, const char *to)
{
	return fails(strstr(from, "latest") ? "latest" : "rename", from, -1) ? -1 : NEXT(rename)(from, to);
}
/* SPDX-License-Identifier: Apache-2.0 */
