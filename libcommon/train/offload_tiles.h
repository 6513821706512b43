/*
 * Slots of the ring of tiles, shared by the files that offload.h describes. A tile has one place in memory:
 * its own if it stays in memory, else a slot of the ring. Functions return -errno of a transfer, or -EBADMSG
 * if a segment's checksum is wrong.
 */
#ifndef DT_TRAIN_OFFLOAD_TILES_H
#define DT_TRAIN_OFFLOAD_TILES_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct trainer;

struct offload_slot {
	int64_t tile;  /* -1: none */
	unsigned have; /* its segments (a bit set) that are here or being read */
	bool busy;     /* a transfer is under way */
};

/* The contents of the tiles in words, for messages. */
const char *offload_kinds(const struct trainer *t);
/*
 * The slot of a tile that does not stay in memory. Slots count from the first such tile: if there are fewer
 * than DT_TILE_RING of them, the ring has no more slots than tiles.
 */
int offload_tile_slot(const struct trainer *t, int64_t tile);
/* The address of a tile, once it is in memory. */
char *offload_tile_at(const struct trainer *t, int64_t tile);
/* Starts to read these segments of a tile into its slot, unless they are there. */
int offload_tile_want(struct trainer *t, int64_t tile, unsigned segments, struct dt_err *err);
/* Waits for the transfer of slot k, if there is one. */
int offload_tile_finish(struct trainer *t, int k, struct dt_err *err);
/* Releases the held tile and starts writing back its changed segments. */
void offload_tile_let_go(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
