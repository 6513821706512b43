/*
 * Cache blocks as files of a folder, for the time after a restart and for other servers of the machine. Below
 * the folder is one for each name that a model's cache has: equal names have equal blocks. Files are written
 * beside their place and renamed; a reader sees all of one or none. One thread at a time uses it.
 *
 *   DIR/NAME/about.json               what the name stands for
 *   DIR/NAME/KK/K...K.kv              a block, by its key: a head, its tokens (i32), keys and values
 *   head: "dt-kv\n1\n", the name's and the key's numbers, bytes of keys and values, tokens, CRC-32 of the
 *   rest (native order: the folder belongs to one machine)
 *
 * A folder is kept below its size by removing the blocks not used for longest, whatever their name; several
 * servers together may pass it by an eighth each.
 */
#ifndef DT_SERVE_KVDISK_H
#define DT_SERVE_KVDISK_H

#include "base/log.h"
#include "serve/sched/kvkey.h"

#include <stddef.h>

struct dt_kvdisk_params {
	const char *dir;
	uint64_t size;	   /* bytes of all blocks below dir */
	uint64_t name;	   /* of the cache */
	const char *about; /* what it stands for, JSON */
	size_t block_bytes;
	int block_size; /* tokens of a block */
	const struct dt_log *log;
};

struct dt_kvdisk;

int dt_kvdisk_open(struct dt_kvdisk **ret, const struct dt_kvdisk_params *p, struct dt_err *err);
void dt_kvdisk_close(struct dt_kvdisk *d); /* NULL is allowed */
const struct dt_kvdisk_params *dt_kvdisk_params(const struct dt_kvdisk *d);
/* Seconds that reading a block takes which is not in the page cache, measured by opening; 0: unknown. */
double dt_kvdisk_read_s(const struct dt_kvdisk *d);

bool dt_kvdisk_has(struct dt_kvdisk *d, struct dt_kvkey key);
/*
 * A block into `to` [block_bytes]. -ENOENT: there is none; another error: there is a file that is not whole,
 * or not such a block; it has been named on the log, and is gone where it was a block.
 */
int dt_kvdisk_get(struct dt_kvdisk *d, struct dt_kvkey key, const int32_t *tokens, void *to);
/* A failure is named on the log, once until a block can be written again. */
int dt_kvdisk_put(struct dt_kvdisk *d, struct dt_kvkey key, const int32_t *tokens, const void *from);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
