#include "base/mapped.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FILES = 1024, PATH_BYTES = 256 };

/* The handler reads these without the lock: `at` is written last, and taken away first. */
static struct noted {
	atomic_uintptr_t at; /* 0: free */
	size_t bytes;
	char path[PATH_BYTES]; /* the end of a longer path */
} noted[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct iovec text(const char *s)
{
	return (struct iovec){(void *)(uintptr_t)s, strlen(s)};
}

static void on_bus(int sig, siginfo_t *info, void *context)
{
	const uintptr_t where = (uintptr_t)info->si_addr;

	(void)context;
	for (int i = 0; i < FILES; i++) {
		const uintptr_t at = atomic_load(&noted[i].at);
		struct iovec v[] = {text(program_invocation_short_name), text(": cannot read '"),
				    text(noted[i].path),
				    text("': it has become shorter, or its disk has failed\n")};

		if (!at || where < at || where - at >= noted[i].bytes)
			continue;
		(void)!writev(STDERR_FILENO, v, sizeof(v) / sizeof(*v));
		_exit(1);
	}
	signal(sig, SIG_DFL); /* not of a noted file: the access is repeated, and ends the process */
}

static void catch_bus(void)
{
	struct sigaction sa = {.sa_sigaction = on_bus, .sa_flags = SA_SIGINFO};

	sigaction(SIGBUS, &sa, NULL); /* each time: MPI may have set a handler of its own */
}

void dt_mapped_note(const void *at, size_t bytes, const char *path)
{
	const size_t n = strlen(path), skip = n < PATH_BYTES ? 0 : n - (PATH_BYTES - 1);

	pthread_mutex_lock(&lock);
	catch_bus();
	for (int i = 0; i < FILES; i++) {
		if (atomic_load(&noted[i].at))
			continue;
		noted[i].bytes = bytes;
		strcpy(noted[i].path, path + skip);
		atomic_store(&noted[i].at, (uintptr_t)at);
		break;
	}
	pthread_mutex_unlock(&lock);
}

void dt_mapped_drop(void *at, size_t bytes)
{
	if (!at)
		return;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < FILES; i++)
		if (atomic_load(&noted[i].at) == (uintptr_t)at) {
			atomic_store(&noted[i].at, 0);
			break;
		}
	pthread_mutex_unlock(&lock);
	munmap(at, bytes);
}
/* SPDX-License-Identifier: Apache-2.0 */
