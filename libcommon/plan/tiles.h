/*
 * Offloaded optimizer states, masters and weights are stored in tiles. A tile covers a fixed number of a
 * rank's trained elements, in the order of its flat buffers, with one segment for each kind of value. The
 * update works on a tile while the next ones are read and the previous ones written, so that a few are in
 * memory at a time (ZeRO-Infinity, Rajbhandari et al. 2021, and its optimizer's sub-groups).
 *
 * In the file the weights of all tiles lie together behind the other segments, so that those of a unit are
 * one range of it. A part of a segment is what has a checksum of its own.
 */
#ifndef DT_PLAN_TILES_H
#define DT_PLAN_TILES_H

#include "plan/run.h"

enum { DT_TILE_SEGMENTS = 2 + DT_OPTIM_STATES, DT_TILE_RING = 4, DT_TILE_PARTS = 8 };

struct dt_tiles {
	int64_t numel;	 /* elements in tiles on this rank; 0: nothing is offloaded */
	int64_t each;	 /* elements of a tile, a multiple of 4096 */
	int64_t n, kept; /* number of tiles; the first `kept` stay in memory */
	int segments;
	enum dt_dtype dtype[DT_TILE_SEGMENTS];
	uint64_t at[DT_TILE_SEGMENTS + 1]; /* of a segment in its tile; the last: bytes of a tile */
	int master;			   /* segment of the master weights, -1: they are not in tiles */
	int weights;			   /* of those that are computed with; the masters' without masters */
	bool states;			   /* there are segments of the optimizer's states */
	uint64_t piece_bytes;		   /* room that passes between tiles and checkpoints */
};

struct dt_tiles dt_tiles_of(const struct dt_run *r, const struct dt_local *l);

/* The segment of optimizer state i. */
static inline int dt_tiles_state(const struct dt_tiles *t, int i)
{
	return i + (t->master == 0);
}
/* Bytes of a tile's weights. */
static inline uint64_t dt_tiles_weight_bytes(const struct dt_tiles *t)
{
	return t->weights < 0 ? 0 : t->at[t->weights + 1] - t->at[t->weights];
}
static inline uint64_t dt_tiles_bytes(const struct dt_tiles *t)
{
	return t->at[t->segments];
}
/* The whole parts that elements [first, first + n) are in: elements [*from, *to). */
static inline void dt_tiles_parts(const struct dt_tiles *t, int64_t first, int64_t n, int64_t *from,
				  int64_t *to)
{
	int64_t part = t->each / DT_TILE_PARTS;

	*from = first / part * part;
	*to = (first + n + part - 1) / part * part;
}
/* Bytes that have a checksum of their own: of a part of the narrowest values, 16 bits; others have more. */
static inline size_t dt_tiles_grain(const struct dt_tiles *t)
{
	return (size_t)(t->each / DT_TILE_PARTS) * 2;
}
/* Bytes of the largest of them among units in a slot (plan/layout.h), with room to begin at a block. */
uint64_t dt_tiles_slot_bytes(const struct dt_tiles *t, const struct dt_run *r, const struct dt_local *l,
			     int slot);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
