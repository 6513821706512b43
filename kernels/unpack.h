/*
 * Frozen weights in quantised blocks, and the op that dequantises them.
 *
 *   q8_0 ...     rows of whole blocks of any format of quant_formats.h
 *   nf4          NF4 with double quantisation (nf4.h); rows of whole blocks of 64. A shard begins with the
 *                code, offset and group scales of the whole tensor, then has its own block scales:
 *                  f32 code[256], f32 offset, f32 groups[], padded to 64 bytes; u8 scales[], one per block,
 *                  padded to 64 bytes; nibbles
 *
 * unpack: y[i, j] = element j of row i; y f32, bf16 or f16, rounded once. NF4 is computed as in bitsandbytes:
 *   table[nibble] (code[u8] group + offset) in f32, without contraction.
 *
 * round_blocks: fake quantisation, w = dt_dequantize(dt_quantize(w)) in format f of quant_formats.h, row by
 *   row, rounded once. w f32, bf16 or f16; rows are whole blocks of f, which is not a plain type. Used by
 *   quantisation-aware training (Jacob et al. 2018).
 */
#ifndef DT_KERNELS_UNPACK_H
#define DT_KERNELS_UNPACK_H

#include "kernels/device.h"
#include "kernels/quant_formats.h"

#define DT_BLOCKS_ENTRY(NAME, name) DT_BLOCKS_##NAME,
enum dt_block_kind { DT_BLOCKS_NONE, DT_BLOCK_FORMATS(DT_BLOCKS_ENTRY) DT_BLOCKS_NF4 };
#undef DT_BLOCKS_ENTRY
#define DT_BLOCKS_NAMES "none" DT_BLOCK_CHOICES "|nf4"

/* A shard of a tensor, with the place of its first element in the whole tensor, from which nf4 counts
 * blocks. */
struct dt_blocks_part {
	enum dt_block_kind kind;
	const uint8_t *data;
	int64_t bytes;	     /* dt_blocks_bytes */
	int64_t first, cols; /* element number of the shard's first element; columns of the whole tensor */
	int64_t whole;	     /* elements of the whole tensor */
};

/* The format of kind k, which is neither none nor nf4: both enums list the formats in the same order. */
static inline enum dt_format dt_blocks_format(enum dt_block_kind k)
{
	return (enum dt_format)((int)DT_FMT_Q8_0 + (int)k - (int)DT_BLOCKS_Q8_0);
}

/* Block size: rows are multiples of this many elements. */
static inline int64_t dt_blocks_size(enum dt_block_kind k)
{
	return k == DT_BLOCKS_NONE ? 1 : k == DT_BLOCKS_NF4 ? 64 : dt_format_info(dt_blocks_format(k))->block;
}

/* Offsets within an nf4 shard of n elements of a tensor of `whole`: scales, and the nibbles after them. */
static inline int64_t dt_nf4_scales_at(int64_t whole)
{
	return (257 * 4 + (whole / 64 + 255) / 256 * 4 + 63) / 64 * 64;
}
static inline int64_t dt_nf4_nibbles_at(int64_t n, int64_t whole)
{
	return dt_nf4_scales_at(whole) + (n / 64 + 63) / 64 * 64;
}
static inline int64_t dt_blocks_bytes(enum dt_block_kind k, int64_t n, int64_t whole)
{
	return k == DT_BLOCKS_NF4 ? dt_nf4_nibbles_at(n, whole) + n / 2
				  : (int64_t)dt_format_bytes(dt_blocks_format(k), n);
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
