/*
 * Optimizer states, master weights and weights offloaded to a file, or to host memory (plan/tiles.h). An
 * offloaded flat buffer has addresses for address arithmetic that must not be dereferenced. To read or change
 * elements, hold them first: this brings one tile into memory. A tile that was changed is written back when
 * another one is held.
 *
 * Units compute with weights that stream.c reads into slots of the memory plan. The slots share memory with
 * the tiles in transfer, so holding a tile invalidates them.
 */
#ifndef DT_TRAIN_OFFLOAD_H
#define DT_TRAIN_OFFLOAD_H

#include "base/json.h"
#include "nn/backing.h"
#include "plan/tiles.h"

struct trainer;
struct flat;
struct dt_piece;

enum offload_use {
	OFFLOAD_READ,
	OFFLOAD_CHANGE,
	OFFLOAD_FILL, /* change, without reading following tiles ahead */
};

enum { OFFLOAD_EVERY = -1 }; /* as a segment: all segments */

struct offload {
	struct dt_tiles tiles;	 /* n 0: everything is in memory */
	struct dt_backing *file; /* holds the tiles that do not stay in memory */
	char *kept, *ring;	 /* buffers of the plan: tiles that stay; the ring of those that do not */
	char *piece;		 /* buffer of a checkpoint's piece; with a CUDA device in host memory */
	char *reserved[DT_TILE_SEGMENTS]; /* base addresses of the segments, not to be dereferenced */
	struct offload_slot *slot;	  /* [DT_TILE_RING] */
	int64_t held;			  /* the tile that is held, -1: none */
	unsigned held_have, held_changed; /* its segments in memory; those changed (bit sets) */
	struct dt_backing_use use, said;  /* totals of this process; totals at the last line of metrics */
	double update_wait_s, steps_s;	  /* seconds: waits for transfers in updates; all steps */
};

/* Binds the buffers of the plan. offload_start, which every rank calls, creates the file. */
int offload_bind(struct trainer *t, struct dt_err *err);
int offload_start(struct trainer *t, struct dt_err *err);
void offload_close(struct trainer *t);

/* A segment as a flat buffer. */
struct flat offload_flat(const struct trainer *t, int segment);

/*
 * Brings into memory the leading part of elements [first, first + n) of unit u that lies in one tile. flat_at
 * works on it until the next call. Returns its length, which is n if nothing is offloaded; or -errno of a
 * transfer, -EBADMSG for a wrong checksum.
 */
int64_t offload_hold(struct trainer *t, int segment, int u, int64_t first, int64_t n, enum offload_use use,
		     struct dt_err *err);
/* The address of an element, which must be held: aborts otherwise. */
void *offload_at(const struct trainer *t, const struct flat *f, int64_t element);
/* Like offload_hold, for one segment to read and one to change; -1: none. */
int64_t offload_hold_two(struct trainer *t, int read, int change, int u, int64_t first, int64_t n,
			 struct dt_err *err);
/*
 * Access to whole tiles, from the last one down. offload_begin starts reading the last tiles. offload_take
 * holds a tile to be changed, and starts reading those below it; offload_ready tells whether it would return
 * without waiting for transfers. offload_give starts writing the tile back.
 */
int offload_begin(struct trainer *t, struct dt_err *err);
bool offload_ready(struct trainer *t, int64_t tile);
int offload_take(struct trainer *t, int64_t tile, struct dt_err *err);
void offload_give(struct trainer *t);
/* Releases the tile that is held and waits for all transfers, so that computation can use the memory. */
int offload_settle(struct trainer *t, struct dt_err *err);

/*
 * Adds the transfers since the last line to a line of metrics. At the end: logs if waits took a large share.
 */
void offload_metrics(struct trainer *t, json_t *line);
void offload_sum_up(const struct trainer *t);

/* Whether an address lies in an offloaded buffer; copies n bytes from such an address, and to it. */
bool offload_has(const struct trainer *t, const void *p);
int offload_get(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
int offload_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
/* The offset in the file of a weight element, which must be in a tile that does not stay in memory. */
uint64_t offload_weights_at(const struct trainer *t, int64_t element);
/* A dt_ckpt_fill; arg is the trainer. */
int offload_fill(void *arg, const struct dt_piece *p, const void **ret_data, struct dt_err *err);

/*
 * stream.c: reads the weights of units from the file. A slot (plan/layout.h) holds one unit: all of it, or
 * this rank's share.
 */
struct stream {
	char *slot[DT_UNIT_SLOTS]; /* aligned to a block of the file; NULL: no such slot */
	int unit[DT_UNIT_SLOTS];   /* the unit in the slot; -1: none */
	bool busy[DT_UNIT_SLOTS];  /* its weights are being read */
};

void stream_bind(struct trainer *t);
/* Where a unit's first element is, once it is in its slot. */
void *stream_at(const struct trainer *t, int u);
/* Starts reading a unit, unless it is there; completes the read. -EBADMSG: its checksum is wrong. */
int stream_want(struct trainer *t, int u, struct dt_err *err);
int stream_take(struct trainer *t, int u, struct dt_err *err);
/* Waits for reads under way, and marks all slots as empty. */
void stream_forget(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
