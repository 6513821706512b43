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

/* ---- the search: x = scale q - min, q in [0, top], top 15 or 31, min >= 0; 8 sub-blocks of 32 ---- */

struct numbers {
	float x[32][8], w[32][8]; /* [element][sub-block] */
	float low[8], high[8];	  /* range of each sub-block, with 0 */
	float sw[8], sx[8];	  /* sums of w, and of w x */
};

/* Weighted squared error of each sub-block. */
static inline DT_FORMAT_CODE void errors(const struct numbers *b, int top, const float *scale,
					 const float *min, float *error)
{
	for (int j = 0; j < 8; j++) {
		const float inverse = dt_inverse_of(scale[j]);
		float sum = 0;

		DT_FORMAT_FOR (32, int i = 0; i < 32; i++) {
			float q = (float)dt_near((b->x[i][j] + min[j]) * inverse, 0, top);
			float e = scale[j] * q - min[j] - b->x[i][j];

			sum += b->w[i][j] * e * e;
		}
		error[j] = sum;
	}
}

static inline DT_FORMAT_CODE void look(struct numbers *b)
{
	for (int j = 0; j < 8; j++) {
		float low = 0, high = b->x[0][j], sw = 0, sx = 0;

		DT_FORMAT_FOR (32, int i = 0; i < 32; i++) {
			low = b->x[i][j] < low ? b->x[i][j] : low;
			high = b->x[i][j] > high ? b->x[i][j] : high;
			sw += b->w[i][j];
			sx += b->w[i][j] * b->x[i][j];
		}
		b->low[j] = low;
		b->high[j] = high;
		b->sw[j] = sw;
		b->sx[j] = sx;
	}
}

/* The least-squares scales and minima for rounding number t; scale 0: none. */
static inline DT_FORMAT_CODE void fit_once(const struct numbers *b, int top, int t, float *scale, float *min)
{
	for (int j = 0; j < 8; j++) {
		const float low = b->low[j],
			    inverse = ((float)(top - 1) + 0.1f * (float)t) / (b->high[j] - low);
		const float sw = b->sw[j], sx = b->sx[j];
		float sq = 0, sqq = 0, sxq = 0, det, s, m;

		DT_FORMAT_FOR (32, int i = 0; i < 32; i++) {
			float q = (float)dt_near(inverse * (b->x[i][j] - low), 0, top);

			sq += b->w[i][j] * q;
			sqq += b->w[i][j] * q * q;
			sxq += b->w[i][j] * b->x[i][j] * q;
		}
		det = sw * sqq - sq * sq;
		s = (sw * sxq - sx * sq) / det;
		m = (sq * sxq - sqq * sx) / det;
		s = m < 0 ? sxq / sqq : s; /* the format cannot store m < 0 */
		m = m < 0 ? 0 : m;
		scale[j] = det > 0 && s > 0 ? s : 0;
		min[j] = m;
	}
}

static DT_FORMAT_WIDE void k_min_fit(struct numbers *b, int top, float *scale, float *min)
{
	float least[8], s[8], m[8], error[8];

	look(b);
	for (int j = 0; j < 8; j++) {
		min[j] = -b->low[j];
		scale[j] = b->high[j] - b->low[j] > DT_LEAST ? (b->high[j] - b->low[j]) / (float)top : 0;
	}
	errors(b, top, scale, min, least);
	for (int t = 0; t <= DT_SEARCH_TRIES; t++) {
		fit_once(b, top, t, s, m);
		errors(b, top, s, m, error);
		for (int j = 0; j < 8; j++) {
			const bool better = scale[j] > 0 && s[j] > 0 && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			scale[j] = better ? s[j] : scale[j];
			min[j] = better ? m[j] : min[j];
		}
	}
}

/* Replaces scales and minima, in units of d and dmin, by the best of them and their neighbours. */
static DT_FORMAT_WIDE void k_min_settle(const struct numbers *b, int top, float d, float dmin, int *scale,
					int *min)
{
	float least[8], s[8], m[8], error[8];
	int s0[8], m0[8];

	for (int j = 0; j < 8; j++) {
		least[j] = INFINITY;
		s0[j] = scale[j];
		m0[j] = min[j];
	}
	for (int k = 0; k < 9; k++) {
		const int ds = k / 3 - 1, dm = k % 3 - 1;

		for (int j = 0; j < 8; j++) {
			s[j] = d * (float)(s0[j] + ds);
			m[j] = dmin * (float)(m0[j] + dm);
		}
		errors(b, top, s, m, error);
		for (int j = 0; j < 8; j++) {
			const int to = s0[j] + ds, down = m0[j] + dm;
			const bool fits = to >= 0 && to <= 63 && down >= 0 && down <= 63;
			const bool better = fits && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			scale[j] = better ? to : scale[j];
			min[j] = better ? down : min[j];
		}
	}
}

static DT_FORMAT_WIDE void k_min_round_off(const struct numbers *b, int top, float d, float dmin,
					   const int *s, const int *m, uint8_t *code)
{
	for (int j = 0; j < 8; j++) {
		const float inverse = dt_inverse_of(d * (float)s[j]), add = dmin * (float)m[j];

		for (int i = 0; i < 32; i++)
			code[32 * j + i] = (uint8_t)dt_near((b->x[i][j] + add) * inverse, 0, top);
	}
}

/* Packs eight 6-bit scales and minima into 12 bytes. */
static DT_FORMAT_CODE void put_scales(const int *scale, const int *min, uint8_t *out)
{
	for (int j = 0; j < 4; j++) {
		out[j] = (uint8_t)(scale[j] | scale[j + 4] >> 4 << 6);
		out[j + 4] = (uint8_t)(min[j] | min[j + 4] >> 4 << 6);
		out[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
	}
}

/* Fills b from finite numbers; without importance an element weighs the block's RMS + its magnitude. */
static DT_FORMAT_CODE void take(struct numbers *b, const float *src, const float *importance)
{
	float x[256];

	dt_take_finite(src, 256, x);
	for (int j = 0; j < 8; j++) {
		float sum = 0;

		for (int i = 0; i < 32; i++)
			sum += x[32 * j + i] * x[32 * j + i];
		sum = sqrtf(sum / 32);
		for (int i = 0; i < 32; i++) {
			b->x[i][j] = x[32 * j + i];
			b->w[i][j] = importance ? importance[32 * j + i] : sum + fabsf(x[32 * j + i]);
		}
	}
}

static DT_FORMAT_CODE void search(int high, const float *src, int64_t n, const float *importance,
				  uint8_t *out)
{
	const int top = high ? 31 : 15, bytes = 144 + high;

	for (; n > 0; n -= 256, src += 256, importance = importance ? importance + 256 : NULL, out += bytes) {
		struct numbers b;
		float scale[8], min[8], d = 0, dmin = 0;
		uint8_t code[256];
		int s[8], m[8];

		take(&b, src, importance);
		k_min_fit(&b, top, scale, min);
		for (int j = 0; j < 8; j++) {
			d = scale[j] > d ? scale[j] : d;
			dmin = min[j] > dmin ? min[j] : dmin;
		}
		d = dt_put_half(out, d / 63);
		dmin = dt_put_half(out + 2, dmin / 63);
		for (int j = 0; j < 8; j++) {
			s[j] = d > 0 ? dt_near(scale[j] / d, 0, 63) : 0;
			m[j] = dmin > 0 ? dt_near(min[j] / dmin, 0, 63) : 0;
		}
		k_min_settle(&b, top, d, dmin, s, m);
		k_min_round_off(&b, top, d, dmin, s, m, code);
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
