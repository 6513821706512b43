/*
 * q8_0: 32 elements in 34 bytes: f16 d, i8 q[32]; x = d q. Rounding is half away from zero, d = max |x| /
 * 127.
 */
#include "kernels/format/format.h"

#include <math.h>

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 32, s += 34, y += 32) {
		float d = dt_half_at(s);

		for (int j = 0; j < 32; j++)
			y[j] = d * (float)(int8_t)s[2 + j];
	}
}

/* Rounds half away from zero; NaN becomes 0. */
static inline DT_FORMAT_CODE int8_t round_i8(float x)
{
	float a = fabsf(x), whole = floorf(a);
	float r = whole + floorf(2 * (a - whole)); /* both exact; a + 0.5 would round 0.5 - 2^-25 up */

	r = r > 127 ? 127 : r >= 0 ? r : 0; /* NaN: 0 */
	return (int8_t)(x < 0 ? -r : r);
}

static DT_FORMAT_WIDE void q8_0_block(const float *x, uint8_t *out)
{
	float max = 0, d, inverse;

	for (int j = 0; j < 32; j++)
		max = fabsf(x[j]) > max ? fabsf(x[j]) : max;
	d = max / 127.0f;
	inverse = d != 0 ? 1.0f / d : 0;
	dt_put_half(out, d);
	for (int j = 0; j < 32; j++)
		out[2 + j] = (uint8_t)round_i8(x[j] * inverse);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 32, x += 32, out += 34)
		q8_0_block(x, out);
}

#ifdef DT_FORMAT_HOST
static void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	for (int j = 0; j < 32; j++)
		s[2 + j] = (uint8_t)(code[j] - 127);
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_u16_at(s);
	for (int i = 0; i < 32; i++)
		r->q[i] = s[2 + i] ^ 0x80;
}

const struct dt_format_traits dt_format_q8_0 = {
	.info = {"q8_0", .gguf = 8, .file_type = 7, .block = 32, .bytes = 34, .dtype = -1},
	.panel = {512, 32, 0, 128},
	.decode = decode,
	.encode = encode,
	.levels = 255,
	.zero = 127,
	.span = 127,
	.scales = dt_half_step,
	.put = put,
	.weighted = dt_weighted32,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
