/*
 * q2_k: 256 elements in 84 bytes: for each 16 elements a byte with a 4-bit scale s (low) and minimum m, 64
 * bytes of 2-bit codes, f16 d, f16 dmin; x = d s q - dmin m.
 */
#include "kernels/format/search.h"

/* Code of element `at`. */
static DT_FORMAT_CODE inline int code_of(const uint8_t *s, int at)
{
	return s[16 + at / 128 * 32 + at % 32] >> at % 128 / 32 * 2 & 3;
}

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 256, s += 84, y += 256) {
		const float d = dt_half_at(s + 80), dmin = dt_half_at(s + 82);

		for (int j = 0; j < 16; j++) {
			const float scale = d * (float)(s[j] & 15), min = dmin * (float)(s[j] >> 4);

			for (int i = 16 * j; i < 16 * j + 16; i++)
				y[i] = scale * (float)code_of(s, i) - min;
		}
	}
}

static DT_FORMAT_CODE void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	memset(s + 16, 0, 64);
	for (int at = 0; at < 256; at++)
		s[16 + at / 128 * 32 + at % 32] |= (uint8_t)(code[at] << at % 128 / 32 * 2);
}

#ifdef DT_FORMAT_HOST
static void scales(const uint8_t *s, float step[16], float min[16])
{
	for (int j = 0; j < 16; j++) {
		step[j] = dt_half_at(s + 80) * (float)(s[j] & 15);
		min[j] = dt_half_at(s + 82) * (float)(s[j] >> 4);
	}
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_u16_at(s + 80);
	r->m = dt_u16_at(s + 82);
	r->sc = s[2 * j];
	r->mn = s[2 * j + 1];
	for (int i = 0; i < 32; i++)
		r->q[i] = (uint8_t)code_of(s, 32 * j + i);
}
#endif

#define K(name)	 q2_k_##name
#define K_SUBS	 16
#define K_SCALES 15
#include "kernels/format/k_minima.h"

static DT_FORMAT_CODE void weighted(const struct dt_format_traits *t, const float *x, const float *w,
				    uint8_t *out)
{
	uint8_t code[256];
	int s[16], m[16];

	q2_k_search(3, x, w, out + 80, s, m, code);
	for (int j = 0; j < 16; j++)
		out[j] = (uint8_t)(s[j] | m[j] << 4);
	put(t, code, out);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, out += 84) {
		float x[256], w[256];

		dt_take_finite(src, 256, x);
		dt_own_weights(x, 16, w);
		weighted(t, x, w, out);
	}
}

#ifdef DT_FORMAT_HOST
const struct dt_format_traits dt_format_q2_k = {
	.info = {"q2_k", .gguf = 10, .file_type = 10, .block = 256, .bytes = 84, .dtype = -1,
		 .head = DT_FMT_Q6_K, .narrow = DT_FMT_IQ4_NL},
	.panel = {128, 32, 64, 0},
	.decode = decode,
	.encode = encode,
	.levels = 4,
	.scales = scales,
	.put = put,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
