/*
 * Ops of serving that follow one another, in one launch where a device can: a step of one token waits for
 * launches as much as for memory. Results are the bits of the ops named, one after another on the same
 * device. -ENOTSUP: not with these shapes or rows; nothing is written, and the caller calls the ops.
 *
 * step_heads   of qkv [rows, (heads + 2 kv_heads) head_dim]: heads_norm_forward of the q heads with wq and of
 *              the k heads with wk (both [head_dim], or both absent: none), then rope (absent: rope NULL), in
 *              place; then kv_write. -ENOTSUP with value_dim.
 * step_norm    packed_matmul: delta = in w^T + bias; then rmsnorm_forward: sum = x + delta, y = its norm with
 *              scale g. sum may alias x or in, y may alias in. All but in, bias and g are of one type.
 *
 * On a card step_heads takes heads of up to 256 columns in eights, step_norm rows that its products take one
 * by one (quant.h), of a number of columns that is a multiple of 8.
 */
#ifndef DT_KERNELS_STEP_H
#define DT_KERNELS_STEP_H

#include "kernels/attention.h"
#include "kernels/quant.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
