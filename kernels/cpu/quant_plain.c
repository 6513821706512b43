/* Portable version of quant_mul.c, one output at a time; the reference for the others. */
#include "kernels/cpu/quant.h"
#include "kernels/format/format.h"

static float bf16_at(const uint8_t *p)
{
	return dt_bf16_to_f32(dt_u16_at(p));
}

/* Factors of the integers of a block's halves, and of x's sum. s: the block's scales; d: its supers. */
static void factors_of(enum dt_format f, const uint8_t *s, const uint8_t *d, int r, float scale[2],
		       float *min)
{
	*min = 0;
	if (dt_is_k_min(f)) {
		scale[0] = dt_half_at(d + 2 * r) * (float)s[r];
		*min = -dt_half_at(d + 32 + 2 * r) * (float)s[16 + r];
	} else if (dt_panel_halves(f)) {
		scale[0] = dt_half_at(d + 2 * r) * dt_panel_factor(f) * (float)(int8_t)s[r];
		scale[1] = dt_half_at(d + 2 * r) * dt_panel_factor(f) * (float)(int8_t)s[16 + r];
	} else if (dt_panel_signed(f)) {
		scale[0] = dt_half_at(d + 2 * r) * dt_panel_factor(f) * (float)(int8_t)s[r];
	} else if (f == DT_FMT_MXFP4) {
		scale[0] = bf16_at(s + 2 * r);
	} else {
		scale[0] = dt_half_at(s + 2 * r);
		*min = dt_panel_half_min(f) ? dt_half_at(s + 32 + 2 * r) : 0;
	}
}

/* Adds a block whose halves have the integer sums acc and are joined. */
static float add_joined(float sum, const uint8_t *s, const uint8_t *d, int r, const int32_t acc[2],
			const struct dt_xblock *x)
{
	const int q = (s[r] & 15) * acc[0] + (s[16 + r] & 15) * acc[1];
	const int m = (s[r] >> 4) * (x->start6[0] / -32) + (s[16 + r] >> 4) * (x->start6[1] / -32);

	sum = fmaf(dt_half_at(d + 2 * r) * x->scale, (float)q, sum);
	return fmaf(-dt_half_at(d + 32 + 2 * r) * x->scale, (float)m, sum);
}

static float one(enum dt_format f, const uint8_t *panel, int r, const int8_t *x, const struct dt_xblock *xb,
		 int64_t blocks)
{
	const struct dt_quant_shape *shape = dt_quant_shape(f);
	const uint8_t *q = panel, *s = q + blocks * shape->quants, *u = s + blocks * shape->scales;
	const bool two = dt_panel_halves(f) || dt_panel_joined(f);
	float sum = 0;

	for (int64_t b = 0; b < blocks; b++, q += shape->quants, s += shape->scales, x += DT_QK) {
		const uint8_t *d = u + b / 8 * shape->supers;
		float scale[2], min;
		int32_t acc[2] = {0, 0};

		for (int j = 0; j < DT_QK; j++)
			acc[two ? j / 16 : 0] += dt_quant_at(f, q, r, j) * x[j];
		if (dt_panel_joined(f)) {
			sum = add_joined(sum, s, d, r, acc, &xb[b]);
			continue;
		}
		factors_of(f, s, d, r, scale, &min);
		for (int h = 0; h < (two ? 2 : 1); h++)
			sum = fmaf(scale[h] * xb[b].scale, (float)acc[h], sum);
		if (dt_panel_minimum(f))
			sum = fmaf(min, xb[b].sum, sum);
	}
	return sum;
}

DT_QUANT_MUL(dt_quant_mul_plain)
{
	const int8_t *x = xq;

	for (int64_t i = 0; i < panels * DT_PANEL; i++)
		for (int64_t r = 0; r < m; r++)
			tile[r * ld + i] =
				one(f, w + (size_t)(i / DT_PANEL) * panel_bytes, (int)(i % DT_PANEL),
				    x + r * blocks * DT_QK, xb + r * blocks, blocks);
}
/* SPDX-License-Identifier: Apache-2.0 */
