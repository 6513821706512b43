/* Transfers of tiles between memory and the file: slots of the ring, read-ahead. */
#include "train/offload_tiles.h"

#include "train/trainer.h"

#include <errno.h>

int offload_tile_slot(const struct trainer *t, int64_t tile)
{
	return (int)((tile - t->offload.tiles.kept) % DT_TILE_RING);
}

char *offload_tile_at(const struct trainer *t, int64_t tile)
{
	const struct offload *o = &t->offload;
	size_t each = dt_tiles_bytes(&o->tiles);

	return tile < o->tiles.kept ? o->kept + (size_t)tile * each
				    : o->ring + (size_t)offload_tile_slot(t, tile) * each;
}

const char *offload_kinds(const struct trainer *t)
{
	const struct dt_tiles *g = &t->offload.tiles;

	return !g->states ? "weights" : g->weights >= 0 ? "optimizer states and weights" : "optimizer states";
}

int offload_tile_finish(struct trainer *t, int k, struct dt_err *err)
{
	struct offload_slot *slot = &t->offload.slot[k];
	int rc;

	if (!slot->busy)
		return 0;
	rc = dt_backing_wait(t->offload.file, k, err);
	if (t->offload.tiles.weights >= 0) {
		int weights = dt_backing_wait(t->offload.file, DT_TILE_RING + k, rc < 0 ? NULL : err);

		rc = rc < 0 ? rc : weights;
	}
	slot->busy = false;
	if (rc < 0) {
		slot->tile = -1;
		dt_err_hint(err,
			    "the update is incomplete; --resume auto continues from the newest checkpoint");
	}
	return rc;
}

/* The bytes [*from, *to) of a tile that contain these segments, and those between them. */
static void range(const struct dt_tiles *g, unsigned segments, uint64_t *from, uint64_t *to)
{
	int low = 0, high = g->segments;

	while (!(segments & 1u << low))
		low++;
	while (!(segments & 1u << (high - 1)))
		high--;
	*from = g->at[low];
	*to = g->at[high];
}

/* Bytes of a tile in the file without its weights, which are first or last in memory. */
static uint64_t rest_bytes(const struct dt_tiles *g)
{
	return dt_tiles_bytes(g) - dt_tiles_weight_bytes(g);
}

uint64_t offload_weights_at(const struct trainer *t, int64_t element)
{
	const struct dt_tiles *g = &t->offload.tiles;

	return (uint64_t)(g->n - g->kept) * rest_bytes(g) +
	       (uint64_t)(element - g->kept * g->each) * (uint64_t)dt_dtype_size(g->dtype[g->weights]);
}

static void transfer(struct trainer *t, int slot, bool write, char *at, uint64_t n, uint64_t offset)
{
	if (write)
		dt_backing_write(t->offload.file, slot, at, (size_t)n, offset);
	else
		dt_backing_read(t->offload.file, slot, at, (size_t)n, offset);
}

/* Starts the transfer of these segments of a tile and those between them; marks the slot as busy. */
static void move_tile(struct trainer *t, int64_t tile, unsigned segments, bool write)
{
	const struct dt_tiles *g = &t->offload.tiles;
	const unsigned weights = g->weights < 0 ? 0 : 1u << g->weights, rest = segments & ~weights;
	int k = offload_tile_slot(t, tile);
	uint64_t from, to;

	if (rest) {
		range(g, rest, &from, &to);
		transfer(t, k, write, offload_tile_at(t, tile) + from, to - from,
			 (uint64_t)(tile - g->kept) * rest_bytes(g) + from -
				 (g->weights == 0 ? dt_tiles_weight_bytes(g) : 0));
	}
	if (segments & weights)
		transfer(t, DT_TILE_RING + k, write, offload_tile_at(t, tile) + g->at[g->weights],
			 dt_tiles_weight_bytes(g), offload_weights_at(t, tile * g->each));
	t->offload.slot[k].busy = true;
}

int offload_tile_want(struct trainer *t, int64_t tile, unsigned segments, struct dt_err *err)
{
	struct offload *o = &t->offload;
	struct offload_slot *slot;
	int k, rc;

	if (tile < o->tiles.kept)
		return 0;
	k = offload_tile_slot(t, tile);
	slot = &o->slot[k];
	if (slot->tile == tile && !(segments & ~slot->have))
		return 0;
	rc = offload_tile_finish(t, k, err);
	if (rc < 0)
		return rc;
	*slot = (struct offload_slot){.tile = tile, .have = segments};
	move_tile(t, tile, segments, false);
	return 0;
}

void offload_tile_let_go(struct trainer *t)
{
	struct offload *o = &t->offload;

	if (o->held >= o->tiles.kept && o->held_changed)
		move_tile(t, o->held, o->held_changed, true);
	o->held = -1;
	o->held_have = o->held_changed = 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
