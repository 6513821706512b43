/*
 * q3_k: 256 elements in 110 bytes: 32 bytes of high bits, 64 of the low two bits, 12 with a 6-bit scale s
 * for each 16 elements, f16 d; x = d (s - 32) (q - 4).
 */
#include "kernels/format/search.h"

/* Code of element `at`, from 0 to 7. */
static DT_FORMAT_CODE inline int code_of(const uint8_t *s, int at)
{
	return (s[32 + at / 128 * 32 + at % 32] >> at % 128 / 32 * 2 & 3) | (s[at % 32] >> at / 32 & 1) << 2;
}

/* Scale of sub-block j: low four bits in bytes 0 .. 7, low nibbles first; high two bits in bytes 8 .. 11. */
static DT_FORMAT_CODE int scale_of(const uint8_t *s, int j)
{
	return ((s[96 + j % 8] >> j / 8 * 4 & 15) | (s[104 + j % 4] >> j / 4 * 2 & 3) << 4) - 32;
}

static DT_FORMAT_CODE void decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	for (; n > 0; n -= 256, s += 110, y += 256) {
		const float d = dt_half_at(s + 108);

		for (int j = 0; j < 16; j++) {
			const float scale = d * (float)scale_of(s, j);

			for (int i = 16 * j; i < 16 * j + 16; i++)
				y[i] = scale * (float)(code_of(s, i) - 4);
		}
	}
}

#ifdef DT_FORMAT_HOST
static void scales(const uint8_t *s, float step[16], float min[16])
{
	for (int j = 0; j < 16; j++) {
		step[j] = dt_half_at(s + 108) * (float)scale_of(s, j);
		min[j] = 0;
	}
}

static void piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	r->d = dt_u16_at(s + 108);
	r->sc = (uint8_t)scale_of(s, 2 * j);
	r->mn = (uint8_t)scale_of(s, 2 * j + 1);
	for (int i = 0; i < 32; i++)
		r->q[i] = (uint8_t)code_of(s, 32 * j + i);
}
#endif

static DT_FORMAT_CODE void put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	memset(s, 0, 96);
	for (int at = 0; at < 256; at++) {
		s[32 + at / 128 * 32 + at % 32] |= (uint8_t)((code[at] & 3) << at % 128 / 32 * 2);
		s[at % 32] |= (uint8_t)(code[at] >> 2 << at / 32);
	}
}

static DT_FORMAT_CODE void put_scales(const int *scale, uint8_t *s)
{
	memset(s + 96, 0, 12);
	for (int j = 0; j < 16; j++) {
		const int v = scale[j] + 32;

		s[96 + j % 8] |= (uint8_t)((v & 15) << j / 8 * 4);
		s[104 + j % 4] |= (uint8_t)(v >> 4 << j / 4 * 2);
	}
}

#define K(name)	   q3_k_##name
#define K_SUBS	   16
#define K_SCALES   32
#define K_AT(t)	   (-(3 + 0.1f * (float)(t)))
#define K_VALUE(x) ((float)dt_near(x, -4, 3))
#define K_CODE(x)  (dt_near(x, -4, 3) + 4)
#include "kernels/format/k_signed.h"

static DT_FORMAT_CODE void weighted(const struct dt_format_traits *t, const float *x, const float *w,
				    uint8_t *out)
{
	uint8_t code[256];
	int s[16];

	q3_k_search(x, w, out + 108, s, code);
	put_scales(s, out);
	put(t, code, out);
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *src, int64_t n, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, out += 110) {
		float x[256], w[256];

		dt_take_finite(src, 256, x);
		dt_own_weights(x, 16, w);
		weighted(t, x, w, out);
	}
}

#ifdef DT_FORMAT_HOST
const struct dt_format_traits dt_format_q3_k = {
	.info = {"q3_k", .gguf = 11, .file_type = 12, .block = 256, .bytes = 110, .dtype = -1,
		 .head = DT_FMT_Q6_K, .narrow = DT_FMT_IQ4_NL},
	.panel = {192, 32, 32, 4},
	.decode = decode,
	.encode = encode,
	.levels = 8,
	.zero = 4,
	.scales = scales,
	.put = put,
	.weighted = weighted,
	.piece = piece,
};
#endif
/* SPDX-License-Identifier: Apache-2.0 */
