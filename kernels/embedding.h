/*
 * Token and position embedding over one shard of the vocabulary.
 *
 * Forward:  y[i] = wte[ids[i] - vocab_first] + wpe[pos[i]]          = overwritten
 *   y [rows, n], wte [vocab of this shard, n], wpe [positions, n] of the compute type; ids, pos [rows].
 *   An id outside the shard (negative ones included) contributes zero: the sum over the shards is the full y,
 *   so only one shard is given wpe. wpe absent: no position term, pos may be NULL.
 * Backward: dwte[ids[i] - vocab_first] += dy[i];  dwpe[pos[i]] += dy[i]     f32; either may be absent
 *
 * pos outside wpe is -EINVAL and nothing is written. Backward adds rows in ascending i, each column by one
 * thread, so the bits do not depend on the number of threads. A card sums the rows of one id 64 at a time,
 * then adds these sums in order.
 */
#ifndef DT_KERNELS_EMBEDDING_H
#define DT_KERNELS_EMBEDDING_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
