/*
 * Slots of the ring of tiles, shared by the files that offload.h describes. A tile has one place in memory:
 * its own where it is kept, else slot (tile % DT_TILE_RING) of the ring. Functions return -errno of a
 * transfer, or -EBADMSG where a segment is not as it was written.
 */
#ifndef DT_TRAIN_OFFLOAD_TILES_H
#define DT_TRAIN_OFFLOAD_TILES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;

struct offload_slot {
	int64_t tile;  /* -1: none */
	unsigned have; /* its segments that are here, or on their way */
	bool busy;
};

/* What is in the tiles, for people. */
const char *offload_kinds(const struct trainer *t);
/* The address of a tile, once it is in memory. */
char *offload_tile_at(const struct trainer *t, int64_t tile);
/* Starts to read these segments of a tile into its slot, unless they are there. */
int offload_tile_want(struct trainer *t, int64_t tile, unsigned segments, struct dt_err *err);
/* Until the transfer of slot k is done, if it has one. */
int offload_tile_finish(struct trainer *t, int k, struct dt_err *err);
/* No tile is held any more: the transfer of what was changed of it has begun. */
void offload_tile_let_go(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
