/* Numbers to blocks: the formats that rounding defines. */
#include "kernels/quant_formats.h"
#include "kernels/quant_search.h"

#include <math.h>

/* Half away from zero; NaN, which no integer is, becomes 0. */
static int8_t round_i8(float x)
{
	float a = fabsf(x), whole = floorf(a);
	float r = whole +
		  floorf(2 * (a - whole)); /* both exact: a + 0.5 would round the last below a half up */

	if (!(r <= 127))
		r = r > 127 ? 127 : 0;
	return (int8_t)(x < 0 ? -r : r);
}

static void to_q8_0(const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 34) {
		float max = 0, d, inverse;

		for (int j = 0; j < 32; j++)
			max = fabsf(x[j]) > max ? fabsf(x[j]) : max;
		d = max / 127.0f;
		inverse = d != 0 ? 1.0f / d : 0;
		dt_put_half(out, d);
		for (int j = 0; j < 32; j++)
			out[2 + j] = (uint8_t)round_i8(x[j] * inverse);
	}
}

/* Rounded down, in [0, top]; NaN becomes 0. */
static unsigned code_of(float q, int top)
{
	return q >= (float)top ? (unsigned)top : q > 0 ? (unsigned)q : 0;
}

/* The number of the largest magnitude of 32. */
static float largest(const float *x)
{
	float max = 0, ret = 0;

	for (int j = 0; j < 32; j++)
		if (fabsf(x[j]) > max) {
			max = fabsf(x[j]);
			ret = x[j];
		}
	return ret;
}

static void to_q4_0(const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 18) {
		float d = largest(x) / -8.0f, inverse = d != 0 ? 1.0f / d : 0;

		dt_put_half(out, d);
		for (int j = 0; j < 16; j++)
			out[2 + j] = (uint8_t)(code_of(x[j] * inverse + 8.5f, 15) |
					       code_of(x[j + 16] * inverse + 8.5f, 15) << 4);
	}
}

static void to_q4_1(const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 20) {
		float low = x[0], high = x[0], d, inverse;

		for (int j = 1; j < 32; j++) {
			low = x[j] < low ? x[j] : low;
			high = x[j] > high ? x[j] : high;
		}
		d = (high - low) / 15.0f;
		inverse = d != 0 ? 1.0f / d : 0;
		dt_put_half(out, d);
		dt_put_half(out + 2, low);
		for (int j = 0; j < 16; j++)
			out[4 + j] = (uint8_t)(code_of((x[j] - low) * inverse + 0.5f, 15) |
					       code_of((x[j + 16] - low) * inverse + 0.5f, 15) << 4);
	}
}

static void to_q5_0(const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 22) {
		float d = largest(x) / -16.0f, inverse = d != 0 ? 1.0f / d : 0;
		uint32_t high = 0;

		dt_put_half(out, d);
		for (int j = 0; j < 16; j++) {
			unsigned a = code_of(x[j] * inverse + 16.5f, 31),
				 b = code_of(x[j + 16] * inverse + 16.5f, 31);

			out[6 + j] = (uint8_t)((a & 15) | (b & 15) << 4);
			high |= a >> 4 << j | b >> 4 << (j + 16);
		}
		memcpy(out + 2, &high, 4);
	}
}

/* Of the numbers nearest to q, which is twice what a code stands for, the first code. */
static unsigned e2m1_of(float q)
{
	unsigned ret = 0;

	for (unsigned c = 1; c < 16; c++)
		if (fabsf((float)dt_e2m1_twice[c] - q) < fabsf((float)dt_e2m1_twice[ret] - q))
			ret = c;
	return ret;
}

static void to_mxfp4(const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 17) {
		float max = 0, d;
		int e = 0;

		for (int j = 0; j < 32; j++)
			max = fabsf(x[j]) > max && isfinite(x[j]) ? fabsf(x[j]) : max;
		if (max > 0) {
			frexpf(max, &e); /* max = f 2^e, 0.5 <= f < 1 */
			e += 127 - 1 - 2;
		}
		out[0] = (uint8_t)(e < 0 ? 0 : e);
		d = dt_mxfp4_half_scale(out[0]);
		for (int j = 0; j < 16; j++)
			out[1 + j] = (uint8_t)(e2m1_of(x[j] / d) | e2m1_of(x[j + 16] / d) << 4);
	}
}

void dt_quantize(enum dt_format f, const float *src, int64_t n, void *dst)
{
	uint16_t h;

	switch (f) {
	case DT_FMT_F32:
		memcpy(dst, src, (size_t)n * 4);
		break;
	case DT_FMT_Q8_0:
		to_q8_0(src, n, dst);
		break;
	case DT_FMT_Q4_0:
		to_q4_0(src, n, dst);
		break;
	case DT_FMT_Q4_1:
		to_q4_1(src, n, dst);
		break;
	case DT_FMT_Q5_0:
		to_q5_0(src, n, dst);
		break;
	case DT_FMT_Q4_K:
		dt_quantize_q4_k(src, n, NULL, dst);
		break;
	case DT_FMT_Q5_K:
		dt_quantize_q5_k(src, n, NULL, dst);
		break;
	case DT_FMT_MXFP4:
		to_mxfp4(src, n, dst);
		break;
	case DT_FMT_Q6_K:
		dt_quantize_q6_k(src, n, NULL, dst);
		break;
	case DT_FMT_F16:
		for (int64_t i = 0; i < n; i++)
			dt_put_half((uint8_t *)dst + 2 * i, src[i]);
		break;
	case DT_FMT_BF16:
		for (int64_t i = 0; i < n; i++) {
			h = dt_f32_to_bf16(src[i]);
			memcpy((char *)dst + 2 * i, &h, 2);
		}
		break;
	case DT_FMT_N:
		break;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
