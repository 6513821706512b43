/*
 * Heads of latent attention (DeepSeek-V2, 2024, section 2.1): its products read and write them in one order,
 * the scores in another.
 *   latent_heads   y[to.at + i to.row + h to.head + j] = x[from.at + i from.row + h from.head + j]
 *                  for i < rows, h < heads, j < n; strides are elements. A stride over heads of 0 in x copies
 *                  one part to every head.
 *   with sum       to.head is 0, and y[to.at + i to.row + j] is the sum of x over heads, in their order, in
 *                  f32, rounded once: the backward of such a copy
 * y and x are of one type (f32, bf16, f16) and do not overlap. What is not named stays as it is; no element
 * of y is named twice. Results do not depend on the number of threads. -EINVAL: elements outside of y or x.
 */
#ifndef DT_KERNELS_LATENT_H
#define DT_KERNELS_LATENT_H

#include "kernels/device.h"

struct dt_latent_place {
	int64_t at, row, head;
};

struct dt_latent_heads {
	int64_t rows, heads, n;
	struct dt_latent_place to, from;
	bool sum;
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
