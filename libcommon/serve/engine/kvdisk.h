/*
 * KV-cache blocks as files in a folder. They survive a restart and are shared with other servers on the
 * machine. The folder has a subfolder for each cache name; caches of equal name have equal blocks. A file is
 * written under a temporary name and then renamed, so that readers see a whole file or none. Only one thread
 * at a time may use a struct dt_kvdisk.
 *
 *   DIR/NAME/about.json               description of the cache name
 *   DIR/NAME/KK/K...K.kv              a block, by its key: header, tokens (i32), keys and values
 *   header: "dt-kv\n1\n", the numbers of the name and the key, bytes of keys and values, tokens, CRC-32 of
 *   the rest (native byte order: the folder belongs to one machine)
 *
 * The folder is kept below its size limit by removing the least recently used blocks, whatever their cache
 * name. Each server sharing it may exceed the limit by an eighth.
 */
#ifndef DT_SERVE_KVDISK_H
#define DT_SERVE_KVDISK_H

#include "base/log.h"
#include "serve/sched/kvkey.h"

#include <stddef.h>

struct dt_kvdisk_params {
	const char *dir;
	uint64_t size;	   /* max bytes of all blocks below dir */
	uint64_t name;	   /* cache name */
	const char *about; /* description of the name, JSON */
	size_t block_bytes;
	int block_size; /* tokens of a block */
	const struct dt_log *log;
};

struct dt_kvdisk;

int dt_kvdisk_open(struct dt_kvdisk **ret, const struct dt_kvdisk_params *p, struct dt_err *err);
void dt_kvdisk_close(struct dt_kvdisk *d); /* NULL is allowed */
const struct dt_kvdisk_params *dt_kvdisk_params(const struct dt_kvdisk *d);
/* Seconds to read a block that is not in the page cache, measured when opening; 0: unknown. */
double dt_kvdisk_read_s(const struct dt_kvdisk *d);

/*
 * Reads a block into `to` [block_bytes]. -ENOENT: there is none; other errors: the file is incomplete or not
 * this block. The first 20 such errors are logged. The file is removed if it was a block file.
 */
int dt_kvdisk_get(struct dt_kvdisk *d, struct dt_kvkey key, const int32_t *tokens, void *to);
/* Writes a block. A failure is logged once, and again only after a later write has succeeded. */
int dt_kvdisk_put(struct dt_kvdisk *d, struct dt_kvkey key, const int32_t *tokens, const void *from);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
