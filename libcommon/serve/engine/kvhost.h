/*
 * Cache blocks that the pool had no place for any more, in the host's memory: found by key, the one not used
 * for longest goes first. One thread uses it.
 */
#ifndef DT_SERVE_KVHOST_H
#define DT_SERVE_KVHOST_H

#include "base/err.h"
#include "serve/sched/kvkey.h"

#include <stddef.h>

struct dt_kvhost;

/* As many blocks of block_bytes, each of block_size tokens, as room bytes hold: -ENOSPC not two; -ENOMEM. */
int dt_kvhost_open(struct dt_kvhost **ret, uint64_t room, size_t block_bytes, int block_size,
		   struct dt_err *err);
void dt_kvhost_close(struct dt_kvhost *h); /* NULL is allowed */

/* The block of that key and those tokens, NULL: it is not here. Valid until the next dt_kvhost_room. */
const void *dt_kvhost_find(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens);
/* Where the caller writes the block, which is found from now on; it is not here yet. */
void *dt_kvhost_room(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens);
/* It is not found any more. */
void dt_kvhost_forget(struct dt_kvhost *h, struct dt_kvkey key, const int32_t *tokens);
int dt_kvhost_used(const struct dt_kvhost *h); /* blocks */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
