/*
 * iq4_xs: 256 elements in 136 bytes: f16 d, the high two bits of a 6-bit scale s for each 32 elements (16
 * bits), the low four (4 bytes), 128 bytes of 4-bit codes, each 16 in q4_0's order, which index iq4_nl's
 * table v; x = d (s - 32) v.
 */
#include "kernels/format/iq4.h"
#include "kernels/format/search.h"

/* Scale of sub-block j. */
static DT_FORMAT_CODE int scale_of(const uint8_t *s, int j)
{
	return ((s[4 + j / 2] >> j % 2 * 4 & 15) | (dt_u16_at(s + 2) >> 2 * j & 3) << 4) - 32;
}

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 256, s += 136)
		for (int j = 0; j < 8; j++, y += 32)
			dt_nibbles_decode(s + 8 + 16 * j, dt_half_at(s) * (float)scale_of(s, j), iq4_values,
					  y);
}

static DT_FORMAT_CODE void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	for (int j = 0; j < 8; j++)
		dt_nibbles_put(code + 32 * j, s + 8 + 16 * j);
}

#ifdef DT_FORMAT_HOST
static void scales(const uint8_t *s, float step[16], float min[16])
{
	for (int j = 0; j < 16; j++) {
		step[j] = dt_half_at(s) * (float)scale_of(s, j / 2);
		min[j] = 0;
	}
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_u16_at(s);
	r->sc = (uint8_t)scale_of(s, j);
	dt_nibbles(r->q, s + 8 + 16 * j);
}
#endif

#define K(name)	   iq4_xs_##name
#define K_SUBS	   8
#define K_SCALES   32
#define K_AT(t)	   ((float)(iq4_values[0] - DT_SEARCH_TRIES / 2 + (t)))
#define K_VALUE(x) iq4_value_of(x)
#define K_CODE(x)  iq4_code_of(x)
#include "kernels/format/k_signed.h"

static DT_FORMAT_CODE void weighted(const struct dt_format_traits *t, const float *x, const float *w,
				    uint8_t *out)
{
	uint8_t code[256];
	unsigned high = 0;
	int s[8];

	iq4_xs_search(x, w, out, s, code);
	memset(out + 4, 0, 4);
	for (int j = 0; j < 8; j++) {
		const unsigned v = (unsigned)(s[j] + 32);

		out[4 + j / 2] |= (uint8_t)((v & 15) << j % 2 * 4);
		high |= v >> 4 << 2 * j;
	}
	out[2] = (uint8_t)high;
	out[3] = (uint8_t)(high >> 8);
	put(t, code, out);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, out += 136) {
		float x[256], w[256];

		dt_take_finite(src, 256, x);
		dt_own_weights(x, 32, w);
		weighted(t, x, w, out);
	}
}

#ifdef DT_FORMAT_HOST
const struct dt_format_traits dt_format_iq4_xs = {
	.info = {"iq4_xs", .gguf = 23, .file_type = 30, .block = 256, .bytes = 136, .dtype = -1,
		 .head = DT_FMT_Q6_K, .narrow = DT_FMT_IQ4_NL},
	.panel = {256, 16, 32, 128},
	.decode = decode,
	.encode = encode,
	.levels = 16,
	.values = iq4_values,
	.scales = scales,
	.put = put,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
