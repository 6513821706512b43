/* Where blocks of files have their f16 scales, for tests that make up blocks. */
#ifndef DT_TESTS_KERNELS_BLOCKS_H
#define DT_TESTS_KERNELS_BLOCKS_H

#include "kernels/quant_formats.h"

/* Byte offset of the f16 scale of a block that has one, and of its f16 minimum; -1: it has none. */
static inline int block_scale_at(enum dt_format f)
{
	return f == DT_FMT_Q6_K ? 208 : f == DT_FMT_Q3_K ? 108 : f == DT_FMT_Q2_K ? 80 : 0;
}

static inline int block_minimum_at(enum dt_format f)
{
	switch (f) {
	case DT_FMT_Q4_1:
	case DT_FMT_Q5_1:
	case DT_FMT_Q4_K:
	case DT_FMT_Q5_K:
		return 2;
	case DT_FMT_Q2_K:
		return 82;
	default:
		return -1;
	}
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
