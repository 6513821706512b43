/*
 * Heads of latent attention (DeepSeek-V2, 2024, section 2.1.3): queries, and keys and values that were made
 * from a latent, as attention.h reads them.
 *   latent_join   qkv [rows, heads (2 (rope + nope) + value)] = all heads of q, then of k, then of v, from
 *                 q [rows, heads (nope + rope)], key [rows, rope], kv [rows, heads (nope + value)]
 *                 A head of q and of k begins with the part that is rotated: [rope, nope]; operands have it
 *                 last. `key` is that part of every head of k. kv has [nope of k, value] a head.
 *   latent_join_backward   dq, dkey and dkv = the same columns of dqkv; dkey = the sum over heads in their
 *                 order, in f32, rounded once
 * All tensors are of one type (f32, bf16, f16) and do not overlap. Results are overwritten, and do not depend
 * on the number of threads.
 */
#ifndef DT_KERNELS_LATENT_H
#define DT_KERNELS_LATENT_H

#include "kernels/device.h"

struct dt_latent {
	int64_t heads, nope, rope, value; /* heads, and elements of a head's parts */
};

#endif
/* SPDX-License-Identifier: Apache-2.0 */
