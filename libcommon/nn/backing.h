/*
 * Backing store of offloaded data: a file (base/scratch.h); with a CUDA device also host memory, or a file
 * that is reached through host memory. Transfers overlap with computation: on a CUDA device they have streams
 * of their own, one per direction, and pinned host memory.
 *
 * Not thread-safe. A slot has one transfer at a time, which ends with dt_backing_wait. Addresses are in the
 * device's memory. A write sees the results of ops called before it began; ops called after the wait run
 * after the transfer. If two transfers under way overlap in memory, neither may write it.
 *
 * Data read from a file is checked against the checksums of the write, one per grain, so that stale or torn
 * data is never used. Bytes that were never written read as zeros.
 */
#ifndef DT_NN_BACKING_H
#define DT_NN_BACKING_H

#include "base/scratch.h"
#include "kernels/device.h"

struct dt_backing;

struct dt_backing_use {		     /* totals over all that a run has offloaded */
	double wait_s, wait_write_s; /* seconds spent waiting for transfers; the part of that for writes */
	uint64_t read_bytes, written_bytes;
};

/*
 * folder NULL: host memory, with a CUDA device. Transfers begin and end at multiples of grain, and those of a
 * file at multiples of DT_SCRATCH_ALIGN. what: for messages, "optimizer states". -ENOSPC, -ENOMEM and the
 * errors of dt_scratch_open.
 */
int dt_backing_open(struct dt_dev *dev, const char *folder, uint64_t bytes, size_t grain, const char *what,
		    struct dt_backing_use *use, struct dt_backing **ret, struct dt_err *err);
/* Waits for transfers under way. NULL is allowed. */
void dt_backing_close(struct dt_backing *b);
/* For messages. where: "a file in 'sw' (io_uring, past the page cache)" or "the host's memory"; how: only the
 * text in brackets, empty if there is no file. */
const char *dt_backing_where(const struct dt_backing *b);
const char *dt_backing_how(const struct dt_backing *b);

/* Starts a transfer in a free slot. Errors are returned by dt_backing_wait. */
void dt_backing_read(struct dt_backing *b, int slot, void *to, size_t n, uint64_t at);
void dt_backing_write(struct dt_backing *b, int slot, const void *from, size_t n, uint64_t at);
/*
 * The same for data elsewhere in device memory. leave copies `have` of n bytes from `from` to `memory`, and
 * starts writing from there. come waits for the read into `memory`, and copies `have` bytes from there to
 * `to`. Copy and checksums are one pass.
 */
int dt_backing_leave(struct dt_backing *b, int slot, void *memory, const void *from, size_t have, size_t n,
		     uint64_t at, struct dt_err *err);
int dt_backing_come(struct dt_backing *b, int slot, const void *memory, void *to, size_t have,
		    struct dt_err *err);
/* Waits for the slot's transfer, if there is one. Returns its -errno; -EBADMSG: a checksum is wrong. */
int dt_backing_wait(struct dt_backing *b, int slot, struct dt_err *err);
/* Whether dt_backing_wait would return at once. */
bool dt_backing_done(struct dt_backing *b, int slot);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
