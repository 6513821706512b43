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

/* ---- the search: x = scale q, q in [-32, 31]; 16 sub-blocks of 16 numbers ---- */

struct numbers {
	float x[16][16], w[16][16]; /* [element][sub-block] */
};

/* Weighted squared error of each sub-block. */
static inline DT_FORMAT_CODE void errors(const struct numbers *b, const float *scale, float *error)
{
	for (int j = 0; j < 16; j++) {
		const float inverse = dt_inverse_of(scale[j]);
		float sum = 0;

		for (int i = 0; i < 16; i++) {
			float e = scale[j] * (float)dt_near(b->x[i][j] * inverse, -32, 31) - b->x[i][j];

			sum += b->w[i][j] * e * e;
		}
		error[j] = sum;
	}
}

/* The least-squares scales for rounding number t; 0: none. */
static inline DT_FORMAT_CODE void fit_once(const struct numbers *b, int t, const float *most, float *scale)
{
	for (int j = 0; j < 16; j++) {
		const float inverse = -(31 + 0.1f * (float)t) / most[j];
		float sqq = 0, sxq = 0;

		for (int i = 0; i < 16; i++) {
			const float q = (float)dt_near(b->x[i][j] * inverse, -32, 31);

			sqq += b->w[i][j] * q * q;
			sxq += b->w[i][j] * b->x[i][j] * q;
		}
		scale[j] = sqq > 0 && sxq != 0 ? sxq / sqq : 0;
	}
}

static DT_FORMAT_WIDE void q6_k_fit(const struct numbers *b, float *best)
{
	float most[16], least[16], scale[16], error[16];

	for (int j = 0; j < 16; j++) {
		float m = 0;

		for (int i = 0; i < 16; i++)
			m = fabsf(b->x[i][j]) > fabsf(m) ? b->x[i][j] : m;
		most[j] = m;
		best[j] = fabsf(m) < DT_LEAST ? 0 : m / -32;
	}
	errors(b, best, least);
	for (int t = 0; t <= DT_SEARCH_TRIES; t++) {
		fit_once(b, t, most, scale);
		errors(b, scale, error);
		for (int j = 0; j < 16; j++) {
			const bool better = best[j] != 0 && scale[j] != 0 && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			best[j] = better ? scale[j] : best[j];
		}
	}
}

/* Replaces each s, a scale in units of d, by the best of it and its neighbours. */
static DT_FORMAT_WIDE void q6_k_settle(const struct numbers *b, float d, int *s)
{
	float least[16], scale[16], error[16];
	int from[16];

	for (int j = 0; j < 16; j++) {
		least[j] = INFINITY;
		from[j] = s[j];
	}
	for (int k = -1; k <= 1; k++) {
		for (int j = 0; j < 16; j++)
			scale[j] = d * (float)(from[j] + k);
		errors(b, scale, error);
		for (int j = 0; j < 16; j++) {
			const int to = from[j] + k;
			const bool better = to >= -128 && to <= 127 && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			s[j] = better ? to : s[j];
		}
	}
}

static DT_FORMAT_WIDE void q6_k_round_off(const struct numbers *b, float d, const int *s, uint8_t *code)
{
	for (int j = 0; j < 16; j++) {
		const float inverse = dt_inverse_of(d * (float)s[j]);

		for (int i = 0; i < 16; i++)
			code[16 * j + i] = (uint8_t)(dt_near(b->x[i][j] * inverse, -32, 31) + 32);
	}
}

static DT_FORMAT_CODE void search(const struct dt_format_traits *t, const float *src, int64_t n,
				  const float *importance, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, importance = importance ? importance + 256 : NULL, out += 210) {
		struct numbers b;
		float x[256], scale[16], most = 0, d;
		uint8_t code[256];
		int s[16];

		dt_take_finite(src, 256, x);
		for (int at = 0; at < 256; at++) {
			b.x[at % 16][at / 16] = x[at];
			b.w[at % 16][at / 16] = importance ? importance[at] : x[at] * x[at];
		}
		q6_k_fit(&b, scale);
		for (int j = 0; j < 16; j++)
			most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
		d = dt_put_half(out + 208, most / -128);
		for (int j = 0; j < 16; j++)
			s[j] = d != 0 ? dt_near(scale[j] / d, -128, 127) : 0;
		if (d != 0)
			q6_k_settle(&b, d, s);
		for (int j = 0; j < 16; j++)
			out[192 + j] = (uint8_t)(int8_t)s[j];
		q6_k_round_off(&b, d, s, code);
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
