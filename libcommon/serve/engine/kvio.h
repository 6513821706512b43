/*
 * Asynchronous reads and writes of cache blocks in a folder (serve/engine/kvdisk.h), by a thread of its own;
 * reads have priority. All functions are called from one other thread. None of them waits for the disk,
 * except dt_kvio_buffer with `wait` and dt_kvio_close.
 */
#ifndef DT_SERVE_KVIO_H
#define DT_SERVE_KVIO_H

#include "serve/engine/kvdisk.h"

struct dt_kvio;
struct dt_kvread;

struct dt_kvio_counts {
	uint64_t read, written, failed; /* blocks; failed: blocks that were corrupt or could not be written */
	double read_s;			/* moving average of the seconds to read a block; 0: unknown */
};

/*
 * The I/O thread calls wake after a block was read, a read has ended, or a requested buffer has become free.
 */
int dt_kvio_open(struct dt_kvio **ret, struct dt_kvdisk *d, void (*wake)(void *arg), void *arg,
		 struct dt_err *err);
/* Writes all pending blocks, then ends the thread. NULL is allowed. */
void dt_kvio_close(struct dt_kvio *io);
struct dt_kvio_counts dt_kvio_counts(struct dt_kvio *io);

/* Returns a buffer for a block to write. NULL: all are in use. wait: waits for a free one. */
void *dt_kvio_buffer(struct dt_kvio *io, bool wait);
/* Whether dt_kvio_buffer has returned NULL and there is a free buffer now. */
bool dt_kvio_has_room(struct dt_kvio *io);
/* Queues the buffer for writing; it belongs to the I/O thread from now on. */
void dt_kvio_write(struct dt_kvio *io, void *buffer, struct dt_kvkey key, const int32_t *tokens);
/* Returns a buffer without writing it. */
void dt_kvio_drop(struct dt_kvio *io, void *buffer);

/*
 * Starts reading the n blocks of `tokens` that follow the block with key `before`, up to the first missing
 * one. NULL: out of memory.
 */
struct dt_kvread *dt_kvio_read(struct dt_kvio *io, struct dt_kvkey before, const int32_t *tokens, int n);
/* Returns the next block. NULL: it has not been read yet, or (*ended) there are no more. */
const void *dt_kvread_next(struct dt_kvread *r, bool *ended);
void dt_kvread_take(struct dt_kvread *r);  /* releases the block that dt_kvread_next returned */
void dt_kvread_close(struct dt_kvread *r); /* may be called at any time; NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
