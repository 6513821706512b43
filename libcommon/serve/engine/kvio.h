/*
 * Blocks read from and written to a folder (serve/engine/kvdisk.h) by a thread of its own, reads first. The
 * calls here come from one other thread; none waits for the disk but dt_kvio_buffer with `wait`.
 */
#ifndef DT_SERVE_KVIO_H
#define DT_SERVE_KVIO_H

#include "serve/engine/kvdisk.h"

struct dt_kvio;
struct dt_kvread;

struct dt_kvio_counts {
	uint64_t read, written, failed; /* blocks; failed: those that are not whole, and those not written */
	double read_s; /* seconds that the last blocks took to read, and the wait for them; 0: unknown */
};

/* wake is called by the thread after a block was read, a reading has ended, or a buffer asked for is free. */
int dt_kvio_open(struct dt_kvio **ret, struct dt_kvdisk *d, void (*wake)(void *arg), void *arg,
		 struct dt_err *err);
/* Writes what was given, and ends. NULL is allowed. */
void dt_kvio_close(struct dt_kvio *io);
struct dt_kvio_counts dt_kvio_counts(struct dt_kvio *io);

/* Room for a block to be written; NULL: as much is on its way as may be. wait: until there is some. */
void *dt_kvio_buffer(struct dt_kvio *io, bool wait);
/* Whether somebody was told that there is none, and now there is. */
bool dt_kvio_has_room(struct dt_kvio *io);
/* Writes it; the buffer is the thread's from here on. */
void dt_kvio_write(struct dt_kvio *io, void *buffer, struct dt_kvkey key, const int32_t *tokens);
/* Gives a buffer back unwritten. */
void dt_kvio_drop(struct dt_kvio *io, void *buffer);

/* Reads the n blocks of tokens behind the one with key `before`, up to the first that is not there. NULL: no
 * memory. */
struct dt_kvread *dt_kvio_read(struct dt_kvio *io, struct dt_kvkey before, const int32_t *tokens, int n);
/* The next block, NULL: it has not come yet, or (*ended) no more will. */
const void *dt_kvread_next(struct dt_kvread *r, bool *ended);
void dt_kvread_take(struct dt_kvread *r);  /* the block that next gave is not needed any more */
void dt_kvread_close(struct dt_kvread *r); /* at any time; NULL is allowed */

#endif
/* SPDX-License-Identifier: Apache-2.0 */
