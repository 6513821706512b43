/*
 * The blocks of a call's one prompt that another server has asked for. The engine's thread copies each out of
 * the cache as soon as it is computed, between two steps; whoever sends them waits on the call. Nothing of
 * the cache is held for them, and they go with the call.
 */
#ifndef DT_SERVE_KVOUT_H
#define DT_SERVE_KVOUT_H

#include "serve/engine/kvshare.h"

#include <stdbool.h>

struct dt_kvout {
	struct dt_kvshare to;
	size_t block_bytes;
	int from, n; /* of the prompt's blocks those from `from` on, n of them */
	int next;    /* of these the one to be copied next; the engine's thread alone */
	/* guarded by the call's lock */
	int ready; /* that are there */
	bool failed;
};

/* What goes over the wire in front of a block; native order: both sides have the same kind of processor. */
struct dt_kvrecord {
	uint32_t magic;
	int32_t index; /* among those asked for; DT_KVRECORD_END: all have come */
	uint32_t crc;  /* CRC-32 of the block */
	uint32_t here; /* 1: its bytes follow; 0: they are in shared memory */
};

#define DT_KVRECORD_MAGIC 0x766b7464u
#define DT_KVRECORD_END	  (-1)

static inline char *dt_kvout_block(const struct dt_kvout *o, int i)
{
	return dt_kvshare_data(&o->to) + (size_t)i * o->block_bytes;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
