/*
 * Where offloaded bytes lie: a file (base/scratch.h); beside a card the memory of its host, or a file that
 * is reached through that memory. Transfers run while others compute: on a card in queues of their own, one
 * a direction, with memory that the host has pinned.
 *
 * One thread calls. A slot has one transfer at a time, which ends with backing_wait. Memory is the device's;
 * what ops wrote to it before a write began is written, and ops that are called behind a wait come behind
 * the transfer. No byte may be in two transfers under way of which one writes it.
 *
 * What comes from a file must have the checksums it was written with, a grain at a time, so that nothing is
 * used that is older, or half of another. What was never written comes as zero.
 */
#ifndef DT_NN_BACKING_H
#define DT_NN_BACKING_H

#include "base/scratch.h"
#include "kernels/device.h"

struct dt_backing;

struct dt_backing_use {		     /* of all that a run has offloaded, so far */
	double wait_s, wait_write_s; /* for transfers while nothing computed; of that for writes */
	uint64_t read_bytes, written_bytes;
};

/*
 * folder NULL: the host's memory, of a card. grain: transfers begin and end at multiples of it, and those of
 * a file at DT_SCRATCH_ALIGN; what: for messages, "optimizer states". -ENOSPC, -ENOMEM and what
 * dt_scratch_open has.
 */
int dt_backing_open(struct dt_dev *dev, const char *folder, uint64_t bytes, size_t grain, const char *what,
		    struct dt_backing_use *use, struct dt_backing **ret, struct dt_err *err);
/* Waits for what is under way. NULL is allowed. */
void dt_backing_close(struct dt_backing *b);
/* For people: "a file in 'sw' (io_uring, past the page cache)", "the host's memory"; and what is in brackets
 * alone, empty where it is no file. */
const char *dt_backing_where(const struct dt_backing *b);
const char *dt_backing_how(const struct dt_backing *b);

/* Begins a transfer in a slot that has none; what fails is said by the wait. */
void dt_backing_read(struct dt_backing *b, int slot, void *to, size_t n, uint64_t at);
void dt_backing_write(struct dt_backing *b, int slot, const void *from, size_t n, uint64_t at);
/*
 * The same of values that lie elsewhere in the device's memory: `have` of n bytes are copied to memory, where
 * the transfer begins; and once it has ended, from memory to where they belong. In one pass with checksums.
 */
int dt_backing_leave(struct dt_backing *b, int slot, void *memory, const void *from, size_t have, size_t n,
		     uint64_t at, struct dt_err *err);
int dt_backing_come(struct dt_backing *b, int slot, const void *memory, void *to, size_t have,
		    struct dt_err *err);
/* Until the slot's transfer is done, if it has one. -errno of it; -EBADMSG: not as it was written. */
int dt_backing_wait(struct dt_backing *b, int slot, struct dt_err *err);
/* Whether that would not wait. */
bool dt_backing_done(struct dt_backing *b, int slot);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
