/* The size of a folder of cache blocks (serve/engine/kvdisk.h), which several processes write to. */
#ifndef DT_SERVE_KVROOM_H
#define DT_SERVE_KVROOM_H

#include <stdint.h>

struct dt_kvroom {
	const char *dir;
	uint64_t size;	/* at most */
	uint64_t used;	/* as far as this process knows */
	uint64_t since; /* bytes it has added since it last looked */
};

/* Looks what is there; removes what a process that has ended left half written. dir stays the caller's. */
void dt_kvroom_open(struct dt_kvroom *r, const char *dir, uint64_t size);
/* A block was added; the oldest are removed where there is too much. */
void dt_kvroom_add(struct dt_kvroom *r, uint64_t bytes);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
