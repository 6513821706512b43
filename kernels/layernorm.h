/*
 * Layer normalisation (Ba et al. 2016, eq. 4) fused with the residual addition before it.
 *
 * Forward:  r = delta present ? x + delta : x;   sum = r (delta present only)
 *           y = (r - mean) rstd w + b;   mean = avg(r);   rstd = 1 / sqrt(avg((r - mean)^2) + eps)
 *   x, delta, sum, y [rows, n] and w, b [n] of the compute type; b may be absent; mean, rstd [rows] f32,
 *   saved for backward, or absent. All outputs are overwritten. sum is rounded to its type before it is
 *   normalised, so that backward, given x = sum, sees the same values. sum may alias x or delta; y may alias
 *   delta.
 * Backward: x is the input of the normalisation. g = dy w;  xh = (x - mean) rstd
 *           dx = dresid + rstd (g - avg(g) - xh avg(g xh))                  = overwritten
 *           dw += sum over rows of dy xh;  db += sum over rows of dy        f32 [n]; either may be absent
 *   dresid (absent: 0) is the gradient that reaches the residual stream from above; dx may alias it, or dy.
 *
 * Statistics and sums are f32 (variance in a second pass over the row). Nothing depends on the number of
 * threads: dw and db are summed over fixed groups of rows, then over the groups in order.
 */
#ifndef DT_KERNELS_LAYERNORM_H
#define DT_KERNELS_LAYERNORM_H

#include "kernels/device.h"
#include "kernels/scratch.h"

/* Scratch of layernorm_forward and _backward for rows of n elements. */
DT_C size_t dt_layernorm_forward_scratch(const struct dt_scratch_on *on, int64_t n);
DT_C size_t dt_layernorm_backward_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
