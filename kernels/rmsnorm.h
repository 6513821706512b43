/*
 * Root mean square normalisation (Zhang & Sennrich 2019, eq. 4) fused with the residual addition before it.
 *
 * rmsnorm_forward:   r = delta present ? x + delta : x;   sum = r (delta present only)
 *                    y = r rstd v;   rstd = 1 / sqrt(avg(r^2) + eps)
 * rmsnorm_backward:  x is what was normalised. g = dy v;  xh = x rstd
 *                    dx = dresid + rstd (g - xh avg(g xh))                 = overwritten
 *                    dw += sum over rows of dy xh                          f32 [n], may be absent
 *   v = w, or 1 + w in f32 with plus_one (Gemma keeps its weights without the 1).
 *
 * Shapes, types, rounding, aliasing and determinism as in layernorm.h; but w is of x's type or f32 (weights
 * near 1 that bf16 would round), and y may alias x where there is no delta.
 *
 * heads_norm_forward, heads_norm_backward: the same over heads of wider rows, without a residual (Henry et
 * al. 2020, Query-Key Normalization). x, y, dx and dy are [rows, width]; a row is a sequence of heads of
 * head_dim columns. Heads first .. first + heads - 1 are normalised, each by itself, all with the same w
 * [head_dim]; no other column is read or written. rstd is [rows, heads] f32; in forward it may be absent.
 *   Forward:   y may alias x. raw [rows, heads head_dim], if present, receives those columns of x: backward
 *              needs them where y is x.
 *   Backward:  x is forward's x, or raw; its number of columns tells which. dx may alias dy. dw is summed in
 *              order of rows, then of heads.
 * On the processor the result has the bits of rmsnorm of the heads copied to a matrix [rows heads, head_dim].
 *
 * heads_sums: what such norms need to know of vectors that are cut over ranks (OLMo 2 normalises all of q,
 * and all of k). sums [rows, heads] f32 = sum over a head's columns here; ranks add theirs up and hand the
 * result back in dt_heads: forward and backward then take it in place of their own sum, and `over` as the
 * vector's length.
 *   dy absent:  of x^2, for forward
 *   else:       of g xh, for backward; x as heads_norm_backward has it
 */
#ifndef DT_KERNELS_RMSNORM_H
#define DT_KERNELS_RMSNORM_H

#include "kernels/device.h"

struct dt_heads {
	int64_t first, heads, head_dim;
	struct dt_tensor sums; /* [rows, heads] f32, over whole vectors; absent: these heads are whole */
	int64_t over;	       /* with sums: columns of a whole vector */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
