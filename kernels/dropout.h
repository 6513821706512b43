/*
 * Dropout (Srivastava et al. 2014): y = (add ? y : 0) + x kept / (1 - p), where kept is 0 with probability p,
 * else 1. y, x [rows, n]: each f32, bf16 or f16; summed in f32, rounded once. y may alias x.
 * Whether an element is kept depends only on its place in the whole run: number token x cols + col + j of a
 * Philox stream is compared with `below`. Row i is token (sample + r / seq) x positions + pos[r], r = row +
 * i. So the result does not depend on layout, device or threads. Backward is the same call; nothing is saved.
 */
#ifndef DT_KERNELS_DROPOUT_H
#define DT_KERNELS_DROPOUT_H

#include "kernels/device.h"
#include "kernels/philox.h"

struct dt_dropout {
	struct dt_philox_stream stream;
	uint32_t below;	    /* p in units of 2^-32 */
	float scale;	    /* 1 / (1 - p) */
	int64_t sample;	    /* global number of row 0's sample */
	int64_t row;	    /* number of x's first row in the microbatch */
	int64_t seq;	    /* rows of a sample on this rank */
	int64_t positions;  /* tokens of a whole sample */
	const int32_t *pos; /* [row + rows] position of each row in its sample */
	int64_t cols, col;  /* columns of the whole matrix; the first that x holds */
};

/* Index in the Philox stream of the first element of row i of x. */
static inline DT_HOST_DEVICE uint64_t dt_dropout_at(const struct dt_dropout *p, int64_t i)
{
	const int64_t r = p->row + i;

	return (uint64_t)(((p->sample + r / p->seq) * p->positions + p->pos[r]) * p->cols + p->col);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
