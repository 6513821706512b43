/*
 * Index of which server has seen which prompt prefixes: an approximate radix tree. A text is cut into blocks
 * of DT_PREFIX_BLOCK bytes; the hash of a block covers everything up to its end, so a hash table is the tree.
 * The table has a capacity (the least recently used block is dropped, the end of a text before its beginning)
 * and an age after which an entry no longer counts.
 */
#ifndef DT_ROUTE_PREFIX_H
#define DT_ROUTE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_PREFIX_BLOCK	  256 /* bytes of text, about 64 tokens */
#define DT_PREFIX_SERVERS 256
#define DT_PREFIX_DEEPEST 4096 /* max blocks of one text that are hashed */

struct dt_prefix;

/* cap: max blocks. age: seconds. NULL: out of memory. */
struct dt_prefix *dt_prefix_new(uint32_t cap, double age);
void dt_prefix_free(struct dt_prefix *p);

struct dt_prefix_chain { /* hashes of a text that is passed in parts */
	uint64_t hash[DT_PREFIX_DEEPEST];
	int n;
	uint64_t state;
	unsigned char rest[DT_PREFIX_BLOCK];
	size_t nrest;
};

/* salt: texts with different salts never match. */
void dt_prefix_begin(struct dt_prefix_chain *c, uint64_t salt);
void dt_prefix_add(struct dt_prefix_chain *c, const void *s, size_t n);
uint64_t dt_prefix_hash(uint64_t h, const void *s, size_t n);

/*
 * Sets depth [DT_PREFIX_SERVERS] to the number of leading blocks of hash [n] that each server has seen.
 * Returns the largest.
 */
int dt_prefix_match(struct dt_prefix *p, const uint64_t *hash, int n, double now, int *depth);
/* Records that the server sees this text now. */
void dt_prefix_insert(struct dt_prefix *p, const uint64_t *hash, int n, int server, double now);
/*
 * A server that reports its cache events is exact: blocks sent there count for a minute; blocks that it
 * reports as stored count until it reports their removal, whatever their age.
 */
void dt_prefix_exact(struct dt_prefix *p, int server, bool on);
void dt_prefix_store(struct dt_prefix *p, uint64_t hash, int server, double now);
void dt_prefix_remove(struct dt_prefix *p, uint64_t hash, int server);
/* Removes all entries of the server: it was restarted, or its number is reused. */
void dt_prefix_forget(struct dt_prefix *p, int server);
/* dropped is called for each block that is dropped because the table is full. */
void dt_prefix_watch(struct dt_prefix *p, void (*dropped)(void *arg, uint64_t hash), void *arg);
uint32_t dt_prefix_blocks(const struct dt_prefix *p); /* blocks in the table */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
