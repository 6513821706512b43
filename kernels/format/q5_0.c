/*
 * q5_0: 32 elements in 22 bytes: f16 d, 32 fifth bits, codes in q4_0's order; x = d (q - 16). d = x_max /
 * -16. Products convert it exactly to q8_0.
 */
#include "kernels/format/format.h"

/* Integers of a block, -16 to 15. */
static DT_FORMAT_CODE void values(const uint8_t *s, int8_t q[32])
{
	uint32_t high;

	memcpy(&high, s + 2, 4);
	for (int j = 0; j < 16; j++) {
		q[j] = (int8_t)(((s[6 + j] & 15) | (high >> j & 1) << 4) - 16);
		q[j + 16] = (int8_t)((s[6 + j] >> 4 | (high >> (j + 16) & 1) << 4) - 16);
	}
}

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 32, s += 22, y += 32) {
		float d = dt_half_at(s);
		int8_t q[32];

		values(s, q);
		for (int j = 0; j < 32; j++)
			y[j] = d * (float)q[j];
	}
}

#ifdef DT_FORMAT_HOST
static void recode(const uint8_t *s, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, s += 22, out += 34) {
		memmove(out, s, 2);
		values(s, (int8_t *)out + 2);
	}
}
#endif

static DT_FORMAT_CODE void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	uint32_t high = 0;

	for (int j = 0; j < 32; j++)
		high |= (uint32_t)(code[j] >> 4) << j;
	memcpy(s + 2, &high, 4);
	dt_nibbles_put(code, s + 6);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 22) {
		float d = dt_largest32(x) / -16.0f, inverse = d != 0 ? 1.0f / d : 0;
		uint8_t code[32];

		dt_put_half(out, d);
		for (int j = 0; j < 32; j++)
			code[j] = (uint8_t)dt_code_of(x[j] * inverse + 16.5f, 31);
		put(t, code, out);
	}
}

#ifdef DT_FORMAT_HOST
const struct dt_format_traits dt_format_q5_0 = {
	.info = {"q5_0", .gguf = 6, .file_type = 8, .block = 32, .bytes = 22, .dtype = -1,
		 .kept = DT_FMT_Q8_0},
	.decode = decode,
	.encode = encode,
	.recode = recode,
	.levels = 32,
	.zero = 16,
	.span = -16,
	.scales = dt_half_step,
	.put = put,
	.weighted = dt_weighted32,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
