/*
 * Token and position embedding over one shard of the vocabulary.
 *
 * Forward:  y[i] = wte[ids[i] - vocab_first] + wpe[pos[i]]          = overwritten
 *   y [rows, n], wte [vocab of this shard, n], wpe [positions, n] of the compute type; ids, pos [rows].
 *   An id outside the shard (negative ones included) contributes zero: summed over the shards, y is whole. So
 *   wpe is given on one shard only. wpe absent: no position term, pos may be NULL.
 * Backward: dwte[ids[i] - vocab_first] += dy[i];  dwpe[pos[i]] += dy[i]     f32; either may be absent
 *
 * pos outside wpe is -EINVAL and nothing is written. Backward adds rows in ascending i, each column by one
 * thread: the same bits whatever the number of threads. A card adds more than 64 rows of an id 64 at a time,
 * then these sums in order.
 */
#ifndef DT_KERNELS_EMBEDDING_H
#define DT_KERNELS_EMBEDDING_H

#include "kernels/device.h"

#endif
/* SPDX-License-Identifier: Apache-2.0 */
