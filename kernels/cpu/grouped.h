/*
 * What is shared by the ways of a product a group (kernels/grouped.h): oneDNN's, group after group, and by
 * tiles, all groups at once.
 */
#ifndef DT_KERNELS_CPU_GROUPED_H
#define DT_KERNELS_CPU_GROUPED_H

#include "kernels/cpu/cpu.h"

/* Operands by their place in y = x w^T: y may be dy, x dx, and w dw. */
struct dt_grouped_call {
	struct dt_dev *dev;
	struct dt_tensor y, x, w, w2;
	int64_t n, n2, k; /* rows of w and of w2 an expert, columns of x */
};

/*
 * The three products of groups that ascend, by AMX; without accumulate dw's experts that have no rows get
 * zeros. A task is some rows of a group and some columns of its result; threads take one after another, and
 * neither their number nor other rows choose the order of a sum. Scratch is about 2 MiB a thread.
 * -ENOTSUP, nothing is written: no AMX, another type than bf16, or n, n2 or k no multiple of DT_TILE.
 * -ENOMEM.
 */
int dt_grouped_tiles(const struct dt_grouped_call *c, const struct dt_grouped *g);
int dt_grouped_tiles_dx(const struct dt_grouped_call *c, const struct dt_grouped *g);
int dt_grouped_tiles_dw(const struct dt_grouped_call *c, const struct dt_grouped *g, bool accumulate);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
