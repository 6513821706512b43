/*
 * DoRA adapters, which change the direction and the magnitude of the rows of a weight separately (Liu et al.
 * 2024, eq. 5): y = g (u - bias) + bias with u = x (w + s b a)^T + bias and g = magnitude / |w + s b a|, for
 * each row of w. The magnitude is |w| + m, so that m = 0 and b = 0 give g = 1, and y = u to the bit. The norm
 * in the denominator is a constant in backward (section 4.3).
 *   dora_norms     r f32 [2, out]: sums of squares of the rows of w, and of w + s b a
 *                  w [out, in], a [rank, in], b [out, rank]: f32, bf16 or f16; in f32, sums in f64
 *   dora_ratio     turns these sums in r into g = (|w| + m) / n and 1 / n, n the norm; 1 and 0 where n is 0.
 *                  m [out]
 *   dora_scale     y[:, at .. at + n) += (g - 1) (y - bias)          g f32 [n], bias [n] or absent
 *   dora_backward  dx[:, at .. at + n), which holds dy, *= g; dm f32 [n] += the sum over rows of
 *                  dy (u - bias) / n, with r [2, n] from dora_ratio; dm may be absent
 * dx and u have equal numbers of rows and columns. Independent of the number of threads.
 */
#ifndef DT_KERNELS_DORA_H
#define DT_KERNELS_DORA_H

#include "kernels/device.h"
#include "kernels/scratch.h"

/* Scratch of dora_norms for w [out, in], of dora_scale for n columns, and of dora_backward. */
DT_C size_t dt_dora_norms_scratch(const struct dt_scratch_on *on, int64_t out, int64_t rank);
DT_C size_t dt_dora_scale_scratch(const struct dt_scratch_on *on, int64_t n);
DT_C size_t dt_dora_backward_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
