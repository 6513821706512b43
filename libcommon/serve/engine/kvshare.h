/*
 * Memory for blocks on their way from one server to another: a head of 4096 bytes, then blocks. It has no
 * name, so nothing is left of it when its processes have ended, however they end. A process of the same user
 * on the same machine joins it by the maker's process and descriptor; a number of 128 bits that only the
 * maker knows says that it is the right one, and a seal that it cannot shrink under the reader.
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
	int fd; /* of the maker; -1 where it was joined */
	uint64_t nonce[2];
};

/* For so many bytes of blocks. -ENOMEM and other errnos. */
int dt_kvshare_make(struct dt_kvshare *s, size_t bytes, struct dt_err *err);
/* That of another process. -ENOENT: it cannot be reached from here; -EPERM: it is another one. */
int dt_kvshare_join(struct dt_kvshare *s, int64_t pid, int64_t fd, const uint64_t nonce[2], size_t bytes);
void dt_kvshare_release(struct dt_kvshare *s);

static inline char *dt_kvshare_data(const struct dt_kvshare *s)
{
	return s->map + DT_KVSHARE_HEAD;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
