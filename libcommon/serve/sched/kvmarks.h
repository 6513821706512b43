/*
 * Marks: names that the sender of a prompt gave to prefixes of it, one for every `share` of its length. A
 * mark is put on the cache block in which its prefix ends, for as long as that block can be found. Several
 * blocks may have the same mark, above all on different replicas: it counts as stored with the first and as
 * removed with the last. These events are logged under sequence numbers, so that a router knows which
 * prefixes are cached here without knowing tokens. (vLLM's events BlockStored and BlockRemoved say the same
 * of blocks of tokens.)
 *
 * One thread writes, any thread may read.
 */
#ifndef DT_SERVE_KVMARKS_H
#define DT_SERVE_KVMARKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_KVMARKS_MOST 4096 /* max marks of one prompt */

struct dt_kvmarks;

struct dt_kvmark_event {
	uint64_t mark;
	bool stored; /* false: removed */
};

/* nblocks: of all replicas together. nlog: events that are kept. NULL: out of memory. */
struct dt_kvmarks *dt_kvmarks_new(size_t nblocks, size_t nlog);
void dt_kvmarks_free(struct dt_kvmarks *m);

void dt_kvmarks_put(struct dt_kvmarks *m, size_t block, uint64_t mark); /* no effect if already there */
void dt_kvmarks_drop(struct dt_kvmarks *m, size_t block);		/* removes all marks from the block */

/*
 * Returns the events after event `after` of this epoch, oldest first; the caller frees *ret. If the epoch is
 * another one or the events are no longer kept, *ret_cleared is set and *ret has all marks that are on blocks
 * now, each once. -ENOMEM.
 */
int dt_kvmarks_read(struct dt_kvmarks *m, uint64_t epoch, uint64_t after, struct dt_kvmark_event **ret,
		    size_t *ret_n, uint64_t *ret_epoch, uint64_t *ret_seq, bool *ret_cleared);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
