/*
 * Cache blocks in host memory that were evicted from the pool, found by key. The least recently used block is
 * replaced first. Only one thread may use it.
 */
#ifndef DT_SERVE_KVHOST_H
#define DT_SERVE_KVHOST_H

#include "base/err.h"
#include "serve/sched/kvkey.h"

#include <stddef.h>

struct dt_kvhost;

/*
 * Allocates as many blocks of block_bytes bytes and block_size tokens as fit into `room` bytes. -ENOSPC:
 * fewer than two; -ENOMEM.
 */
int dt_kvhost_open(struct dt_kvhost **ret, uint64_t room, size_t block_bytes, int block_size,
		   struct dt_err *err);
void dt_kvhost_close(struct dt_kvhost *h); /* NULL is allowed */

/* Returns the block of this key and these tokens, or NULL. Valid until the next dt_kvhost_room. */
const void *dt_kvhost_find(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens);
/* Adds a block, which must not be present yet. Returns the memory to which the caller writes its contents. */
void *dt_kvhost_room(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens);
/* Removes the block; nothing happens if it is not present. */
void dt_kvhost_forget(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens);
int dt_kvhost_used(const struct dt_kvhost *h); /* blocks in use */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
