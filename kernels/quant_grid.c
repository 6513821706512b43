/* Scales and integers of blocks, apart; scales by weighted least squares. */
#include "kernels/quant_grid.h"

#include "kernels/quant_search.h"

#include <math.h>

#define TRIES 9	     /* scales tried on either side of the plain one */
#define LEAST 1e-30f /* what is smaller is 0: its inverse is no number */

static float half_at(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, 2);
	return dt_f16_to_f32(h);
}

static float half_put(uint8_t *p, float x)
{
	uint16_t h = dt_f32_to_f16(x);

	memcpy(p, &h, 2);
	return dt_f16_to_f32(h);
}

static void shape_of(enum dt_format f, struct dt_grid *g)
{
	g->block = dt_format_info(f)->block;
	g->levels = f == DT_FMT_Q8_0			   ? 255
		    : f == DT_FMT_Q6_K			   ? 64
		    : f == DT_FMT_Q5_0 || f == DT_FMT_Q5_K ? 32
							   : 16;
	g->e2m1 = f == DT_FMT_MXFP4;
	g->zero = f == DT_FMT_Q8_0   ? 127
		  : f == DT_FMT_Q6_K ? 32
		  : f == DT_FMT_Q5_0 ? 16
		  : f == DT_FMT_Q4_0 ? 8
				     : 0;
}

bool dt_grid_of(enum dt_format f, const void *block, struct dt_grid *g)
{
	const uint8_t *s = block;
	float min = 0;

	if (dt_format_info(f)->dtype >= 0)
		return false;
	shape_of(f, g);
	if (f == DT_FMT_Q4_K || f == DT_FMT_Q5_K) {
		dt_q4_k_scales(s, g->step, g->min);
		return true;
	}
	if (f == DT_FMT_Q6_K) {
		for (int j = 0; j < 16; j++) {
			g->step[j] = half_at(s + 208) * (float)(int8_t)s[192 + j];
			g->min[j] = 0;
		}
		return true;
	}
	if (f == DT_FMT_Q4_1)
		min = -half_at(s + 2);
	for (int j = 0; j < 2; j++) {
		g->step[j] = g->e2m1 ? dt_mxfp4_half_scale(s[0]) : half_at(s);
		g->min[j] = min;
	}
	return true;
}

int dt_grid_nearest(const struct dt_grid *g, int i, float x)
{
	float step = g->step[i / 16], q = fabsf(step) > LEAST ? (x + g->min[i / 16]) / step : 0;

	if (g->e2m1) {
		int ret = 0;

		for (int c = 1; c < 16; c++)
			if (fabsf((float)dt_e2m1_twice[c] - q) < fabsf((float)dt_e2m1_twice[ret] - q))
				ret = c;
		return ret;
	}
	q = rintf(q) + (float)g->zero;
	return q > 0 ? q < (float)(g->levels - 1) ? (int)q : g->levels - 1 : 0; /* NaN: 0 */
}

float dt_grid_value(const struct dt_grid *g, int i, int code)
{
	return g->step[i / 16] * (float)(g->e2m1 ? dt_e2m1_twice[code] : code - g->zero) - g->min[i / 16];
}

static void put_q6_k(const uint8_t *code, uint8_t *s)
{
	memset(s, 0, 192);
	for (int at = 0; at < 256; at++) {
		int run = at / 32, l = at % 32;

		s[run / 4 * 64 + run % 2 * 32 + l] |= (uint8_t)((code[at] & 15) << run % 4 / 2 * 4);
		s[128 + run / 4 * 32 + l] |= (uint8_t)(code[at] >> 4 << run % 4 * 2);
	}
}

static void put_q5_0(const uint8_t *code, uint8_t *s)
{
	uint32_t high = 0;

	for (int j = 0; j < 32; j++)
		high |= (uint32_t)(code[j] >> 4) << j;
	memcpy(s + 2, &high, 4);
	for (int j = 0; j < 16; j++)
		s[6 + j] = (uint8_t)((code[j] & 15) | (code[j + 16] & 15) << 4);
}

void dt_grid_put(enum dt_format f, const uint8_t *code, void *block)
{
	uint8_t *s = block;

	switch (f) {
	case DT_FMT_Q8_0:
		for (int j = 0; j < 32; j++)
			s[2 + j] = (uint8_t)(code[j] - 127);
		break;
	case DT_FMT_Q5_0:
		put_q5_0(code, s);
		break;
	case DT_FMT_MXFP4:
	case DT_FMT_Q4_0:
	case DT_FMT_Q4_1:
		for (int j = 0; j < 16; j++)
			s[(f == DT_FMT_MXFP4  ? 1
			   : f == DT_FMT_Q4_0 ? 2
					      : 4) +
			  j] = (uint8_t)(code[j] | code[j + 16] << 4);
		break;
	case DT_FMT_Q4_K:
		for (int j = 0; j < 128; j++)
			s[16 + j] =
				(uint8_t)(code[j / 32 * 64 + j % 32] | code[j / 32 * 64 + 32 + j % 32] << 4);
		break;
	case DT_FMT_Q5_K:
		memset(s + 16, 0, 32);
		for (int j = 0; j < 256; j++)
			s[16 + j % 32] |= (uint8_t)(code[j] >> 4 << j / 32);
		for (int j = 0; j < 128; j++)
			s[48 + j] = (uint8_t)((code[j / 32 * 64 + j % 32] & 15) |
					      (code[j / 32 * 64 + 32 + j % 32] & 15) << 4);
		break;
	case DT_FMT_Q6_K:
		put_q6_k(code, s);
		break;
	default:
		break;
	}
}

/* ---- weighted scales of blocks of 32 ---- */

/* The weighted error of 32 numbers; code: the nearest ones. */
static float error_of(const struct dt_grid *g, const float *x, const float *w, uint8_t *code)
{
	float sum = 0;

	for (int i = 0; i < 32; i++) {
		float e;

		code[i] = (uint8_t)dt_grid_nearest(g, i, x[i]);
		e = dt_grid_value(g, i, code[i]) - x[i];
		sum += w[i] * e * e;
	}
	return sum;
}

/* A scale and a minimum as the block can hold them. */
static void set(enum dt_format f, float step, float min, struct dt_grid *g)
{
	uint8_t half[2];

	for (int j = 0; j < 2; j++) {
		g->step[j] = half_put(half, step);
		g->min[j] = f == DT_FMT_Q4_1 ? -half_put(half, -min) : 0;
	}
}

/* The scale and the minimum that fit these codes best. false: none does. */
static bool fit(enum dt_format f, const struct dt_grid *g, const float *x, const float *w,
		const uint8_t *code, float *step, float *min)
{
	float sw = 0, sq = 0, sqq = 0, sx = 0, sxq = 0, det;

	for (int i = 0; i < 32; i++) {
		float q = (float)(code[i] - g->zero);

		sw += w[i];
		sq += w[i] * q;
		sqq += w[i] * q * q;
		sx += w[i] * x[i];
		sxq += w[i] * x[i] * q;
	}
	if (f != DT_FMT_Q4_1) {
		*step = sqq > 0 ? sxq / sqq : 0;
		return sqq > 0;
	}
	det = sw * sqq - sq * sq;
	if (!(det > 0))
		return false;
	*step = (sw * sxq - sx * sq) / det;
	*min = (sq * sxq - sqq * sx) / det;
	return true;
}

static void weighted32(enum dt_format f, const float *x, const float *w, uint8_t *out)
{
	float low = x[0], high = x[0], most = x[0], best = INFINITY, step, min = 0;
	uint8_t code[32], kept[32] = {0};
	struct dt_grid g, found = {0};

	shape_of(f, &g);
	for (int i = 1; i < 32; i++) {
		low = x[i] < low ? x[i] : low;
		high = x[i] > high ? x[i] : high;
		most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
	}
	for (int t = -TRIES; t <= TRIES; t++) {
		float wide = f == DT_FMT_Q4_1	? 15 + 0.1f * (float)t
			     : f == DT_FMT_Q8_0 ? 127 + 0.1f * (float)t
						: -(float)g.zero - 0.1f * (float)t;

		for (int round = 0; round < 2; round++) { /* as it is, and fitted to its codes */
			float e;

			if (round == 0) {
				step = f == DT_FMT_Q4_1 ? (high - low) / wide : most / wide;
				min = -low;
			} else if (!fit(f, &g, x, w, code, &step, &min)) {
				break;
			}
			set(f, step, min, &g);
			e = error_of(&g, x, w, code);
			if (e < best) {
				best = e;
				found = g;
				memcpy(kept, code, sizeof(kept));
			}
		}
	}
	half_put(out, found.step[0]);
	if (f == DT_FMT_Q4_1)
		half_put(out + 2, -found.min[0]);
	dt_grid_put(f, kept, out);
}

/* The power of two that leaves least: the one that clips its largest numbers, or the next. */
static void weighted_mxfp4(const float *x, const float *w, uint8_t *out)
{
	uint8_t code[32], first;
	float best = INFINITY;
	struct dt_grid g;

	dt_quantize(DT_FMT_MXFP4, x, 32, out);
	first = out[0];
	for (int e = first > 0 ? first - 1 : 0; e <= first + 1 && e < 255; e++) {
		uint8_t scale = (uint8_t)e;
		float error;

		dt_grid_of(DT_FMT_MXFP4, &scale, &g);
		error = error_of(&g, x, w, code);
		if (error < best) {
			best = error;
			out[0] = scale;
			dt_grid_put(DT_FMT_MXFP4, code, out);
		}
	}
}

void dt_quantize_weighted(enum dt_format f, const float *src, int64_t n, const float *importance, void *dst)
{
	const struct dt_format_info *info = dt_format_info(f);
	uint8_t *out = dst;

	if (info->dtype >= 0) {
		dt_quantize(f, src, n, dst);
		return;
	}
	for (; n > 0; n -= info->block, src += info->block, importance += info->block, out += info->bytes) {
		float x[256];

		for (int i = 0; i < info->block; i++)
			x[i] = isfinite(src[i]) ? src[i] : 0;
		if (f == DT_FMT_Q4_K)
			dt_quantize_q4_k(x, 256, importance, out);
		else if (f == DT_FMT_Q5_K)
			dt_quantize_q5_k(x, 256, importance, out);
		else if (f == DT_FMT_Q6_K)
			dt_quantize_q6_k(x, 256, importance, out);
		else if (f == DT_FMT_MXFP4)
			weighted_mxfp4(x, importance, out);
		else
			weighted32(f, x, importance, out);
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
