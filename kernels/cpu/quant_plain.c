/* Portable version of quant_mul.c, one output at a time; the reference for the others. */
#include "kernels/cpu/quant.h"
#include "kernels/format/format.h"

static float bf16_at(const uint8_t *p)
{
	return dt_bf16_to_f32(dt_u16_at(p));
}

static float one(enum dt_format f, const uint8_t *panel, int r, const int8_t *x, const struct dt_xblock *xb,
		 int64_t blocks)
{
	const struct dt_quant_shape *shape = dt_quant_shape(f);
	const uint8_t *q = panel, *s = q + blocks * shape->quants, *u = s + blocks * shape->scales;
	const bool minimum = f == DT_FMT_Q4_1 || dt_is_k_min(f);
	float sum = 0;

	for (int64_t b = 0; b < blocks; b++, q += shape->quants, s += shape->scales, x += DT_QK) {
		const uint8_t *d = u + b / 8 * shape->supers + 2 * r;
		float scale[2], min = 0;
		int32_t acc[2] = {0, 0};

		if (dt_is_k_min(f)) {
			scale[0] = dt_half_at(d) * (float)s[r];
			min = -dt_half_at(d + 32) * (float)s[16 + r];
		} else if (f == DT_FMT_Q6_K) {
			scale[0] = dt_half_at(d) * (float)(int8_t)s[r];
			scale[1] = dt_half_at(d) * (float)(int8_t)s[16 + r];
		} else if (f == DT_FMT_MXFP4) {
			scale[0] = bf16_at(s + 2 * r);
		} else {
			scale[0] = dt_half_at(s + 2 * r);
			min = f == DT_FMT_Q4_1 ? dt_half_at(s + 32 + 2 * r) : 0;
		}
		for (int j = 0; j < DT_QK; j++)
			acc[f == DT_FMT_Q6_K ? j / 16 : 0] += dt_quant_at(f, q, r, j) * x[j];
		for (int h = 0; h < (f == DT_FMT_Q6_K ? 2 : 1); h++)
			sum = fmaf(scale[h] * xb[b].scale, (float)acc[h], sum);
		if (minimum)
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
