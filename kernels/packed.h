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

/*
 * How a format's panels are stored (cpu/quant.h) and multiplied. With a constant f the results are constants,
 * in device code too.
 */
#ifdef __cplusplus
#define DT_PANEL_FACT static inline DT_HOST_DEVICE constexpr
#else
#define DT_PANEL_FACT static inline
#endif

/* Whether integers are +/- 8, 25 or 43, stored as codes. */
DT_PANEL_FACT bool dt_panel_iq2(int f)
{
	return f == DT_FMT_IQ2_S || f == DT_FMT_IQ2_XS || f == DT_FMT_IQ2_XXS;
}

/* Bits per stored integer: whole bytes, or planes of 4, 2 and 1 bits for the binary digits of this number. */
DT_PANEL_FACT int dt_panel_bits(int f)
{
	return f == DT_FMT_Q8_0			      ? 8
	       : f == DT_FMT_Q6_K		      ? 6
	       : f == DT_FMT_Q5_K || f == DT_FMT_Q5_1 ? 5
	       : f == DT_FMT_Q3_K || dt_panel_iq2(f)  ? 3
	       : f == DT_FMT_Q2_K		      ? 2
						      : 4;
}

/* Whether stored integers are codes, which index the format's table of values (format/format.h). */
DT_PANEL_FACT bool dt_panel_table(int f)
{
	return f == DT_FMT_MXFP4 || f == DT_FMT_IQ4_XS || f == DT_FMT_IQ3_S || f == DT_FMT_IQ3_XXS ||
	       dt_panel_iq2(f);
}

/* Whether weights take all of a signed byte (offset 128). */
DT_PANEL_FACT bool dt_panel_wide(int f)
{
	return f == DT_FMT_Q8_0 || (dt_panel_table(f) && f != DT_FMT_MXFP4);
}

/* Whether blocks have an integer scale and minimum each, with two f16 scales for every 8 blocks (256
 * elements). */
DT_PANEL_FACT bool dt_is_k_min(int f)
{
	return f == DT_FMT_Q4_K || f == DT_FMT_Q5_K;
}

/* Whether halves of blocks have a signed integer scale each, with one f16 scale for every 8 blocks. */
DT_PANEL_FACT bool dt_panel_halves(int f)
{
	return f == DT_FMT_Q6_K || f == DT_FMT_Q3_K || f == DT_FMT_IQ2_S || f == DT_FMT_IQ2_XS;
}

/* Whether halves of blocks have a 4-bit scale and a 4-bit minimum each, with two f16 scales for every 8
 * blocks. */
DT_PANEL_FACT bool dt_panel_joined(int f)
{
	return f == DT_FMT_Q2_K;
}

/* Whether blocks have one signed integer scale each, with one f16 scale for every 8 blocks. */
DT_PANEL_FACT bool dt_panel_signed(int f)
{
	return f == DT_FMT_IQ4_XS || f == DT_FMT_IQ3_S || f == DT_FMT_IQ3_XXS || f == DT_FMT_IQ2_XXS;
}

/* What the f16 scale of 8 blocks is multiplied by. */
DT_PANEL_FACT float dt_panel_factor(int f)
{
	return dt_panel_iq2(f) ? 0.125f : f == DT_FMT_IQ3_XXS ? 0.25f : 1.0f;
}

/* Whether every 8 blocks have an f16 scale. */
DT_PANEL_FACT bool dt_panel_supers(int f)
{
	return dt_is_k_min(f) || dt_panel_halves(f) || dt_panel_joined(f) || dt_panel_signed(f);
}

/* Whether blocks have an f16 scale and an f16 minimum. */
DT_PANEL_FACT bool dt_panel_half_min(int f)
{
	return f == DT_FMT_Q4_1 || f == DT_FMT_Q5_1;
}

/* Whether blocks have a minimum in the scale of the block's numbers. */
DT_PANEL_FACT bool dt_panel_minimum(int f)
{
	return dt_panel_half_min(f) || dt_is_k_min(f);
}

/* Whether weights are kept as floats, not as blocks of integers. */
static inline bool dt_is_float(enum dt_format f)
{
	return f == DT_FMT_F32 || f == DT_FMT_BF16;
}

#endif
/* SPDX-License-Identifier: Apache-2.0 */
