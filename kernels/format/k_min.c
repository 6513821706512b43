/*
 * q4_k and q5_k: f16 d, f16 dmin, 12 bytes with a 6-bit scale s and minimum m per 32 elements, `high` bytes
 * of fifth bits (q5_k: 32, bit j of byte i belongs to element 32 j + i), 128 bytes of the low four bits;
 * x = d s q - dmin m.
 */
#include "kernels/format/search.h"

#ifdef DT_FORMAT_HOST
static int high_of(const struct dt_format_traits *t)
{
	return t->info.bytes - 144;
}
#endif

/* Scale and minimum of sub-block j, unpacked from 12 bytes of 6-bit values. */
static DT_FORMAT_CODE void scale_of(const uint8_t *s, int j, uint8_t *scale, uint8_t *min)
{
	*scale = j < 4 ? s[j] & 63 : (uint8_t)((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
	*min = j < 4 ? s[j + 4] & 63 : (uint8_t)(s[j + 4] >> 4 | (s[j] >> 6) << 4);
}

/* Code l of sub-block j. */
static DT_FORMAT_CODE inline int code_of(const uint8_t *s, int high, int j, int l)
{
	const uint8_t *q = s + 16 + high + j / 2 * 32;

	return (q[l] >> j % 2 * 4 & 15) | (high ? s[16 + l] >> j & 1 : 0) << 4;
}

#ifdef DT_FORMAT_HOST
void dt_k_min_scales(const uint8_t *s, float step[16], float min[16])
{
	for (int j = 0; j < 16; j++) {
		uint8_t sc, mn;

		scale_of(s + 4, j / 2, &sc, &mn);
		step[j] = (float)sc * dt_half_at(s);
		min[j] = (float)mn * dt_half_at(s + 2);
	}
}
#endif

static inline DT_FORMAT_CODE __attribute__((always_inline)) void decode_of(const uint8_t *s, int64_t n,
									   const int high, float *y)
{
	for (; n > 0; n -= 256, s += 144 + high) {
		float d = dt_half_at(s), dmin = dt_half_at(s + 2);

		for (int j = 0; j < 8; j++, y += 32) {
			uint8_t sc, mn;
			float scale, min;

			scale_of(s + 4, j, &sc, &mn);
			scale = d * (float)sc;
			min = dmin * (float)mn;
			for (int l = 0; l < 32; l++)
				y[l] = scale * (float)code_of(s, high, j, l) - min;
		}
	}
}

static DT_FORMAT_CODE void put_codes(int high, const uint8_t *code, uint8_t *s)
{
	memset(s + 16, 0, (size_t)high);
	for (int j = 0; high && j < 256; j++)
		s[16 + j % 32] |= (uint8_t)(code[j] >> 4 << j / 32);
	for (int j = 0; j < 128; j++)
		s[16 + high + j] = (uint8_t)((code[j / 32 * 64 + j % 32] & 15) |
					     (code[j / 32 * 64 + 32 + j % 32] & 15) << 4);
}

#ifdef DT_FORMAT_HOST
void dt_k_min_decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y)
{
	if (high_of(t))
		decode_of(s, n, 32, y);
	else
		decode_of(s, n, 0, y);
}

void dt_k_min_piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *s, int j)
{
	const int high = high_of(t);

	r->d = dt_u16_at(s);
	r->m = dt_u16_at(s + 2);
	scale_of(s + 4, j, &r->sc, &r->mn);
	for (int i = 0; i < 32; i++)
		r->q[i] = (uint8_t)code_of(s, high, j, i);
}

void dt_k_min_put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *s)
{
	put_codes(high_of(t), code, s);
}
#endif

#define K(name)	 k_min_##name
#define K_SUBS	 8
#define K_SCALES 63
#include "kernels/format/k_minima.h"

/* Packs eight 6-bit scales and minima into 12 bytes. */
static DT_FORMAT_CODE void put_scales(const int *scale, const int *min, uint8_t *out)
{
	for (int j = 0; j < 4; j++) {
		out[j] = (uint8_t)(scale[j] | scale[j + 4] >> 4 << 6);
		out[j + 4] = (uint8_t)(min[j] | min[j + 4] >> 4 << 6);
		out[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
	}
}

static DT_FORMAT_CODE void search(int high, const float *src, int64_t n, const float *importance,
				  uint8_t *out)
{
	const int bytes = 144 + high;

	for (; n > 0; n -= 256, src += 256, importance = importance ? importance + 256 : NULL, out += bytes) {
		float x[256], w[256];
		uint8_t code[256];
		int s[8], m[8];

		dt_take_finite(src, 256, x);
		if (!importance)
			dt_own_weights(x, 32, w);
		k_min_search(high ? 31 : 15, x, importance ? importance : w, out, s, m, code);
		put_scales(s, m, out + 4);
		put_codes(high, code, out);
	}
}

#ifdef DT_FORMAT_HOST
void dt_k_min_encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out)
{
	search(high_of(t), x, n, NULL, out);
}

void dt_k_min_weighted(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *out)
{
	search(high_of(t), x, 256, w, out);
}
#endif
/* SPDX-License-Identifier: Apache-2.0 */
