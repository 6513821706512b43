/*
 * Reads the weights of units from the file of tiles, see offload.h. Each part of a tile has its own checksum,
 * so whole parts are read; elements of other units in them are ignored.
 */
#include "train/trainer.h"

enum { FIRST_TRANSFER = 2 * DT_TILE_RING }; /* the file's first transfer after those of tiles */

static int slot_of(const struct trainer *t, int u)
{
	return dt_unit_slot(&t->local, u, t->config.layers);
}

void stream_bind(struct trainer *t)
{
	const enum dt_buf_id id = t->store.weights.shared ? DT_B_UNIT_SHARE : DT_B_UNIT_W;

	for (int k = 0; k < DT_UNIT_SLOTS; k++) {
		char *p = t->offload.tiles.weights < 0 || k >= DT_UNIT_SLOT_FROZEN
				  ? NULL
				  : dt_plan_address(&t->plan, t->arena.base, id, k);

		t->stream.unit[k] = -1;
		t->stream.slot[k] = p ? (char *)(((uintptr_t)p + DT_SCRATCH_ALIGN - 1) / DT_SCRATCH_ALIGN *
						 DT_SCRATCH_ALIGN)
				      : NULL;
	}
}

/* Returns this rank's first element of a unit, in tile order; [*from, *to): rounded to whole parts. */
static int64_t place(const struct trainer *t, int u, int64_t *from, int64_t *to)
{
	const struct flat *w = &t->store.weights;
	int64_t at = flat_index(t, w, u, share_first(t, u));

	dt_tiles_parts(&t->offload.tiles, at, share_n(t, u), from, to);
	return at;
}

void *stream_at(const struct trainer *t, int u)
{
	int64_t from, to, at = place(t, u, &from, &to);

	return t->stream.slot[slot_of(t, u)] + (at - from) * dt_dtype_size(t->store.weights.dtype);
}

/* Copies elements [from, to), whole parts of tiles that stay in memory, to the start of a slot. */
static int copy_kept(struct trainer *t, char *slot, int64_t from, int64_t to)
{
	const struct dt_tiles *g = &t->offload.tiles;
	const size_t each = dt_dtype_size(t->store.weights.dtype);
	int rc = 0;

	for (int64_t i = from, n; i < to && rc == 0; i += n) {
		const char *tile = t->offload.kept + (size_t)(i / g->each) * dt_tiles_bytes(g);

		n = (i / g->each + 1) * g->each;
		n = (n < to ? n : to) - i;
		rc = dt_dev_copy(t->dev, slot + (size_t)(i - from) * each,
				 tile + g->at[g->weights] + (size_t)(i % g->each) * each, (size_t)n * each);
	}
	return rc;
}

/* Waits for the slot's transfer, if there is one. */
static int finish(struct trainer *t, int k, struct dt_err *err)
{
	struct stream *s = &t->stream;
	int rc;

	if (!s->busy[k])
		return 0;
	s->busy[k] = false;
	rc = dt_backing_wait(t->offload.file, FIRST_TRANSFER + k, err);
	if (rc < 0) {
		s->unit[k] = -1;
		dt_err_hint(err, "--resume auto continues from the newest checkpoint");
	}
	return rc;
}

int stream_want(struct trainer *t, int u, struct dt_err *err)
{
	const struct dt_tiles *g = &t->offload.tiles;
	const size_t each = dt_dtype_size(t->store.weights.dtype);
	int64_t from, to, kept = g->kept * g->each;
	int k = slot_of(t, u), rc;
	struct stream *s = &t->stream;

	if (s->unit[k] == u)
		return 0;
	rc = finish(t, k, err);
	if (rc < 0)
		return rc;
	s->unit[k] = u;
	place(t, u, &from, &to);
	kept = kept < from ? from : kept < to ? kept : to;
	rc = dt_kernel_check(copy_kept(t, s->slot[k], from, kept), "dt_dev_copy(", err);
	if (rc < 0 || kept == to)
		return rc;
	dt_backing_read(t->offload.file, FIRST_TRANSFER + k, s->slot[k] + (size_t)(kept - from) * each,
			(size_t)(to - kept) * each, offload_weights_at(t, kept));
	s->busy[k] = true;
	return 0;
}

int stream_take(struct trainer *t, int u, struct dt_err *err)
{
	int rc = stream_want(t, u, err);

	return rc < 0 ? rc : finish(t, slot_of(t, u), err);
}

void stream_forget(struct trainer *t)
{
	for (int k = 0; k < DT_UNIT_SLOT_FROZEN && t->offload.tiles.weights >= 0; k++) {
		if (t->stream.busy[k])
			dt_backing_wait(t->offload.file, FIRST_TRANSFER + k, NULL);
		t->stream.busy[k] = false;
		t->stream.unit[k] = -1;
		t->store.held[k] = -1;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
