/*
 * Root mean square normalisation (Zhang & Sennrich 2019, eq. 4) fused with the residual addition before it.
 *
 * Forward:  r = delta present ? x + delta : x;   sum = r (delta present only)
 *           y = r rstd w;   rstd = 1 / sqrt(avg(r^2) + eps)
 * Backward: x is what was normalised. g = dy w;  xh = x rstd
 *           dx = dresid + rstd (g - xh avg(g xh))                   = overwritten
 *           dw += sum over rows of dy xh                            f32 [n], may be absent
 *
 * Shapes, types, rounding, aliasing and determinism as in layernorm.h; but forward's w is of x's type or f32
 * (weights near 1 that bf16 would round), on the processor backward's too, and y may alias x where there is
 * no delta.
 */
#ifndef DT_KERNELS_RMSNORM_H
#define DT_KERNELS_RMSNORM_H

#include "kernels/device.h"

#endif
