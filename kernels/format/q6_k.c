/*
 * q6_k: 256 elements in 210 bytes: 128 bytes of low four bits, 64 of the high two, i8 s[16] for each 16,
 * f16 d; x = d s (q - 32).
 */
#include "kernels/format/search.h"

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 256, s += 210) {
		float d = dt_half_at(s + 208);

		for (int k = 0; k < 8; k++, y += 32) { /* runs of 32 elements, two scales each */
			const uint8_t *low = s + k / 4 * 64 + k % 2 * 32, *high = s + 128 + k / 4 * 32;
			int nibble = k % 4 / 2 * 4, pair = k % 4 * 2;

			for (int l = 0; l < 32; l++) {
				int q = (low[l] >> nibble & 15) | (high[l] >> pair & 3) << 4;
				float scale = d * (float)(int8_t)s[192 + 2 * k + l / 16];

				y[l] = scale * (float)(q - 32);
			}
		}
	}
}

#ifdef DT_FORMAT_HOST
static void scales(const uint8_t *s, float step[16], float min[16])
{
	for (int j = 0; j < 16; j++) {
		step[j] = dt_half_at(s + 208) * (float)(int8_t)s[192 + j];
		min[j] = 0;
	}
}
#endif

static DT_FORMAT_CODE void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	memset(s, 0, 192);
	for (int at = 0; at < 256; at++) {
		int run = at / 32, l = at % 32;

		s[run / 4 * 64 + run % 2 * 32 + l] |= (uint8_t)((code[at] & 15) << run % 4 / 2 * 4);
		s[128 + run / 4 * 32 + l] |= (uint8_t)(code[at] >> 4 << run % 4 * 2);
	}
}

#ifdef DT_FORMAT_HOST
static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *p, int j)
{
	const uint8_t *low = p + j / 4 * 64 + j % 2 * 32, *high = p + 128 + j / 4 * 32;

	r->d = dt_u16_at(p + 208);
	r->sc = p[192 + 2 * j];
	r->mn = p[193 + 2 * j];
	for (int i = 0; i < 32; i++)
		r->q[i] = (uint8_t)((low[i] >> j % 4 / 2 * 4 & 15) | (high[i] >> j % 4 * 2 & 3) << 4);
}
#endif

#define K(name)	   q6_k_##name
#define K_SUBS	   16
#define K_SCALES   128
#define K_AT(t)	   (-(31 + 0.1f * (float)(t)))
#define K_VALUE(x) ((float)dt_near(x, -32, 31))
#define K_CODE(x)  (dt_near(x, -32, 31) + 32)
#include "kernels/format/k_signed.h"

static DT_FORMAT_CODE void weighted(const struct dt_format_traits *t, const float *x, const float *w,
				    uint8_t *out)
{
	uint8_t code[256];
	int s[16];

	q6_k_search(x, w, out + 208, s, code);
	for (int j = 0; j < 16; j++)
		out[192 + j] = (uint8_t)(int8_t)s[j];
	put(t, code, out);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, out += 210) {
		float x[256], w[256];

		dt_take_finite(src, 256, x);
		for (int i = 0; i < 256; i++)
			w[i] = x[i] * x[i];
		weighted(t, x, w, out);
	}
}

#ifdef DT_FORMAT_HOST
const struct dt_format_traits dt_format_q6_k = {
	.info = {"q6_k", .gguf = 14, .file_type = 18, .block = 256, .bytes = 210, .dtype = -1,
		 .narrow = DT_FMT_Q8_0},
	.panel = {384, 32, 32, 32},
	.decode = decode,
	.encode = encode,
	.levels = 64,
	.zero = 32,
	.scales = scales,
	.put = put,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
