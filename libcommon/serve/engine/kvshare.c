#include "serve/engine/kvshare.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int map(struct dt_kvshare *s, int fd, size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return -errno;
	s->map = p;
	s->bytes = bytes;
	return 0;
}

int dt_kvshare_make(struct dt_kvshare *s, size_t bytes, struct dt_err *err)
{
	const size_t all = DT_KVSHARE_HEAD + bytes;
	int rc = 0;

	*s = (struct dt_kvshare){.fd = memfd_create("dt-kv", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
	if (s->fd < 0 || ftruncate(s->fd, (off_t)all) < 0 || fcntl(s->fd, F_ADD_SEALS, SEALS) < 0)
		rc = -errno;
	if (rc == 0)
		rc = map(s, s->fd, all);
	while (rc == 0 && getrandom(s->nonce, sizeof(s->nonce), 0) != sizeof(s->nonce))
		continue;
	if (rc == 0) {
		memcpy(s->map, s->nonce, sizeof(s->nonce));
		return 0;
	}
	dt_kvshare_release(s);
	return dt_err_sys(err, rc, "cannot make shared memory of %zu bytes", all);
}

int dt_kvshare_join(struct dt_kvshare *s, int64_t pid, int64_t fd, const uint64_t nonce[2], size_t bytes)
{
	const size_t all = DT_KVSHARE_HEAD + bytes;
	char path[80];
	struct stat st;
	int at, seals, rc;

	*s = (struct dt_kvshare){.fd = -1};
	snprintf(path, sizeof(path), "/proc/%" PRId64 "/fd/%" PRId64, pid, fd);
	at = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (at < 0)
		return -ENOENT;
	seals = fcntl(at, F_GET_SEALS); /* -1, which has all bits set, if the file cannot have seals */
	rc = fstat(at, &st) == 0 && S_ISREG(st.st_mode) && (size_t)st.st_size == all && seals >= 0 &&
			     (seals & SEALS) == SEALS
		     ? map(s, at, all)
		     : -EPERM;
	close(at);
	if (rc == 0 && memcmp(s->map, nonce, sizeof(s->nonce)) != 0) {
		dt_kvshare_release(s);
		s->fd = -1;
		rc = -EPERM;
	}
	return rc;
}

void dt_kvshare_release(struct dt_kvshare *s)
{
	if (s->map)
		munmap(s->map, s->bytes);
	if (s->fd > 0) /* 0 in a zeroed struct: no descriptor */
		close(s->fd);
	*s = (struct dt_kvshare){.fd = -1};
}
/* SPDX-License-Identifier: Apache-2.0 */
