/*
 * Consecutive ops of serving, fused into one launch where the device can: a step of one token waits for
 * launches as much as for memory. Results are the bits of the ops named, run one after another on the same
 * device. -ENOTSUP: these shapes or rows cannot be fused; nothing is written, and the caller calls the ops.
 *
 * step_heads   on qkv [rows, (heads + 2 kv_heads) head_dim]: heads_norm_forward of the q heads with wq and of
 *              the k heads with wk (both [head_dim], or both absent: no norm), then rope (NULL: none), in
 *              place; then kv_write. -ENOTSUP with value_dim.
 * step_norm    packed_matmul: delta = in w^T + bias; then rmsnorm_forward: sum = x + delta, y = its norm with
 *              scale g. sum may alias x or in, y may alias in. All but in, bias and g are of one type.
 *
 * On a card step_heads takes head sizes up to 256 that are multiples of 8. step_norm takes numbers of rows
 * that its product handles one by one (quant.h), and numbers of columns that are multiples of 8.
 */
#ifndef DT_KERNELS_STEP_H
#define DT_KERNELS_STEP_H

#include "kernels/attention.h"
#include "kernels/quant.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
