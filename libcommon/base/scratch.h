/*
 * A private file for data that does not fit in memory. It is unlinked as soon as it is open, so nothing
 * remains however the process ends. Transfers run asynchronously, by io_uring (Axboe 2019) or by threads
 * where that is missing or not allowed, and bypass the page cache (O_DIRECT) where the file system supports
 * it.
 *
 * Only one thread may call these functions. A slot has one transfer at a time, of any size; it is split into
 * pieces that run in parallel.
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
 * Creates the file in an existing folder and reserves `bytes` of space. threads: do not use io_uring.
 * -ENOSPC, -ENOTDIR, -EACCES ...; the message names the folder.
 */
int dt_scratch_open(const char *folder, uint64_t bytes, bool threads, struct dt_scratch **ret,
		    struct dt_err *err);
/* Waits for running transfers. s may be NULL. */
void dt_scratch_close(struct dt_scratch *s);
/* Describes how transfers are done, for people: "io_uring, past the page cache". */
const char *dt_scratch_how(const struct dt_scratch *s);
int dt_scratch_fd(const struct dt_scratch *s);

/*
 * Start a transfer in an idle slot. The address, n and at are multiples of DT_SCRATCH_ALIGN. The memory must
 * stay valid until dt_scratch_wait.
 */
void dt_scratch_read(struct dt_scratch *s, int slot, void *to, size_t n, uint64_t at);
void dt_scratch_write(struct dt_scratch *s, int slot, const void *from, size_t n, uint64_t at);
/* Waits for the slot's transfer and returns 0 or its error, -EIO if the file ends too early. */
int dt_scratch_wait(struct dt_scratch *s, int slot, struct dt_err *err);
/* Whether dt_scratch_wait would return at once. Also continues short transfers. */
bool dt_scratch_done(struct dt_scratch *s, int slot);

/* Bytes free for this user in a folder's file system. */
int dt_scratch_free(const char *folder, uint64_t *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
