/*
 * q4_0: 32 elements in 18 bytes: f16 d, 16 bytes of codes, the first half in the low nibbles; x = d (q - 8).
 * d = x_max / -8, x_max being the number of largest magnitude.
 */
#include "kernels/format/format.h"

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 32, s += 18, y += 32) {
		float d = dt_half_at(s);

		for (int j = 0; j < 16; j++) {
			y[j] = d * (float)((s[2 + j] & 15) - 8);
			y[j + 16] = d * (float)((s[2 + j] >> 4) - 8);
		}
	}
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 18) {
		float d = dt_largest32(x) / -8.0f, inverse = d != 0 ? 1.0f / d : 0;

		dt_put_half(out, d);
		dt_nibbles_encode(x, 0, inverse, 8.5f, out + 2);
	}
}

#ifdef DT_FORMAT_HOST
static void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	dt_nibbles_put(code, s + 2);
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_u16_at(s);
	dt_nibbles(r->q, s + 2);
}

const struct dt_format_traits dt_format_q4_0 = {
	.info = {"q4_0", .gguf = 2, .file_type = 2, .block = 32, .bytes = 18, .dtype = -1},
	.panel = {256, 32, 0, 8},
	.decode = decode,
	.encode = encode,
	.levels = 16,
	.zero = 8,
	.span = -8,
	.scales = dt_half_step,
	.put = put,
	.weighted = dt_weighted32,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
