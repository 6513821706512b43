/*
 * Which server has seen which beginning of a prompt: an approximate radix tree. A text is cut into blocks of
 * DT_PREFIX_BLOCK bytes; the hash of a block is over everything up to its end, so a table of hashes is the
 * tree. The table has a cap (the least recently used goes, the end of a text before its beginning) and an
 * age past which an entry no longer counts.
 */
#ifndef DT_ROUTE_PREFIX_H
#define DT_ROUTE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_PREFIX_BLOCK	  256 /* bytes of text, about 64 tokens */
#define DT_PREFIX_SERVERS 256
#define DT_PREFIX_DEEPEST 4096 /* blocks of one text that count */

struct dt_prefix;

/* -ENOMEM: NULL. cap: blocks held. age: seconds. */
struct dt_prefix *dt_prefix_new(uint32_t cap, double age);
void dt_prefix_free(struct dt_prefix *p);

struct dt_prefix_chain { /* hashes of a text given in parts */
	uint64_t hash[DT_PREFIX_DEEPEST];
	int n;
	uint64_t state;
	unsigned char rest[DT_PREFIX_BLOCK];
	size_t nrest;
};

/* salt: texts of different salts have nothing in common. */
void dt_prefix_begin(struct dt_prefix_chain *c, uint64_t salt);
void dt_prefix_add(struct dt_prefix_chain *c, const void *s, size_t n);
uint64_t dt_prefix_hash(uint64_t h, const void *s, size_t n);

/* depth [DT_PREFIX_SERVERS]: leading blocks of hash [n] that each server has seen. Returns the deepest. */
int dt_prefix_match(struct dt_prefix *p, const uint64_t *hash, int n, double now, int *depth);
/* The server sees this text now. */
void dt_prefix_insert(struct dt_prefix *p, const uint64_t *hash, int n, int server, double now);
/*
 * A server that tells what is in its cache is exact: what was sent there counts for a minute, what it says it
 * has stored until it says that it was removed, whatever the age.
 */
void dt_prefix_exact(struct dt_prefix *p, int server, bool on);
void dt_prefix_store(struct dt_prefix *p, uint64_t hash, int server, double now);
void dt_prefix_remove(struct dt_prefix *p, uint64_t hash, int server);
/* It has nothing: it was restarted, or its number is given to another. */
void dt_prefix_forget(struct dt_prefix *p, int server);
/* dropped is called with each block that leaves for want of room. */
void dt_prefix_watch(struct dt_prefix *p, void (*dropped)(void *arg, uint64_t hash), void *arg);
uint32_t dt_prefix_blocks(const struct dt_prefix *p); /* held now */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
