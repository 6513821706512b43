/*
 * What a format is: one file here for each line of DT_BLOCK_FORMATS, which begins with the layout and ends
 * with a struct dt_format_traits named dt_format_NAME; plain types share one. All other code asks these.
 *
 * Arithmetic is single precision in the order written, without contraction.
 *
 * A card computes encode and decode from the same text (cuda/round_blocks.cu includes these files): what they
 * call is DT_FORMAT_CODE, and what else there is stands where DT_FORMAT_HOST is defined, C alone.
 */
#ifndef DT_KERNELS_FORMAT_FORMAT_H
#define DT_KERNELS_FORMAT_FORMAT_H

#include "kernels/quant_formats.h"

#include <math.h>
#include <string.h>

#ifndef __cplusplus
#define DT_FORMAT_HOST
#endif
#ifdef __CUDACC__
#define DT_FORMAT_CODE	__device__
#define DT_FORMAT_TABLE static __device__ const
#else
#define DT_FORMAT_CODE
#define DT_FORMAT_TABLE static const
#endif

/* A row's share of 32 elements of a panel (cpu/quant.h): unsigned integers, and what scales them. */
struct dt_panel_piece {
	uint8_t q[32];
	uint16_t d, m;	/* 16 bits as the panel has them: of these 32, or of the 256 around them */
	uint8_t sc, mn; /* scale and minimum of q4_k and q5_k; the two signed scales of q6_k */
};

struct dt_format_traits {
	struct dt_format_info info;
	struct dt_quant_shape panel; /* quants 0: no panels of its own */

	/* n elements, whole blocks; t: the format itself. recode: the same numbers in info.kept. */
	void (*decode)(const struct dt_format_traits *t, const uint8_t *src, int64_t n, float *dst);
	void (*encode)(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *dst);
	void (*recode)(const uint8_t *src, int64_t n, uint8_t *dst);

	/*
	 * Blocks alone. A code in [0, levels) stands for code - zero, or for values[code], of a step
	 * (quant_grid.h). weighted: a block of finite numbers whose error counts by w. put: codes beside the
	 * scales that are there. piece: elements 32 j .. of a block.
	 */
	int levels, zero;
	const int8_t *values;
	float span; /* dt_weighted32: the largest number, or the range, by this is a step */
	bool minimum;
	void (*scales)(const uint8_t *block, float step[16], float min[16]);
	void (*put)(const struct dt_format_traits *t, const uint8_t *code, uint8_t *block);
	void (*weighted)(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *block);
	void (*piece)(const struct dt_format_traits *t, struct dt_panel_piece *ret, const uint8_t *block,
		      int j);
};

const struct dt_format_traits *dt_format_traits(enum dt_format f);

/* 16 bits at p, which needs no alignment; as f16; x as f16 there, and what became of it. */
static inline DT_FORMAT_CODE uint16_t dt_u16_at(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, 2);
	return h;
}

static inline DT_FORMAT_CODE float dt_half_at(const uint8_t *p)
{
	return dt_f16_to_f32(dt_u16_at(p));
}

static inline DT_FORMAT_CODE float dt_put_half(uint8_t *p, float x)
{
	const uint16_t h = dt_f32_to_f16(x);

	memcpy(p, &h, sizeof(h));
	return dt_f16_to_f32(h);
}

/* Rounded down, in [0, top]; NaN becomes 0. */
static inline DT_FORMAT_CODE unsigned dt_code_of(float q, int top)
{
	return q >= (float)top ? (unsigned)top : q > 0 ? (unsigned)q : 0;
}

/* 32 codes of 4 bits in 16 bytes: the first half in the low bits. */
static inline DT_FORMAT_CODE void dt_nibbles_put(const uint8_t *code, uint8_t *p)
{
	for (int j = 0; j < 16; j++)
		p[j] = (uint8_t)((code[j] & 15) | (code[j + 16] & 15) << 4);
}

static inline void dt_nibbles(uint8_t *code, const uint8_t *p)
{
	for (int j = 0; j < 16; j++) {
		code[j] = p[j] & 15;
		code[j + 16] = p[j] >> 4;
	}
}

/* 32 numbers d values[code] of such codes. */
static inline DT_FORMAT_CODE void dt_nibbles_decode(const uint8_t *p, float d, const int8_t *values, float *y)
{
	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)values[p[j] & 15];
		y[j + 16] = d * (float)values[p[j] >> 4];
	}
}

/* Codes of (x - low) inverse + add, rounded down, to 16 bytes. */
static inline DT_FORMAT_CODE void dt_nibbles_encode(const float *x, float low, float inverse, float add,
						    uint8_t *p)
{
	for (int j = 0; j < 16; j++)
		p[j] = (uint8_t)(dt_code_of((x[j] - low) * inverse + add, 15) |
				 dt_code_of((x[j + 16] - low) * inverse + add, 15) << 4);
}

/* Of 32: the number of the largest magnitude. */
static inline DT_FORMAT_CODE float dt_largest32(const float *x)
{
	float max = 0, ret = 0;

	for (int j = 0; j < 32; j++)
		if (fabsf(x[j]) > max) {
			max = fabsf(x[j]);
			ret = x[j];
		}
	return ret;
}

/* scales of a block of 32 that begins with its f16 step, and has no minimum. */
void dt_half_step(const uint8_t *block, float step[16], float min[16]);
/* weighted of blocks of 32 that begin with an f16 step, then the f16 minimum if they have one. */
void dt_weighted32(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *block);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
