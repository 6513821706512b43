/*
 * Root mean square normalisation (Zhang & Sennrich 2019, eq. 4) fused with the residual addition before it.
 *
 * rmsnorm_forward:   r = delta present ? x + delta : x;   sum = r (delta present only)
 *                    y = r rstd v;   rstd = 1 / sqrt(avg(r^2) + eps)
 * rmsnorm_backward:  x is the input of the normalisation. g = dy v;  xh = x rstd
 *                    dx = dresid + rstd (g - xh avg(g xh))                 = overwritten
 *                    dw += sum over rows of dy xh                          f32 [n], may be absent
 *   v = w, or 1 + w in f32 with plus_one (Gemma stores weights minus 1).
 *
 * Shapes, types, rounding, aliasing and determinism as in layernorm.h; but w is of x's type or f32 (weights
 * near 1 that bf16 would round), and y may alias x if there is no delta.
 *
 * heads_norm_forward, heads_norm_backward: the same for each head of wider rows, without a residual (Henry et
 * al. 2020, Query-Key Normalization). x, y, dx and dy are [rows, width]; a row is a sequence of heads of
 * head_dim columns. Heads first .. first + heads - 1 are normalised separately, all with the same w
 * [head_dim]; no other column is read or written. rstd is [rows, heads] f32; in forward it may be absent.
 *   Forward:   y may alias x. raw [rows, heads head_dim], if present, receives those columns of x: backward
 *              needs them if y aliases x.
 *   Backward:  x is forward's x, or raw; its number of columns tells which. dx may alias dy. dw is summed in
 *              order of rows, then of heads.
 * The CPU gives the bits of rmsnorm on the heads copied to a matrix [rows heads, head_dim].
 *
 * heads_sums: the sums that such norms need of vectors cut over ranks (OLMo 2 normalises all of q, and all of
 * k). sums [rows, heads] f32 = sum over a head's columns on this rank. Ranks all-reduce them and pass the
 * result in dt_heads: forward and backward then use it in place of their own sum, and `over` as the vector's
 * length.
 *   dy absent:  of x^2, for forward
 *   else:       of g xh, for backward; x as in heads_norm_backward
 */
#ifndef DT_KERNELS_RMSNORM_H
#define DT_KERNELS_RMSNORM_H

#include "kernels/device.h"
#include "kernels/scratch.h"

struct dt_heads {
	int64_t first, heads, head_dim;
	struct dt_tensor sums; /* [rows, heads] f32, over whole vectors; absent: these heads are whole */
	int64_t over;	       /* with sums: columns of a whole vector */
};

/*
 * Scratch of rmsnorm_forward and _backward for rows of n elements; of heads_norm_forward and _backward with
 * rows x heads and head_dim; and of heads_sums.
 */
DT_C size_t dt_rmsnorm_forward_scratch(const struct dt_scratch_on *on, int64_t n);
DT_C size_t dt_rmsnorm_backward_scratch(const struct dt_scratch_on *on, int64_t rows, int64_t n);
DT_C size_t dt_heads_sums_scratch(const struct dt_scratch_on *on, int64_t head_dim);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
