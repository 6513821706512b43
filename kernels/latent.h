/*
 * Strided copies of heads for latent attention (DeepSeek-V2, 2024, section 2.1), whose products and attention
 * scores use different orders of the heads.
 *   latent_heads   y[to.at + i to.row + h to.head + j] = x[from.at + i from.row + h from.head + j]
 *                  for i < rows, h < heads, j < n; strides are in elements. from.head = 0 copies one part to
 *                  every head.
 *   with sum       to.head is 0, and y[to.at + i to.row + j] is the sum of x over the heads in order, in f32,
 *                  rounded once: the backward of such a copy
 * y and x are of one type (f32, bf16, f16) and do not overlap. Other elements of y are not touched; no
 * element of y may be addressed twice. Independent of the number of threads. -EINVAL: elements outside y or
 * x.
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
