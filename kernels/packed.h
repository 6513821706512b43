/* The contents of struct dt_packed (quant.h), for the code of every device. */
#ifndef DT_KERNELS_PACKED_H
#define DT_KERNELS_PACKED_H

#include "kernels/int8.h"
#include "kernels/quant.h"

#define DT_PANEL 16 /* rows of a panel */
#define DT_QK	 32 /* elements in a quantised block of x */

struct dt_packed_part {
	enum dt_format format;
	int64_t first, rows, panels;
	size_t panel_bytes;
	size_t bytes;  /* of data, by dt_panels_bytes */
	uint8_t *data; /* panels (kernels/cpu/quant.h); bf16 and f32 on a card: row-major */
	bool borrowed; /* data belongs to another dt_packed */
};

struct dt_packed {
	int64_t k, rows, blocks; /* blocks of 32 along k, the last one padded (bf16, f32) */
	struct dt_dev *dev;	 /* the device that owns the parts' memory; NULL: the host */
	int nparts;
	int spare; /* entries after these whose memory dt_packed_rewind kept */
	bool lent; /* the parts point into memory of the caller (dt_packed_lend) */
	struct dt_packed_part *part;
	const struct dt_packed *then; /* used next (dt_packed_follow); NULL: unknown */
};

struct dt_packed_set {
	struct dt_dev *dev; /* as that of the weights */
	int n;
	const void **there;	     /* on a card: [parts][n] addresses of the data, in device memory */
	const void **here;	     /* host copy of there */
	const struct dt_packed *w[]; /* [n] */
};

/* Whether blocks have a 6-bit scale and minimum each, with two f16 scales for every 8 blocks (256
 * elements). */
static inline bool dt_is_k_min(enum dt_format f)
{
	return f == DT_FMT_Q4_K || f == DT_FMT_Q5_K;
}

/* Whether weights are kept as floats, not as blocks of integers. */
static inline bool dt_is_float(enum dt_format f)
{
	return f == DT_FMT_F32 || f == DT_FMT_BF16;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
