/*
 * Inside backing.c and backing_card.c: what of a transfer is a card's. Bytes come from a card and go to it in
 * two queues, which are ordered with its ops by events; the host waits for none but where nothing is left to
 * compute, or a file is to have them.
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
	/* beside a card */
	int rc;			/* of what was queued */
	struct dt_event *moved; /* bytes are in pinned memory, or have left it */
	void *all; /* what passes between the card and a file: memory, where in it, for so many bytes */
	char *pinned;
	size_t room;
	bool leaving; /* for the file, as soon as it is in pinned memory */
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
	/* beside a card */
	void *in, *out;	       /* queues to the card and from it */
	struct dt_event *here; /* what the card was given so far */
	char **host;	       /* [nhost] parts of the host's memory */
	int nhost;
};

/* Adds what has gone by since then (dt_now) to what transfers were waited for. */
void dt_backing_waited(struct dt_backing *b, double since, bool write);
/* Whether any of these bytes of the file were ever written. */
bool dt_backing_any_written(const struct dt_backing *b, size_t n, uint64_t at);
/* Values beside the memory of a transfer, which are copied on the way. */
struct backing_beside {
	char *values; /* NULL: there are none */
	size_t n;
};

/* Begins a transfer of the file, and keeps the checksums of what it writes. */
void dt_backing_file_write(struct dt_backing *b, int slot, char *from, size_t n, uint64_t at,
			   struct backing_beside source);
/* What came from the file is as it was written, and zero where it never was. -EBADMSG. */
int dt_backing_look(struct dt_backing *b, char *to, size_t n, uint64_t at, struct backing_beside copy,
		    struct dt_err *err);

int dt_backing_card_open(struct dt_backing *b, uint64_t bytes, struct dt_err *err);
/* Until nothing is queued; then the file may be closed, and the rest. */
void dt_backing_card_drain(struct dt_backing *b);
void dt_backing_card_close(struct dt_backing *b);
void dt_backing_card_read(struct dt_backing *b, int slot);
void dt_backing_card_write(struct dt_backing *b, int slot);
int dt_backing_card_wait(struct dt_backing *b, int slot, enum backing_does does, struct dt_err *err);
bool dt_backing_card_done(struct dt_backing *b, int slot);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
