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

/* ---- the search: x = scale q, q in [-32, 31]; 16 numbers ---- */

static DT_FORMAT_CODE float error16(const float *x, const float *w, float scale)
{
	float inverse = dt_inverse_of(scale), sum = 0;

	for (int i = 0; i < 16; i++) {
		float e = scale * (float)dt_near(x[i] * inverse, -32, 31) - x[i];

		sum += w[i] * e * e;
	}
	return sum;
}

static DT_FORMAT_CODE float fit16(const float *x, const float *w)
{
	float most = 0, best_error, best;

	for (int i = 0; i < 16; i++)
		most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
	if (fabsf(most) < DT_LEAST)
		return 0;
	best = most / -32;
	best_error = error16(x, w, best);
	for (int t = 0; t <= DT_SEARCH_TRIES; t++) {
		float inverse = -(31 + 0.1f * (float)t) / most, sqq = 0, sxq = 0, e;

		for (int i = 0; i < 16; i++) {
			float q = (float)dt_near(x[i] * inverse, -32, 31);

			sqq += w[i] * q * q;
			sxq += w[i] * x[i] * q;
		}
		if (!(sqq > 0) || sxq == 0)
			continue;
		e = error16(x, w, sxq / sqq);
		if (e < best_error) {
			best_error = e;
			best = sxq / sqq;
		}
	}
	return best;
}

static DT_FORMAT_CODE int settle16(const float *x, const float *w, float d, int s0)
{
	float best = INFINITY;
	int ret = s0;

	for (int s = s0 - 1; s <= s0 + 1; s++) {
		float e = s < -128 || s > 127 ? INFINITY : error16(x, w, d * (float)s);

		if (e < best) {
			best = e;
			ret = s;
		}
	}
	return ret;
}

static DT_FORMAT_CODE void search(const struct dt_format_traits *t, const float *src, int64_t n,
				  const float *importance, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, importance = importance ? importance + 256 : NULL, out += 210) {
		float x[256], w[256], scale[16], most = 0, d;
		uint8_t code[256];

		dt_take_finite(src, 256, x);
		for (int i = 0; i < 256; i++)
			w[i] = importance ? importance[i] : x[i] * x[i];
		for (int j = 0; j < 16; j++) {
			scale[j] = fit16(x + 16 * j, w + 16 * j);
			most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
		}
		d = dt_put_half(out + 208, most / -128);
		for (int j = 0; j < 16; j++) {
			int s = d != 0 ? settle16(x + 16 * j, w + 16 * j, d, dt_near(scale[j] / d, -128, 127))
				       : 0;
			float step = d * (float)s, inverse = dt_inverse_of(step);

			out[192 + j] = (uint8_t)(int8_t)s;
			for (int i = 16 * j; i < 16 * j + 16; i++)
				code[i] = (uint8_t)(dt_near(x[i] * inverse, -32, 31) + 32);
		}
		put(t, code, out);
	}
}

static DT_FORMAT_CODE void encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	search(t, x, n, NULL, out);
}

#ifdef DT_FORMAT_HOST
static void weighted(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *out)
{
	search(t, x, 256, w, out);
}

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
