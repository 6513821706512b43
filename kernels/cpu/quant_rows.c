/* Converts rows of x for products with packed weights: to quantised blocks, bf16 or f32. */
#include "kernels/cpu/quant.h"

/* Quantises a row of x. NaN and Inf, whose bits are the largest, make the scale NaN. */
static DT_SIMD void quantize_row(int8_t *q, struct dt_xblock *xb, const void *x, enum dt_dtype type,
				 int64_t blocks)
{
	for (int64_t b = 0; b < blocks; b++, q += DT_QK, xb++) {
		float buf[DT_QK], inverse;
		const float *v = dt_load(buf, (const char *)x + b * DT_QK * dt_dtype_size(type), type, DT_QK);
		uint32_t max = 0;
		int32_t half[2] = {0, 0};

		for (int j = 0; j < DT_QK; j++) {
			const uint32_t u = dt_magnitude(v[j]);

			max = u > max ? u : max;
		}
		dt_int8_scale(max, &xb->scale, &inverse);
		for (int j = 0; j < DT_QK; j++) {
			/* Adding 1.5 x 2^23 leaves the nearest integer in the low bits. */
			const float t = (inverse ? v[j] : 0) * inverse + 0x1.8p23f;
			uint32_t u;

			memcpy(&u, &t, 4);
			q[j] = (int8_t)(u - 0x4b400000u);
		}
		for (int j = 0; j < DT_QK / 2; j++) {
			half[0] += q[j];
			half[1] += q[j + DT_QK / 2];
		}
		xb->sum = xb->scale * (float)(half[0] + half[1]);
		xb->start8 = -128 * (half[0] + half[1]);
		xb->start4 = -8 * (half[0] + half[1]);
		xb->start6[0] = -32 * half[0];
		xb->start6[1] = -32 * half[1];
	}
}

DT_QUANT_ROW(dt_quant_row_plain)
{
	quantize_row(q, xb, x, type, blocks);
}

static DT_SIMD void round_quant_row(uint16_t *h, const void *x, enum dt_dtype type, int64_t k, int64_t blocks)
{
	float buf[DT_CHUNK];

	memset(h + k, 0, (size_t)(blocks * DT_QK - k) * 2);
	if (type == DT_BF16) {
		memcpy(h, x, (size_t)k * 2);
		return;
	}
	for (int64_t j = 0; j < k; j += DT_CHUNK) {
		const int64_t n = dt_min64(DT_CHUNK, k - j);

		dt_narrow(h + j, dt_load(buf, (const char *)x + j * dt_dtype_size(type), type, n), n);
	}
}

void dt_quant_round_row(uint16_t *h, const void *x, enum dt_dtype type, int64_t k, int64_t blocks)
{
	round_quant_row(h, x, type, k, blocks);
}

static DT_SIMD void widen_quant_row(float *f, const void *x, enum dt_dtype type, int64_t k, int64_t blocks)
{
	memset(f + k, 0, (size_t)(blocks * DT_QK - k) * 4);
	if (type == DT_F32)
		memcpy(f, x, (size_t)k * 4);
	else
		dt_load(f, x, type, k);
}

void dt_quant_widen_row(float *f, const void *x, enum dt_dtype type, int64_t k, int64_t blocks)
{
	widen_quant_row(f, x, type, k, blocks);
}
/* SPDX-License-Identifier: Apache-2.0 */
