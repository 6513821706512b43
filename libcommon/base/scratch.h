/*
 * A file for what does not fit into memory, of one process and for as long as it lives: its name is removed
 * as soon as it is open, so that nothing stays behind, however the process ends. Transfers run while others
 * compute, by io_uring (Axboe 2019) where the system has it and by threads where it does not or does not
 * allow it; past the page cache (O_DIRECT) where the file system can.
 *
 * One thread calls. A slot has one transfer at a time, of any size: it is cut into pieces that run together.
 */
#ifndef DT_BASE_SCRATCH_H
#define DT_BASE_SCRATCH_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DT_SCRATCH_ALIGN = 4096, DT_SCRATCH_SLOTS = 16 };

struct dt_scratch;

/*
 * In an existing folder, with space for so many bytes reserved. threads: no io_uring. -ENOSPC where there is
 * no such space, -ENOTDIR, -EACCES ... name the folder.
 */
int dt_scratch_open(const char *folder, uint64_t bytes, bool threads, struct dt_scratch **ret,
		    struct dt_err *err);
/* Waits for what is under way. NULL is allowed. */
void dt_scratch_close(struct dt_scratch *s);
/* How transfers are done, for people: "io_uring, past the page cache". */
const char *dt_scratch_how(const struct dt_scratch *s);
int dt_scratch_fd(const struct dt_scratch *s);

/*
 * Starts a transfer in a slot that has none. Address, n and at are multiples of DT_SCRATCH_ALIGN; the memory
 * must stay until the wait.
 */
void dt_scratch_read(struct dt_scratch *s, int slot, void *to, size_t n, uint64_t at);
void dt_scratch_write(struct dt_scratch *s, int slot, const void *from, size_t n, uint64_t at);
/* Until the slot's transfer is done: its errno, -EIO where the file ends too early. */
int dt_scratch_wait(struct dt_scratch *s, int slot, struct dt_err *err);
/* Whether that would not wait. What has ended in part goes on. */
bool dt_scratch_done(struct dt_scratch *s, int slot);

/* Bytes that are free for this user in a folder. */
int dt_scratch_free(const char *folder, uint64_t *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
