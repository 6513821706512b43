/* Tiles on their way between memory and the file: slots of the ring, checksums, what is read ahead. */
#include "train/offload_tiles.h"

#include "base/crc.h"
#include "train/trainer.h"

#include <errno.h>
#include <string.h>

#define PARTS DT_TILE_PARTS /* checksums are worked out by all threads */

static struct offload_segment *segment_of(const struct trainer *t, int64_t tile, int s)
{
	return &t->offload.segment[tile * t->offload.tiles.segments + s];
}

char *offload_tile_at(const struct trainer *t, int64_t tile)
{
	const struct offload *o = &t->offload;
	size_t each = dt_tiles_bytes(&o->tiles);

	return tile < o->tiles.kept ? o->kept + (size_t)tile * each
				    : o->ring + (size_t)(tile % DT_TILE_RING) * each;
}

const char *offload_kinds(const struct trainer *t)
{
	const struct dt_tiles *g = &t->offload.tiles;

	return !g->states ? "weights" : g->weights >= 0 ? "optimizer states and weights" : "optimizer states";
}

static void checksum(const struct trainer *t, int64_t tile, int s, uint32_t crc[PARTS])
{
	const struct dt_tiles *g = &t->offload.tiles;
	const char *at = offload_tile_at(t, tile) + g->at[s];
	size_t n = (size_t)(g->at[s + 1] - g->at[s]) / PARTS; /* a multiple: tiles are of 4096 elements */

#pragma omp parallel for num_threads(t->dev->nthreads)
	for (int i = 0; i < PARTS; i++)
		crc[i] = dt_crc32(0, at + (size_t)i * n, n);
}

/* What was read is as it was written; what never was is zero. */
static int look(struct trainer *t, const struct offload_slot *slot, struct dt_err *err)
{
	const struct dt_tiles *g = &t->offload.tiles;

	for (int s = 0; s < g->segments; s++) {
		const struct offload_segment *was = segment_of(t, slot->tile, s);
		uint32_t crc[PARTS];

		if (!(slot->have & 1u << s))
			continue;
		if (!was->written) {
			memset(offload_tile_at(t, slot->tile) + g->at[s], 0,
			       (size_t)(g->at[s + 1] - g->at[s]));
			continue;
		}
		checksum(t, slot->tile, s, crc);
		if (memcmp(crc, was->crc, sizeof(crc)))
			return dt_err_set(err, -EBADMSG,
					  "tile %lld of the %s is not as it was written: the file "
					  "in '%s' was changed, or its disk fails",
					  (long long)slot->tile, offload_kinds(t), t->run.offload.dir);
	}
	return 0;
}

int offload_tile_finish(struct trainer *t, int k, struct dt_err *err)
{
	struct offload_slot *slot = &t->offload.slot[k];
	double t0 = dt_now();
	int rc;

	if (!slot->busy)
		return 0;
	rc = dt_scratch_wait(t->offload.file, k, err);
	if (t->offload.tiles.weights >= 0) {
		int weights = dt_scratch_wait(t->offload.file, DT_TILE_RING + k, rc < 0 ? NULL : err);

		rc = rc < 0 ? rc : weights;
	}
	offload_waited(&t->offload, t0, slot->writes);
	slot->busy = false;
	if (rc == 0 && !slot->writes)
		rc = look(t, slot, err);
	if (rc < 0) {
		slot->tile = -1;
		dt_err_hint(err, "states are half updated; --resume auto goes on from the newest checkpoint");
	}
	return rc;
}

/* Bytes [*from, *to) of a tile that hold these segments and those between them. */
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

/* Bytes of a tile in the file but for its weights, which are first or last in memory. */
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
	struct offload *o = &t->offload;

	if (write)
		dt_scratch_write(o->file, slot, at, (size_t)n, offset);
	else
		dt_scratch_read(o->file, slot, at, (size_t)n, offset);
	*(write ? &o->written_bytes : &o->read_bytes) += n;
}

/* Begins to move these segments of a tile, and those between them; its slot is busy then. */
static void move_tile(struct trainer *t, int64_t tile, unsigned segments, bool write)
{
	const struct dt_tiles *g = &t->offload.tiles;
	const unsigned weights = g->weights < 0 ? 0 : 1u << g->weights, rest = segments & ~weights;
	int k = (int)(tile % DT_TILE_RING);
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
	t->offload.slot[k].writes = write;
}

int offload_tile_want(struct trainer *t, int64_t tile, unsigned segments, struct dt_err *err)
{
	struct offload *o = &t->offload;
	int k = (int)(tile % DT_TILE_RING), rc;
	struct offload_slot *slot = &o->slot[k];
	unsigned written = 0;

	if (tile < o->tiles.kept || (slot->tile == tile && !(segments & ~slot->have)))
		return 0;
	rc = offload_tile_finish(t, k, err);
	if (rc < 0)
		return rc;
	*slot = (struct offload_slot){.tile = tile, .have = segments};
	for (int s = 0; s < o->tiles.segments; s++)
		if (segments & 1u << s && segment_of(t, tile, s)->written)
			written |= 1u << s;
	if (!written)
		return look(t, slot, err);
	move_tile(t, tile, written, false);
	return 0;
}

void offload_tile_let_go(struct trainer *t)
{
	struct offload *o = &t->offload;

	if (o->held >= o->tiles.kept && o->held_changed) {
		for (int s = 0; s < o->tiles.segments; s++)
			if (o->held_changed & 1u << s) {
				struct offload_segment *w = segment_of(t, o->held, s);

				checksum(t, o->held, s, w->crc);
				w->written = true;
			}
		move_tile(t, o->held, o->held_changed, true);
	}
	o->held = -1;
	o->held_have = o->held_changed = 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
