/* Size limit of a folder of cache blocks (serve/engine/kvdisk.h) to which several processes write. */
#ifndef DT_SERVE_KVROOM_H
#define DT_SERVE_KVROOM_H

#include <stdint.h>

struct dt_kvroom {
	const char *dir;
	uint64_t size;	/* max bytes */
	uint64_t used;	/* bytes in use, as far as this process knows */
	uint64_t since; /* bytes added by this process since it last scanned the folder */
};

/* Scans the folder and removes unfinished files of processes that have ended. The caller keeps owning dir. */
void dt_kvroom_open(struct dt_kvroom *r, const char *dir, uint64_t size);
/* Counts a new block; removes the oldest blocks if the folder is too large. */
void dt_kvroom_add(struct dt_kvroom *r, uint64_t bytes);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
