/* Tiles of offloaded state: all in a file, a few of them in memory; see offload.h. */
#include "train/trainer.h"

#include "base/units.h"
#include "train/offload_tiles.h"
#include "train/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE ((uintptr_t)1 << 60) /* no process has addresses from here on */

static int place_of(const struct trainer *t, enum dt_buf_id id, char **ret)
{
	*ret = dt_plan_address(&t->plan, t->arena.base, id, -1);
	return *ret != NULL;
}

int offload_bind(struct trainer *t, struct dt_err *err)
{
	struct offload *o = &t->offload;
	bool ring;
	int rc;

	o->held = -1;
	o->tiles = dt_tiles_of(&t->run, &t->local);
	if (!o->tiles.n)
		return 0;
	ring = place_of(t, DT_B_TILE_RING, &o->ring);
	if (ring)
		o->ring = (char *)(((uintptr_t)o->ring + DT_SCRATCH_ALIGN - 1) / DT_SCRATCH_ALIGN *
				   DT_SCRATCH_ALIGN);
	place_of(t, DT_B_TILES, &o->kept);
	rc = host_buffer(t, DT_B_TILE_PIECE, &o->piece, err);
	o->slot = calloc(DT_TILE_RING, sizeof(*o->slot));
	for (int i = 0; i < o->tiles.segments; i++)
		o->reserved[i] = (char *)(NOWHERE * (uintptr_t)(i + 1));
	for (int i = 0; i < DT_TILE_RING && o->slot; i++)
		o->slot[i].tile = -1;
	if (rc == 0 && !o->slot)
		rc = dt_err_sys(err, -ENOMEM, "cannot set up %lld tiles", (long long)o->tiles.n);
	return rc;
}

int offload_start(struct trainer *t, struct dt_err *err)
{
	struct offload *o = &t->offload;
	uint64_t bytes =
		(uint64_t)(o->tiles.n - o->tiles.kept) * (o->tiles.n ? dt_tiles_bytes(&o->tiles) : 0);
	char size[32];
	int rc;

	if (!t->run.offload.what)
		return 0;
	rc = bytes ? dt_backing_open(t->dev, t->run.offload.dir, bytes, dt_tiles_grain(&o->tiles),
				     offload_kinds(t), &o->use, &o->file, err)
		   : 0;
	rc = trainer_agree(t, rc, err);
	if (rc == 0 && o->file)
		dt_log_msg(&t->root_log, "offloaded: %s of %s per rank to %s",
			   dt_format_size(bytes, size, sizeof(size)), offload_kinds(t),
			   dt_backing_where(o->file));
	return rc < 0 ? rc : trainer_agree(t, stash_start(t, err), err);
}

void offload_close(struct trainer *t)
{
	struct offload *o = &t->offload;

	dt_backing_close(o->file);
	free(o->slot);
	memset(o, 0, sizeof(*o));
}

struct flat offload_flat(const struct trainer *t, int segment)
{
	return (struct flat){.p = t->offload.reserved[segment],
			     .dtype = t->offload.tiles.dtype[segment],
			     .shared = t->run.layout.zero >= 1,
			     .trained = true,
			     .away = segment + 1};
}

/* ---- tiles held in memory ---- */

static int64_t hold(struct trainer *t, unsigned segments, int64_t element, int64_t n, enum offload_use use,
		    struct dt_err *err)
{
	struct offload *o = &t->offload;
	int64_t tile = element / o->tiles.each, left = (tile + 1) * o->tiles.each - element;
	int ahead = use == OFFLOAD_FILL ? 0 : DT_TILE_RING - 2, rc = 0;

	stream_forget(t);
	if (o->held != tile || segments & ~o->held_have) {
		offload_tile_let_go(t);
		for (int i = 0; i <= ahead && rc == 0 && tile + i < o->tiles.n; i++)
			rc = offload_tile_want(t, tile + i, segments, err);
		if (rc == 0 && tile >= o->tiles.kept)
			rc = offload_tile_finish(t, offload_tile_slot(t, tile), err);
		if (rc < 0)
			return rc;
		o->held = tile;
		o->held_have = segments;
	}
	if (use != OFFLOAD_READ)
		o->held_changed |= segments;
	return n < left ? n : left;
}

/* A bit mask: all segments, or one. */
static unsigned bits(const struct trainer *t, int segment)
{
	return segment == OFFLOAD_EVERY ? (1u << t->offload.tiles.segments) - 1 : 1u << segment;
}

int64_t offload_hold(struct trainer *t, int segment, int u, int64_t first, int64_t n, enum offload_use use,
		     struct dt_err *err)
{
	const struct flat f = {.shared = t->run.layout.zero >= 1, .trained = true};

	return t->offload.tiles.n && n > 0
		       ? hold(t, bits(t, segment), flat_index(t, &f, u, first), n, use, err)
		       : n;
}

int64_t offload_hold_two(struct trainer *t, int read, int change, int u, int64_t first, int64_t n,
			 struct dt_err *err)
{
	const struct flat f = {.shared = t->run.layout.zero >= 1, .trained = true};
	const unsigned changes = change < 0 ? 0 : bits(t, change),
		       all = changes | (read < 0 ? 0 : bits(t, read));
	int64_t m = all && n > 0 ? hold(t, all, flat_index(t, &f, u, first), n, OFFLOAD_READ, err) : n;

	if (m > 0)
		t->offload.held_changed |= changes;
	return m;
}

/* Starts reading a tile and the two below it. */
static int want_down(struct trainer *t, int64_t tile, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < DT_TILE_RING - 1 && rc == 0 && tile - i >= 0; i++)
		rc = offload_tile_want(t, tile - i, bits(t, OFFLOAD_EVERY), err);
	return rc;
}

int offload_begin(struct trainer *t, struct dt_err *err)
{
	return want_down(t, t->offload.tiles.n - 1, err);
}

bool offload_ready(struct trainer *t, int64_t tile)
{
	const struct offload *o = &t->offload;
	const int64_t next = tile - (DT_TILE_RING - 2); /* a write in its slot must have ended */

	for (int64_t i = tile; i >= next && i >= o->tiles.kept; i -= tile - next) {
		const int k = offload_tile_slot(t, i);

		if (o->slot[k].busy && !dt_backing_done(o->file, k))
			return false;
	}
	return true;
}

int offload_take(struct trainer *t, int64_t tile, struct dt_err *err)
{
	struct offload *o = &t->offload;
	int rc = want_down(t, tile, err);

	if (rc == 0 && tile >= o->tiles.kept)
		rc = offload_tile_finish(t, offload_tile_slot(t, tile), err);
	if (rc < 0)
		return rc;
	o->held = tile;
	o->held_have = o->held_changed = bits(t, OFFLOAD_EVERY);
	return 0;
}

void offload_give(struct trainer *t)
{
	offload_tile_let_go(t);
}

void *offload_at(const struct trainer *t, const struct flat *f, int64_t element)
{
	const struct dt_tiles *g = &t->offload.tiles;

	if (t->offload.held != element / g->each || !(t->offload.held_have & 1u << (f->away - 1)))
		abort(); /* a programming error: see offload_hold */
	return offload_tile_at(t, t->offload.held) + g->at[f->away - 1] +
	       (size_t)(element % g->each) * dt_dtype_size(f->dtype);
}

int offload_settle(struct trainer *t, struct dt_err *err)
{
	struct offload *o = &t->offload;
	int rc = 0;

	if (o->tiles.n)
		offload_tile_let_go(t);
	for (int k = 0; o->tiles.n && k < DT_TILE_RING; k++) {
		int one = offload_tile_finish(t, k, rc < 0 ? NULL : err);

		rc = rc < 0 ? rc : one;
		o->slot[k].tile = -1;
	}
	return rc;
}

void offload_metrics(struct trainer *t, json_t *line)
{
	struct offload *o = &t->offload;

	if (!t->run.offload.what)
		return;
	json_object_set_new(line, "offload_wait_s", json_real(o->use.wait_s - o->said.wait_s));
	json_object_set_new(line, "offload_wait_write_s",
			    json_real(o->use.wait_write_s - o->said.wait_write_s));
	json_object_set_new(line, "offload_read_bytes",
			    json_integer((json_int_t)(o->use.read_bytes - o->said.read_bytes)));
	json_object_set_new(line, "offload_written_bytes",
			    json_integer((json_int_t)(o->use.written_bytes - o->said.written_bytes)));
	o->said = o->use;
}

void offload_sum_up(const struct trainer *t)
{
	const struct offload *o = &t->offload;
	double wait = o->update_wait_s, rest = o->steps_s - wait, tokens;

	if (!t->run.offload.what || wait < 0.1 * o->steps_s || rest <= 0)
		return;
	tokens = (double)(t->run.global_batch * t->run.seq) * 9 * wait / rest;
	dt_log_msg(&t->root_log, "%.0f%% of the step time was spent waiting for offloaded data",
		   100 * wait / o->steps_s);
	if (!(t->run.offload.what & (DT_OFFLOAD_ACTIVATIONS | DT_OFFLOAD_WEIGHTS))) /* else traffic grows */
		dt_log_msg(&t->root_log, "with %.3g tokens per step (--global-batch) it would be 10%%",
			   tokens);
}

/* ---- by address ---- */

/* The segment that contains an address; -1: none. */
static int find(const struct trainer *t, const void *p, int64_t *ret_element)
{
	const struct dt_tiles *g = &t->offload.tiles;

	for (int s = 0; s < g->segments; s++) {
		size_t each = dt_dtype_size(g->dtype[s]);
		const char *base = t->offload.reserved[s], *at = p;

		if (base && at >= base && at < base + (size_t)g->numel * each) {
			*ret_element = (int64_t)((size_t)(at - base) / each);
			return s;
		}
	}
	return -1;
}

bool offload_has(const struct trainer *t, const void *p)
{
	int64_t element;

	return find(t, p, &element) >= 0;
}

/* Copies n bytes between memory and the offloaded elements at an address, in the direction of `use`. */
static int move(struct trainer *t, const void *address, char *memory, size_t n, enum offload_use use,
		struct dt_err *err)
{
	int64_t element = 0;
	int s = find(t, address, &element);
	struct flat f = offload_flat(t, s);
	size_t each = dt_dtype_size(f.dtype);
	const bool host = dt_dev_is_host(t->dev);

	for (size_t done = 0; done < n;) {
		int64_t m = hold(t, 1u << s, element, (int64_t)((n - done) / each), use, err);
		void *here, *to;
		const void *from;
		int rc = 0;

		if (m < 0)
			return (int)m;
		here = offload_at(t, &f, element);
		to = use == OFFLOAD_READ ? memory + done : here;
		from = use == OFFLOAD_READ ? here : memory + done;
		if (host)
			memcpy(to, from, (size_t)m * each);
		else if (use == OFFLOAD_READ)
			rc = device_get(t, to, from, (size_t)m * each, err);
		else
			rc = device_put(t, to, from, (size_t)m * each, err);
		if (rc < 0)
			return rc;
		done += (size_t)m * each;
		element += m;
	}
	return 0;
}

int offload_get(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err)
{
	return move(t, from, to, n, OFFLOAD_READ, err);
}

int offload_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err)
{
	return move(t, to, (char *)from, n, OFFLOAD_FILL, err);
}

int offload_fill(void *arg, const struct dt_piece *p, const void **ret_data, struct dt_err *err)
{
	struct trainer *t = arg;

	*ret_data = offload_has(t, p->data) ? t->offload.piece : p->data;
	return *ret_data == p->data ? 0 : offload_get(t, t->offload.piece, p->data, piece_bytes(p), err);
}
/* SPDX-License-Identifier: Apache-2.0 */
