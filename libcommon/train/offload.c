/* Tiles in a file and a few of them in memory, see offload.h. */
#include "train/trainer.h"

#include "base/crc.h"
#include "base/progress.h"
#include "base/units.h"
#include "train/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NOWHERE ((uintptr_t)1 << 60) /* no process has addresses from here on */
#define PARTS	DT_TILE_PARTS	     /* checksums are worked out by all threads */

struct offload_slot {
	int64_t tile;  /* -1: none */
	unsigned have; /* its segments that are here, or on their way */
	bool busy, writes;
};

static struct offload_segment *segment_of(const struct trainer *t, int64_t tile, int s)
{
	return &t->offload.segment[tile * t->offload.tiles.segments + s];
}

/* Where a tile is in memory, once it is there. */
static char *tile_at(const struct trainer *t, int64_t tile)
{
	const struct offload *o = &t->offload;
	size_t each = dt_tiles_bytes(&o->tiles);

	return tile < o->tiles.kept ? o->kept + (size_t)tile * each
				    : o->ring + (size_t)(tile % DT_TILE_RING) * each;
}

static int place_of(const struct trainer *t, enum dt_buf_id id, char **ret)
{
	*ret = dt_plan_address(&t->plan, t->arena.base, id, -1);
	return *ret != NULL;
}

int offload_bind(struct trainer *t, struct dt_err *err)
{
	struct offload *o = &t->offload;
	bool ring;

	o->held = -1;
	o->tiles = dt_tiles_of(&t->run, &t->local);
	if (!o->tiles.n)
		return 0;
	ring = place_of(t, DT_B_TILE_RING, &o->ring);
	if (ring)
		o->ring = (char *)(((uintptr_t)o->ring + DT_SCRATCH_ALIGN - 1) / DT_SCRATCH_ALIGN *
				   DT_SCRATCH_ALIGN);
	place_of(t, DT_B_TILES, &o->kept);
	place_of(t, DT_B_TILE_PIECE, &o->piece);
	o->segment = calloc((size_t)o->tiles.n * (size_t)o->tiles.segments, sizeof(*o->segment));
	o->slot = calloc(DT_TILE_RING, sizeof(*o->slot));
	for (int i = 0; i < o->tiles.segments; i++)
		o->reserved[i] = (char *)(NOWHERE * (uintptr_t)(i + 1));
	for (int i = 0; i < DT_TILE_RING && o->slot; i++)
		o->slot[i].tile = -1;
	if (!o->segment || !o->slot)
		return dt_err_sys(err, -ENOMEM, "cannot set up %lld tiles", (long long)o->tiles.n);
	return 0;
}

/* What is in the tiles, for people. */
static const char *kinds(const struct trainer *t)
{
	const struct dt_tiles *g = &t->offload.tiles;

	return !g->states ? "weights" : g->weights >= 0 ? "optimizer states and weights" : "optimizer states";
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
	rc = trainer_agree(t, bytes ? dt_scratch_open(t->run.offload.dir, bytes, false, &o->file, err) : 0,
			   err);
	if (rc == 0 && o->file)
		dt_log_msg(&t->root_log, "offloaded: %s of %s a rank to a file in '%s' (%s)",
			   dt_format_size(bytes, size, sizeof(size)), kinds(t), t->run.offload.dir,
			   dt_scratch_how(o->file));
	return rc < 0 ? rc : trainer_agree(t, stash_start(t, err), err);
}

void offload_close(struct trainer *t)
{
	struct offload *o = &t->offload;

	dt_scratch_close(o->file);
	free(o->segment);
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

/* ---- tiles to and fro ---- */

static void checksum(const struct trainer *t, int64_t tile, int s, uint32_t crc[PARTS])
{
	const struct dt_tiles *g = &t->offload.tiles;
	const char *at = tile_at(t, tile) + g->at[s];
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
			memset(tile_at(t, slot->tile) + g->at[s], 0, (size_t)(g->at[s + 1] - g->at[s]));
			continue;
		}
		checksum(t, slot->tile, s, crc);
		if (memcmp(crc, was->crc, sizeof(crc)))
			return dt_err_set(err, -EBADMSG,
					  "tile %lld of the %s is not as it was written: the file "
					  "in '%s' was changed, or its disk fails",
					  (long long)slot->tile, kinds(t), t->run.offload.dir);
	}
	return 0;
}

/* Until the slot's transfer is done, if it has one. */
static int finish(struct trainer *t, int k, struct dt_err *err)
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
		transfer(t, k, write, tile_at(t, tile) + from, to - from,
			 (uint64_t)(tile - g->kept) * rest_bytes(g) + from -
				 (g->weights == 0 ? dt_tiles_weight_bytes(g) : 0));
	}
	if (segments & weights)
		transfer(t, DT_TILE_RING + k, write, tile_at(t, tile) + g->at[g->weights],
			 dt_tiles_weight_bytes(g), offload_weights_at(t, tile * g->each));
	t->offload.slot[k].busy = true;
	t->offload.slot[k].writes = write;
}

/* Starts to read a tile into its slot, unless it is there. */
static int want(struct trainer *t, int64_t tile, unsigned segments, struct dt_err *err)
{
	struct offload *o = &t->offload;
	int k = (int)(tile % DT_TILE_RING), rc;
	struct offload_slot *slot = &o->slot[k];
	unsigned written = 0;

	if (tile < o->tiles.kept || (slot->tile == tile && !(segments & ~slot->have)))
		return 0;
	rc = finish(t, k, err);
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

/* The tile that is held is not any more: what of it was changed is on its way to the file. */
static int let_go(struct trainer *t, struct dt_err *err)
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
	return 0;
}

static int64_t hold(struct trainer *t, unsigned segments, int64_t element, int64_t n, enum offload_use use,
		    struct dt_err *err)
{
	struct offload *o = &t->offload;
	int64_t tile = element / o->tiles.each, left = (tile + 1) * o->tiles.each - element;
	int ahead = use == OFFLOAD_FILL ? 0 : DT_TILE_RING - 2, rc = 0;

	stream_forget(t);
	if (o->held != tile || segments & ~o->held_have) {
		rc = let_go(t, err);
		for (int i = 0; i <= ahead && rc == 0 && tile + i < o->tiles.n; i++)
			rc = want(t, tile + i, segments, err);
		if (rc == 0 && tile >= o->tiles.kept)
			rc = finish(t, (int)(tile % DT_TILE_RING), err);
		if (rc < 0)
			return rc;
		o->held = tile;
		o->held_have = segments;
	}
	if (use != OFFLOAD_READ)
		o->held_changed |= segments;
	return n < left ? n : left;
}

/* As many bits as there are segments, or one. */
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

/* Begins to read a tile and the two below it. */
static int want_down(struct trainer *t, int64_t tile, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < DT_TILE_RING - 1 && rc == 0 && tile - i >= 0; i++)
		rc = want(t, tile - i, bits(t, OFFLOAD_EVERY), err);
	return rc;
}

int offload_begin(struct trainer *t, struct dt_err *err)
{
	return want_down(t, t->offload.tiles.n - 1, err);
}

bool offload_ready(struct trainer *t, int64_t tile)
{
	const struct offload *o = &t->offload;
	const int64_t next = tile - (DT_TILE_RING - 2); /* whose slot's write must be over */

	for (int64_t i = tile; i >= next && i >= o->tiles.kept; i -= tile - next)
		if (o->slot[i % DT_TILE_RING].busy && !dt_scratch_done(o->file, (int)(i % DT_TILE_RING)))
			return false;
	return true;
}

int offload_take(struct trainer *t, int64_t tile, struct dt_err *err)
{
	struct offload *o = &t->offload;
	int rc = want_down(t, tile, err);

	if (rc == 0 && tile >= o->tiles.kept)
		rc = finish(t, (int)(tile % DT_TILE_RING), err);
	if (rc < 0)
		return rc;
	o->held = tile;
	o->held_have = o->held_changed = bits(t, OFFLOAD_EVERY);
	return 0;
}

int offload_give(struct trainer *t, struct dt_err *err)
{
	return let_go(t, err);
}

void *offload_at(const struct trainer *t, const struct flat *f, int64_t element)
{
	const struct dt_tiles *g = &t->offload.tiles;

	if (t->offload.held != element / g->each || !(t->offload.held_have & 1u << (f->away - 1)))
		abort(); /* a mistake in the program: see offload_hold */
	return tile_at(t, t->offload.held) + g->at[f->away - 1] +
	       (size_t)(element % g->each) * dt_dtype_size(f->dtype);
}

int offload_settle(struct trainer *t, struct dt_err *err)
{
	struct offload *o = &t->offload;
	int rc = o->tiles.n ? let_go(t, err) : 0;

	for (int k = 0; o->tiles.n && k < DT_TILE_RING; k++) {
		int one = finish(t, k, rc < 0 ? NULL : err);

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
	json_object_set_new(line, "offload_wait_s", json_real(o->wait_s - o->said_s));
	json_object_set_new(line, "offload_wait_write_s", json_real(o->wait_write_s - o->said_write_s));
	json_object_set_new(line, "offload_read_bytes",
			    json_integer((json_int_t)(o->read_bytes - o->said_read)));
	json_object_set_new(line, "offload_written_bytes",
			    json_integer((json_int_t)(o->written_bytes - o->said_written)));
	o->said_s = o->wait_s;
	o->said_write_s = o->wait_write_s;
	o->said_read = o->read_bytes;
	o->said_written = o->written_bytes;
}

void offload_sum_up(const struct trainer *t)
{
	const struct offload *o = &t->offload;
	double wait = o->update_wait_s, rest = o->steps_s - wait, tokens;

	if (!t->run.offload.what || wait < 0.1 * o->steps_s || rest <= 0)
		return;
	tokens = (double)(t->run.global_batch * t->run.seq) * 9 * wait / rest;
	dt_log_msg(&t->root_log, "%.0f%% of the steps was spent waiting for what is offloaded",
		   100 * wait / o->steps_s);
	if (!(t->run.offload.what & (DT_OFFLOAD_ACTIVATIONS | DT_OFFLOAD_WEIGHTS))) /* tokens have more */
		dt_log_msg(&t->root_log, "%.3g tokens a step (--global-batch) would make it 10%%", tokens);
}

/* ---- by address ---- */

/* The segment an address is in, -1: none. */
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

/* n bytes between memory and the elements at an address. */
static int move(struct trainer *t, const void *address, char *memory, size_t n, enum offload_use use,
		struct dt_err *err)
{
	int64_t element = 0;
	int s = find(t, address, &element);
	struct flat f = offload_flat(t, s);
	size_t each = dt_dtype_size(f.dtype);

	for (size_t done = 0; done < n;) {
		int64_t m = hold(t, 1u << s, element, (int64_t)((n - done) / each), use, err);
		void *here;

		if (m < 0)
			return (int)m;
		here = offload_at(t, &f, element);
		if (use == OFFLOAD_READ)
			memcpy(memory + done, here, (size_t)m * each);
		else
			memcpy(here, memory + done, (size_t)m * each);
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
