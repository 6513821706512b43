/*
 * Optimizer states, master weights and weights in a file, or in the memory of a card's host (plan/tiles.h).
 * A flat buffer whose values are there has addresses that can be reckoned with but not read; what is to be
 * read or changed is held first, for as much as one tile has of it. A tile that was changed is written when
 * another one is held.
 *
 * Units compute with weights that stream.c reads into slots of the plan, which share addresses with tiles
 * under way: who holds a tile makes it forget them.
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
	OFFLOAD_FILL, /* changed, and the next one is not wanted soon: nothing is read ahead */
};

enum { OFFLOAD_EVERY = -1 }; /* every segment, in place of one */

struct offload {
	struct dt_tiles tiles;		  /* n 0: everything is in memory */
	struct dt_backing *file;	  /* of those that do not stay in memory */
	char *kept, *ring;		  /* of the plan */
	char *piece;			  /* likewise; beside a card malloc'd */
	char *reserved[DT_TILE_SEGMENTS]; /* addresses of elements */
	struct offload_slot *slot;	  /* [DT_TILE_RING] */
	int64_t held;			  /* tile, -1: none */
	unsigned held_have, held_changed; /* segments */
	struct dt_backing_use use, said;  /* of this process; of that, what lines of metrics have had */
	double update_wait_s, steps_s;	  /* of updates; all steps took so long */
};

/* Binds what the plan has for it; the file is made by offload_start, which every rank calls. */
int offload_bind(struct trainer *t, struct dt_err *err);
int offload_start(struct trainer *t, struct dt_err *err);
void offload_close(struct trainer *t);

/* The flat buffer whose values are in this segment. */
struct flat offload_flat(const struct trainer *t, int segment);

/*
 * Of elements [first, first + n) of unit u those at the front that are in one tile: flat_at finds them from
 * now until the next call. Their number, all n where nothing is offloaded; -errno of a transfer, -EBADMSG.
 */
int64_t offload_hold(struct trainer *t, int segment, int u, int64_t first, int64_t n, enum offload_use use,
		     struct dt_err *err);
/* The address of an element that is held. It ends the program where it is not. */
void *offload_at(const struct trainer *t, const struct flat *f, int64_t element);
/*
 * The same for a segment that is read and another one that is changed, -1: none of them.
 */
int64_t offload_hold_two(struct trainer *t, int read, int change, int u, int64_t first, int64_t n,
			 struct dt_err *err);
/*
 * The same for all of a tile, downward: those below it are read ahead. offload_ready: whether that would not
 * wait for transfers. offload_give: it is changed, and on its way to the file. offload_begin reads the first.
 */
int offload_begin(struct trainer *t, struct dt_err *err);
bool offload_ready(struct trainer *t, int64_t tile);
int offload_take(struct trainer *t, int64_t tile, struct dt_err *err);
void offload_give(struct trainer *t);
/* Nothing is held any more and no transfer is under way: what computes takes the memory. */
int offload_settle(struct trainer *t, struct dt_err *err);

/* Into a line of metrics: what there was since the last one. At the end, to people: whether it took long. */
void offload_metrics(struct trainer *t, json_t *line);
void offload_sum_up(const struct trainer *t);

/* Whether an address is one of an offloaded buffer; bytes from there on, and to there. */
bool offload_has(const struct trainer *t, const void *p);
int offload_get(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
int offload_put(struct trainer *t, void *to, const void *from, size_t n, struct dt_err *err);
/* Where in the file elements of a tile's weights begin, of a tile that does not stay in memory. */
uint64_t offload_weights_at(const struct trainer *t, int64_t element);
/* A dt_ckpt_fill; arg is the trainer. */
int offload_fill(void *arg, const struct dt_piece *p, const void **ret_data, struct dt_err *err);

/*
 * stream.c: weights of units from the file. A slot of those in plan/layout.h has one unit's: all of it, or
 * this rank's share.
 */
struct stream {
	char *slot[DT_UNIT_SLOTS]; /* at a block; NULL: there is none */
	int unit[DT_UNIT_SLOTS];   /* -1: none */
	bool busy[DT_UNIT_SLOTS];  /* its weights are on their way */
};

void stream_bind(struct trainer *t);
/* Where a unit's first element is, once it is in its slot. */
void *stream_at(const struct trainer *t, int u);
/* Begins to read a unit, unless it is there; ends it. -EBADMSG where it is not as it was written. */
int stream_want(struct trainer *t, int u, struct dt_err *err);
int stream_take(struct trainer *t, int u, struct dt_err *err);
/* Slots have nothing any more. What is on its way is waited for. */
void stream_forget(struct trainer *t);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
