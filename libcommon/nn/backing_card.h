/*
 * Private to backing.c and backing_card.c: transfers of a CUDA device. Data leaves the device and reaches it
 * on two streams, which events order with the device's ops. The host waits for them only if there is nothing
 * left to compute, or if the data goes to a file.
 */
#ifndef DT_NN_BACKING_CARD_H
#define DT_NN_BACKING_CARD_H

#include "nn/backing.h"

#include <limits.h>

enum backing_does { NOTHING, READS, WRITES };

struct backing_slot {
	enum backing_does does;
	char *memory; /* of the device */
	size_t n;
	uint64_t at;
	/* with a CUDA device */
	int rc;			/* of what was enqueued */
	struct dt_event *moved; /* the copy to pinned memory, or from it, is done */
	void *all; /* allocation for data between device and file; pinned: `room` usable bytes of it */
	char *pinned;
	size_t room;
	bool leaving; /* to be written to the file as soon as it is in pinned memory */
};

struct dt_backing {
	struct dt_dev *dev;
	bool card;
	struct dt_backing_use *use;
	const char *what;
	char how[96], where[PATH_MAX + 160];
	size_t grain;
	struct backing_slot slot[DT_SCRATCH_SLOTS];
	/* a file's; NULL: the host's memory */
	struct dt_scratch *file;
	char folder[PATH_MAX];
	uint32_t *crc;	  /* of each grain */
	uint8_t *written; /* 1: it was */
	/* with a CUDA device */
	void *in, *out;	       /* streams to the device and from it */
	struct dt_event *here; /* all work enqueued on the device so far */
	char **host;	       /* [nhost] blocks of host memory */
	int nhost;
};

/* Adds the time since `since` (dt_now) to the time spent waiting for transfers. */
void dt_backing_waited(struct dt_backing *b, double since, bool write);
/* Whether any of these bytes of the file were ever written. */
bool dt_backing_any_written(const struct dt_backing *b, size_t n, uint64_t at);
/* Data outside the memory of a transfer, which is copied in the same pass. */
struct backing_beside {
	char *values; /* NULL: there are none */
	size_t n;
};

/* Starts a write to the file, and records the checksums of what it writes. */
void dt_backing_file_write(struct dt_backing *b, int slot, char *from, size_t n, uint64_t at,
			   struct backing_beside source);
/* Checks data read from the file against its checksums (-EBADMSG), and zeros what was never written. */
int dt_backing_look(struct dt_backing *b, char *to, size_t n, uint64_t at, struct backing_beside copy,
		    struct dt_err *err);

int dt_backing_card_open(struct dt_backing *b, uint64_t bytes, struct dt_err *err);
/* Waits until both streams are empty; then the file and the rest may be closed. */
void dt_backing_card_drain(struct dt_backing *b);
void dt_backing_card_close(struct dt_backing *b);
void dt_backing_card_read(struct dt_backing *b, int slot);
void dt_backing_card_write(struct dt_backing *b, int slot);
int dt_backing_card_wait(struct dt_backing *b, int slot, enum backing_does does, struct dt_err *err);
bool dt_backing_card_done(struct dt_backing *b, int slot);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
