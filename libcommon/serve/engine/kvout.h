/*
 * The cache blocks of a call's single prompt that another server has asked for. The engine's thread copies
 * each block out of the cache between two steps, as soon as it is computed; the sending thread waits on the
 * call. No cache blocks are held for this. The copies are freed with the call.
 */
#ifndef DT_SERVE_KVOUT_H
#define DT_SERVE_KVOUT_H

#include "serve/engine/kvshare.h"

#include <stdbool.h>

struct dt_kvout {
	struct dt_kvshare to;
	size_t block_bytes;
	int from, n; /* the prompt's blocks [from, from + n) */
	int next;    /* next block to copy, relative to from; used by the engine's thread alone */
	/* guarded by the call's lock */
	int ready; /* blocks copied so far */
	bool failed;
};

/* Header of a block on the wire, in native byte order: both sides have the same kind of processor. */
struct dt_kvrecord {
	uint32_t magic;
	int32_t index; /* of the block among those asked for; DT_KVRECORD_END: all were sent */
	uint32_t crc;  /* CRC-32 of the block */
	uint32_t here; /* 1: the bytes follow; 0: they are in shared memory */
};

#define DT_KVRECORD_MAGIC 0x766b7464u
#define DT_KVRECORD_END	  (-1)

static inline char *dt_kvout_block(const struct dt_kvout *o, int i)
{
	return dt_kvshare_data(&o->to) + (size_t)i * o->block_bytes;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
