/*
 * Shared by the implementations of grouped products (kernels/grouped.h): oneDNN group by group, and AMX tiles
 * over all groups.
 */
#ifndef DT_KERNELS_CPU_GROUPED_H
#define DT_KERNELS_CPU_GROUPED_H

#include "kernels/cpu/cpu.h"

/* Operands named by their role in y = x w^T; so y may be dy, x dx, and w dw. */
struct dt_grouped_call {
	struct dt_dev *dev;
	struct dt_tensor y, x, w, w2;
	int64_t n, n2, k; /* rows of w and of w2 per expert, columns of x */
};

/*
 * The three grouped products with AMX, for valid groups; without accumulate, experts without rows get zeros
 * in dw. A task is some rows of a group and some columns of its result. Threads take tasks one after another;
 * neither their number nor other rows affect the order of a sum. Scratch is about 2 MiB per thread.
 * -ENOTSUP, nothing is written: no AMX, not bf16, or n, n2 or k not a multiple of DT_TILE. -ENOMEM.
 */
int dt_grouped_tiles(const struct dt_grouped_call *c, const struct dt_grouped *g);
int dt_grouped_tiles_dx(const struct dt_grouped_call *c, const struct dt_grouped *g);
int dt_grouped_tiles_dw(const struct dt_grouped_call *c, const struct dt_grouped *g, bool accumulate);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
