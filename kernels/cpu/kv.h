/*
 * Layout of the KV cache. A slot is a row of dt_kv_row elements, unless the processor multiplies pairs of
 * bf16 and the cache has three dimensions, so that its block size is known. Then sixteen slots of a block
 * form a group, and a group holds for each head
 *
 *   keys     [head_dim / 2, 16] words: pair w of slot i, so that a vector is one pair of sixteen keys
 *   values   [8, head_dim] words: element j of slots 2 i and 2 i + 1, so that a vector is sixteen elements
 *
 * which is the operand layout of attention's products: nothing is repacked for later tokens. For int8, if the
 * processor has dot products of four bytes:
 *
 *   keys     [head_dim / 4, 16] words: elements 4 w .. 4 w + 3 of slot i, with 128 added; then 16 scales
 *   values   [4, head_dim] words: element j of slots 4 i .. 4 i + 3; then 16 scales
 *
 * A block stays contiguous in each cache, and takes the same number of bytes.
 */
#ifndef DT_KERNELS_CPU_KV_H
#define DT_KERNELS_CPU_KV_H

#include "kernels/cpu/tile_int8.h"

#define DT_KV_GROUP    16  /* slots per group */
#define DT_KV_INT8_DIM 512 /* with longer heads, sums of products overflow 32 bits */

static inline bool dt_kv_grouped(const struct dt_attn *p, struct dt_tensor cache)
{
	return cache.ndim == 3 && cache.dim[1] % DT_KV_GROUP == 0 && p->head_dim % 32 == 0 && !p->value_dim &&
	       ((cache.dtype == DT_BF16 && dt_tile(DT_BF16)->pairs) ||
		(cache.dtype == DT_I8 && p->head_dim <= DT_KV_INT8_DIM && dt_tile_int8()));
}

/* Offset of head kv in the group of a slot, in elements of the cache's type. */
static inline int64_t dt_kv_group(const struct dt_attn *p, enum dt_dtype cache, int64_t slot, int64_t kv)
{
	return (slot / DT_KV_GROUP * p->kv_heads + kv) * DT_KV_GROUP * (dt_kv_row(p, cache) / p->kv_heads);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
