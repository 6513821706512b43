/*
 * Shared by the implementations of grouped products (kernels/grouped.h): oneDNN group by group, and tiles of
 * bf16 (tile.h) over all groups. Tiles use weights in their own layout and pack the few rows of a group
 * instead: beside oneDNN, 64 experts of 1024 x 768 with 64 rows each take 0.87 of the time forward and 0.95
 * backward on Zen 4, 8 experts of 512 rows the same. Gradients of weights are by tiles with AMX only.
 */
#ifndef DT_KERNELS_CPU_GROUPED_H
#define DT_KERNELS_CPU_GROUPED_H

#include "kernels/cpu/cpu.h"

/* The three products. With tiles their scratch is tasks, and for every thread `words` words. */
enum dt_grouped_of { DT_GROUPED_Y, DT_GROUPED_DX, DT_GROUPED_DW };
enum { DT_GROUPED_TASK = 40 }; /* bytes of a task */
struct dt_grouped_tiling {
	int64_t rows;	/* rows of a group processed at a time, a multiple of two tiles */
	int64_t blocks; /* of columns of the result, for dw of rows: what a task has a range of */
	int64_t words;
};
/*
 * Whether tiles are used: bf16, on processors that multiply it, with n, n2 and k multiples of DT_TILE. For
 * dw only with AMX: without it, gradients of small experts' weights take 1.3 times as long as by oneDNN.
 */
bool dt_grouped_by_tiles(const struct dt_scratch_on *on, enum dt_grouped_of of, enum dt_dtype t, int64_t n,
			 int64_t n2, int64_t k);
struct dt_grouped_tiling dt_grouped_tiling(enum dt_grouped_of of, int64_t n, int64_t n2, int64_t k);

/* Operands named by their role in y = x w^T; so y may be dy, x dx, and w dw. */
struct dt_grouped_call {
	struct dt_dev *dev;
	struct dt_tensor y, x, w, w2;
	int64_t n, n2, k; /* rows of w and of w2 per expert, columns of x */
};

/* Elements that a 16-bit matrix takes as an f32 copy. */
static inline int64_t dt_grouped_wide(int64_t rows, int64_t cols)
{
	return (rows * cols + 15) / 16 * 16;
}

/* grouped.c: bytes of the scratch of a call with any groups. */
size_t dt_grouped_bytes(const struct dt_grouped_call *c, const struct dt_grouped *g, enum dt_grouped_of of);

/*
 * One of the products by tiles, for valid groups; without accumulate, experts without rows get zeros in dw.
 * accumulate: for dw only. A task is some rows of a group and some columns of its result. Threads take tasks
 * one after another; neither their number nor other rows affect the order of a sum. Scratch is about 2 MiB
 * per thread. -ENOTSUP, nothing is written: dt_grouped_by_tiles is false. -ENOMEM.
 */
int dt_grouped_tiles(const struct dt_grouped_call *c, const struct dt_grouped *g, enum dt_grouped_of of,
		     bool accumulate);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
