/*
 * Reading ahead: blocks of samples made by threads before they are asked for. One mechanism for tokens and
 * images; what a sample is and how it is made is the caller's.
 */
#ifndef DT_DATA_AHEAD_H
#define DT_DATA_AHEAD_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct dt_ahead;

/*
 * Makes samples n .. n + count - 1 in rows at .. at + count - 1 of a block. Several threads call it at once,
 * for different rows. A failure is returned by the dt_ahead_get of that block.
 */
typedef int (*dt_ahead_make_fn)(void *ctx, int worker, int64_t n, int at, int count, void *block,
				struct dt_err *err);

struct dt_ahead_options {
	dt_ahead_make_fn make;
	void *ctx;
	int count;	    /* samples of a block */
	int grain;	    /* samples that one thread makes at a time */
	size_t block_bytes; /* memory of a block, aligned to 64 bytes */
	int64_t every;	    /* after block n comes block n + every */
	int64_t end;	    /* blocks from here on are not made ahead; 0: there is no end */
	int workers;	    /* threads; 0: the caller makes what it asks for. make sees worker 0 .. workers */
	int ahead;	    /* blocks to make ahead */
};

int dt_ahead_open(const struct dt_ahead_options *o, struct dt_ahead **ret, struct dt_err *err);
void dt_ahead_close(struct dt_ahead *a); /* waits for blocks being made */

/* The block of samples n .. n + count - 1, valid until the next call. Any n is allowed, in any order. */
int dt_ahead_get(struct dt_ahead *a, int64_t n, const void **ret, struct dt_err *err);

/* Sets the samples of later blocks, at most options.count. Not between a get and the use of its block. */
void dt_ahead_expect(struct dt_ahead *a, int count);

struct dt_ahead_stats {
	int64_t samples; /* made */
	double busy_s, waited_s;
};
void dt_ahead_stats(struct dt_ahead *a, struct dt_ahead_stats *ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
