/*
 * A matrix [out, in] in 4 bits as bitsandbytes stores it, all along the flattened matrix: nibbles, the first
 * of a byte in its upper half, that a table of 16 values says (nf4 or fp4), times the scale of their block.
 *
 *   X.weight            U8 [out in / 2, 1]
 *   X.weight.absmax     F32 [blocks] scales; or, double quantisation, U8 [blocks] codes of a table of 256
 *                       values, .nested_quant_map F32 [256], times .nested_absmax F32 of their group, plus
 *                       nested_offset
 *   X.weight.quant_map  F32 [16]
 *   X.weight.quant_state.bitsandbytes__nf4 (or __fp4)   U8, JSON: quant_type, blocksize, dtype, shape,
 *                       nested_blocksize, nested_dtype, nested_offset
 *
 * x = quant_map[nibble] scale in f32, rounded once to dtype: what bitsandbytes makes of it, to the bit.
 */
#ifndef DT_CKPT_SOURCE_BNB_H
#define DT_CKPT_SOURCE_BNB_H

#include "ckpt/source_internal.h"

#define SRC_BNB_PARTS 5 /* tensors beside X.weight */

struct src_bnb {
	int64_t rows, cols, block, group; /* group: scales of one nested scale; 0: scales are as they are */
	enum dt_format format;		  /* of dtype */
	float map[16], code[256], offset;
	const uint8_t *q, *scales, *groups;
};

/* Whether q, named X.weight with base letters of X, is such a matrix. */
bool src_bnb_is(const struct dt_source *s, const struct src_stored *q, size_t base);
/* -EBADMSG, -ENOTSUP where its parts do not fit together; used gets them. */
int src_bnb_take(const struct dt_source *s, const struct src_stored *q, size_t base, struct src_bnb *ret,
		 struct src_stored *used[SRC_BNB_PARTS], struct dt_err *err);
/* All values, as format. */
void src_bnb_fill(const struct src_bnb *b, uint8_t *data);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
