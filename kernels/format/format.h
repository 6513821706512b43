/*
 * The traits of a block format. Each line of DT_BLOCK_FORMATS has a file here, which begins with the layout
 * and ends with a struct dt_format_traits named dt_format_NAME; plain types share a file. All other code uses
 * the traits.
 *
 * Arithmetic is single precision in the order written, without contraction.
 *
 * encode and decode are also compiled for cards (cuda/round_blocks.cu includes these files): the functions
 * they call are marked DT_FORMAT_CODE; everything else is in #ifdef DT_FORMAT_HOST, for C only.
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
/*
 * DT_FORMAT_WIDE: a function whose loops over sub-blocks become vector instructions (simd.h: its name is
 * unique across files). DT_FORMAT_FOR: an inner loop of n; unrolled, or gcc makes no vectors of the loop
 * around it.
 */
#ifdef DT_FORMAT_HOST
#include "kernels/simd.h"
#define DT_FORMAT_WIDE DT_SIMD
#define DT_FORMAT_FOR  DT_FOR
#else
#define DT_FORMAT_WIDE	      DT_FORMAT_CODE
#define DT_FORMAT_FOR(n, ...) for (__VA_ARGS__)
#endif

/* 32 elements of one row of a panel (cpu/quant.h): unsigned integers and their scales. */
struct dt_panel_piece {
	uint8_t q[32];
	uint16_t d, m;	/* bits as stored in the panel, for these 32 elements or for the 256 around them */
	uint8_t sc, mn; /* scale and minimum of q4_k and q5_k; the two signed scales of q6_k */
};

struct dt_format_traits {
	struct dt_format_info info;
	struct dt_quant_shape panel; /* quants 0: no panel layout */

	/* n is a multiple of the block size; t is the format itself. recode converts exactly to info.kept. */
	void (*decode)(const struct dt_format_traits *t, const uint8_t *src, int64_t n, float *dst);
	void (*encode)(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *dst);
	void (*recode)(const uint8_t *src, int64_t n, uint8_t *dst);

	/*
	 * For block formats only. A code in [0, levels) stands for step (code - zero), or step values[code]
	 * (quant_grid.h). weighted: encodes a block of finite numbers, with squared errors weighted by w.
	 * put: writes codes into a block that has its scales. piece: extracts elements 32 j .. 32 j + 31 of a
	 * block.
	 */
	int levels, zero;
	const int8_t *values;
	float span; /* dt_weighted32: step = largest number, or range, / span */
	bool minimum;
	void (*scales)(const uint8_t *block, float step[16], float min[16]);
	void (*put)(const struct dt_format_traits *t, const uint8_t *code, uint8_t *block);
	void (*weighted)(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *block);
	void (*piece)(const struct dt_format_traits *t, struct dt_panel_piece *ret, const uint8_t *block,
		      int j);
};

const struct dt_format_traits *dt_format_traits(enum dt_format f);

/* Reads 16 bits at p (unaligned); as f16; stores x as f16 and returns the rounded value. */
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

/* Truncates to [0, top]; NaN becomes 0. */
static inline DT_FORMAT_CODE unsigned dt_code_of(float q, int top)
{
	return q >= (float)top ? (unsigned)top : q > 0 ? (unsigned)q : 0;
}

/* Packs 32 4-bit codes into 16 bytes, the first half in the low nibbles. */
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

/* Decodes such codes to 32 numbers d values[code]. */
static inline DT_FORMAT_CODE void dt_nibbles_decode(const uint8_t *p, float d, const int8_t *values, float *y)
{
	for (int j = 0; j < 16; j++) {
		y[j] = d * (float)values[p[j] & 15];
		y[j + 16] = d * (float)values[p[j] >> 4];
	}
}

/* Encodes (x - low) inverse + add, truncated to [0, 15], to 16 bytes. */
static inline DT_FORMAT_CODE void dt_nibbles_encode(const float *x, float low, float inverse, float add,
						    uint8_t *p)
{
	for (int j = 0; j < 16; j++)
		p[j] = (uint8_t)(dt_code_of((x[j] - low) * inverse + add, 15) |
				 dt_code_of((x[j + 16] - low) * inverse + add, 15) << 4);
}

/* Of 32 numbers the one of largest magnitude, with its sign. */
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

/* `scales` for blocks of 32 that begin with an f16 step and have no minimum. */
void dt_half_step(const uint8_t *block, float step[16], float min[16]);
/* `weighted` for blocks of 32 that begin with an f16 step, then the f16 minimum if they have one. */
void dt_weighted32(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *block);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
