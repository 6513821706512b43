/*
 * q4_1: 32 elements in 20 bytes: f16 d, f16 m, codes in q4_0's order; x = d q + m, spanning minimum to
 * maximum.
 */
#include "kernels/format/format.h"

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 32, s += 20, y += 32) {
		float d = dt_half_at(s), m = dt_half_at(s + 2);

		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)(s[4 + j] & 15) + m;
			y[j + 16] = d * (float)(s[4 + j] >> 4) + m;
		}
	}
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
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
		dt_nibbles_encode(x, low, inverse, 0.5f, out + 4);
	}
}

#ifdef DT_FORMAT_HOST
static void scales(const uint8_t *s, float step[16], float min[16])
{
	dt_half_step(s, step, min);
	min[0] = min[1] = -dt_half_at(s + 2);
}

static void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	dt_nibbles_put(code, s + 4);
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_u16_at(s);
	r->m = dt_u16_at(s + 2);
	dt_nibbles(r->q, s + 4);
}

const struct dt_format_traits dt_format_q4_1 = {
	.info = {"q4_1", .gguf = 3, .file_type = 3, .block = 32, .bytes = 20, .dtype = -1},
	.panel = {256, 64, 0, 0},
	.decode = decode,
	.encode = encode,
	.levels = 16,
	.span = 15,
	.minimum = true,
	.scales = scales,
	.put = put,
	.weighted = dt_weighted32,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
