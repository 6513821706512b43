/*
 * Shared memory for cache blocks in transit between two servers: a header of 4096 bytes, then blocks. It has
 * no name (memfd), so nothing is left of it when its processes have ended, however they end. Another process
 * of the same user on the same machine opens it by the creator's process id and file descriptor. A 128-bit
 * nonce known only to the creator proves that it is the right memory; a seal proves that it cannot shrink
 * while it is mapped.
 */
#ifndef DT_SERVE_KVSHARE_H
#define DT_SERVE_KVSHARE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

#define DT_KVSHARE_HEAD 4096

struct dt_kvshare {
	char *map; /* NULL: none */
	size_t bytes;
	int fd; /* of the creator; -1: mapped from another process */
	uint64_t nonce[2];
};

/* Creates shared memory for `bytes` bytes of blocks. -ENOMEM and other errnos. */
int dt_kvshare_make(struct dt_kvshare *s, size_t bytes, struct dt_err *err);
/*
 * Maps the shared memory of another process. -ENOENT: it cannot be opened from here; -EPERM: it is not the
 * right memory.
 */
int dt_kvshare_join(struct dt_kvshare *s, int64_t pid, int64_t fd, const uint64_t nonce[2], size_t bytes);
void dt_kvshare_release(struct dt_kvshare *s);

static inline char *dt_kvshare_data(const struct dt_kvshare *s)
{
	return s->map + DT_KVSHARE_HEAD;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
