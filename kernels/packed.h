/* What is inside quant.h's struct dt_packed, for the code of every device. */
#ifndef DT_KERNELS_PACKED_H
#define DT_KERNELS_PACKED_H

#include "kernels/int8.h"
#include "kernels/quant.h"

#define DT_PANEL 16 /* rows of a panel */
#define DT_QK	 32 /* elements of a block of x */

struct dt_packed_part {
	enum dt_format format;
	int64_t first, rows, panels;
	size_t panel_bytes;
	size_t bytes;  /* of data, as dt_panels_bytes counts them */
	uint8_t *data; /* panels as kernels/cpu/quant.h says; bf16 and f32 on a card: row by row */
	bool borrowed; /* data is another's */
};

struct dt_packed {
	int64_t k, rows, blocks; /* blocks of 32 along k, the last one padded (bf16, f32) */
	struct dt_dev *dev;	 /* whose memory the parts are in; NULL: the host's */
	int nparts;
	int spare; /* parts behind these whose memory dt_packed_rewind kept */
	bool lent; /* the parts' memory is not its own (dt_packed_lend) */
	struct dt_packed_part *part;
};

struct dt_packed_set {
	struct dt_dev *dev; /* as that of the weights */
	int n;
	const void **there;	     /* on a card: [parts][n] where the data of each lies, */
	const void **here;	     /* and the same on the host */
	const struct dt_packed *w[]; /* [n] */
};

/* A scale and a minimum of 6 bits for each block, those of 8 blocks in units of two halves. */
static inline bool dt_is_k_min(enum dt_format f)
{
	return f == DT_FMT_Q4_K || f == DT_FMT_Q5_K;
}

/* Kept as numbers rather than as blocks of integers. */
static inline bool dt_is_float(enum dt_format f)
{
	return f == DT_FMT_F32 || f == DT_FMT_BF16;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
