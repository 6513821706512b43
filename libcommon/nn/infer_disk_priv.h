/* What infer_disk.c and infer_disk_read.c share. */
#ifndef DT_NN_INFER_DISK_PRIV_H
#define DT_NN_INFER_DISK_PRIV_H

#include "nn/backing.h"
#include "nn/infer_disk.h"

enum { DISK_MEMBERS = 12 }; /* packed weights of a layer at most */

struct disk_piece {
	struct dt_packed *w[DISK_MEMBERS]; /* stored one after another */
	int n;
	int slot;   /* the slot that holds it; -1: none */
	bool kept;  /* always in memory of its own */
	int64_t at; /* its place in the file, in units of a slot */
};

struct disk_slot {
	int piece;     /* -1: none */
	int transfer;  /* the transfer under way; -1: none */
	uint64_t when; /* time of its last use */
};

struct dt_infer_disk {
	struct dt_weights_disk plan;
	struct dt_backing *file;	   /* NULL: everything is kept */
	struct dt_backing_use use, before; /* before it served */
	struct dt_arena area;		   /* slots, of the device */
	struct disk_slot *slot;
	struct disk_piece *piece;
	int *first;	 /* [layers + 1] of a layer's pieces */
	int32_t *chosen; /* [experts + 1] of a card's layer under way, pinned */
	uint64_t now;
	unsigned busy; /* transfers */
	struct dt_infer_disk_facts facts;
};

static inline char *slot_at(const struct dt_infer_disk *d, int k)
{
	return d->area.base + (uint64_t)k * d->plan.slot_bytes;
}

/* Starts reading a piece into the least recently used slot, unless a slot already has it. */
int dt_infer_disk_begin(struct dt_infer *m, int piece, struct dt_err *err);
/* Waits until the slot's piece has been read. After an error the slot is empty. */
int dt_infer_disk_finish(struct dt_infer *m, int slot, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
