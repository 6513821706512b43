/*
 * q5_1: 32 elements in 24 bytes: f16 d, f16 m, 32 fifth bits, codes in q4_0's order; x = d q + m, spanning
 * minimum to maximum.
 */
#include "kernels/format/format.h"

/* Code of element j. */
static DT_FORMAT_CODE inline int code_of(const uint8_t *s, int j)
{
	return (s[8 + j % 16] >> j / 16 * 4 & 15) | (s[4 + j / 8] >> j % 8 & 1) << 4;
}

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 32, s += 24, y += 32) {
		const float d = dt_half_at(s), m = dt_half_at(s + 2);

		for (int j = 0; j < 32; j++)
			y[j] = d * (float)code_of(s, j) + m;
	}
}

static DT_FORMAT_CODE void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	memset(s + 4, 0, 4);
	for (int j = 0; j < 32; j++)
		s[4 + j / 8] |= (uint8_t)(code[j] >> 4 << j % 8);
	dt_nibbles_put(code, s + 8);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 24) {
		float low = x[0], high = x[0], d, inverse;
		uint8_t code[32];

		for (int j = 1; j < 32; j++) {
			low = x[j] < low ? x[j] : low;
			high = x[j] > high ? x[j] : high;
		}
		d = (high - low) / 31.0f;
		inverse = d != 0 ? 1.0f / d : 0;
		dt_put_half(out, d);
		dt_put_half(out + 2, low);
		for (int j = 0; j < 32; j++)
			code[j] = (uint8_t)dt_code_of((x[j] - low) * inverse + 0.5f, 31);
		put(t, code, out);
	}
}

#ifdef DT_FORMAT_HOST
static void scales(const uint8_t *s, float step[16], float min[16])
{
	dt_half_step(s, step, min);
	min[0] = min[1] = -dt_half_at(s + 2);
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_u16_at(s);
	r->m = dt_u16_at(s + 2);
	for (int i = 0; i < 32; i++)
		r->q[i] = (uint8_t)code_of(s, i);
}

const struct dt_format_traits dt_format_q5_1 = {
	.info = {"q5_1", .gguf = 7, .file_type = 9, .block = 32, .bytes = 24, .dtype = -1},
	.panel = {320, 64, 0, 0},
	.decode = decode,
	.encode = encode,
	.levels = 32,
	.span = 31,
	.minimum = true,
	.scales = scales,
	.put = put,
	.weighted = dt_weighted32,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
