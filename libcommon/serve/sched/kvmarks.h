/*
 * Marks: names that whoever sent a prompt gave to its beginnings, one every `share` of its length. A mark
 * lies on the cache block that ends its beginning, as long as that block can be found. Several blocks may
 * have it, those of replicas above all: it comes with the first and goes with the last. What comes and goes
 * is logged under sequence numbers, so that a router knows which beginnings are cached here without knowing
 * tokens. (vLLM's events BlockStored and BlockRemoved tell the same of blocks of tokens.)
 *
 * One thread writes, any may read.
 */
#ifndef DT_SERVE_KVMARKS_H
#define DT_SERVE_KVMARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_KVMARKS_MOST 4096 /* of one prompt */

struct dt_kvmarks;

struct dt_kvmark_event {
	uint64_t mark;
	bool stored; /* false: removed */
};

/* nblocks: of all replicas. nlog: events that are kept. NULL: out of memory. */
struct dt_kvmarks *dt_kvmarks_new(size_t nblocks, size_t nlog);
void dt_kvmarks_free(struct dt_kvmarks *m);

void dt_kvmarks_put(struct dt_kvmarks *m, size_t block, uint64_t mark); /* again: nothing happens */
void dt_kvmarks_drop(struct dt_kvmarks *m, size_t block);		/* all that lie on it */

/*
 * What happened since event `after` of this epoch, oldest first: the caller frees it. Of another epoch, or
 * too long ago: *ret_cleared, and all marks that lie on blocks now, each once. -ENOMEM.
 */
int dt_kvmarks_read(struct dt_kvmarks *m, uint64_t epoch, uint64_t after, struct dt_kvmark_event **ret,
		    size_t *ret_n, uint64_t *ret_epoch, uint64_t *ret_seq, bool *ret_cleared);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
