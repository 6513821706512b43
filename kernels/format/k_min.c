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
	const int high = high_of(t);

	memset(s + 16, 0, (size_t)high);
	for (int j = 0; high && j < 256; j++)
		s[16 + j % 32] |= (uint8_t)(code[j] >> 4 << j / 32);
	for (int j = 0; j < 128; j++)
		s[16 + high + j] = (uint8_t)((code[j / 32 * 64 + j % 32] & 15) |
					     (code[j / 32 * 64 + 32 + j % 32] & 15) << 4);
}
#endif

/* ---- the search: x = scale q - min, q in [0, top], top 15 or 31, min >= 0; 32 numbers ---- */

static DT_FORMAT_CODE float error32(const float *x, const float *w, int top, float scale, float min)
{
	float inverse = dt_inverse_of(scale), sum = 0;

	for (int i = 0; i < 32; i++) {
		float q = (float)dt_near((x[i] + min) * inverse, 0, top), e = scale * q - min - x[i];

		sum += w[i] * e * e;
	}
	return sum;
}

static DT_FORMAT_CODE void fit32(const float *x, const float *w, int top, float *scale, float *min)
{
	float low = 0, high = x[0], best;

	for (int i = 0; i < 32; i++) {
		low = x[i] < low ? x[i] : low;
		high = x[i] > high ? x[i] : high;
	}
	*min = -low;
	*scale = high - low > DT_LEAST ? (high - low) / (float)top : 0;
	if (*scale <= 0)
		return;
	best = error32(x, w, top, *scale, *min);
	for (int t = 0; t <= DT_SEARCH_TRIES; t++) {
		float inverse = ((float)(top - 1) + 0.1f * (float)t) / (high - low), sw = 0, sq = 0, sqq = 0,
		      sx = 0, sxq = 0;
		float det, s, m, e;

		for (int i = 0; i < 32; i++) {
			float q = (float)dt_near(inverse * (x[i] - low), 0, top);

			sw += w[i];
			sq += w[i] * q;
			sqq += w[i] * q * q;
			sx += w[i] * x[i];
			sxq += w[i] * x[i] * q;
		}
		det = sw * sqq - sq * sq;
		if (!(det > 0))
			continue;
		s = (sw * sxq - sx * sq) / det;
		m = (sq * sxq - sqq * sx) / det;
		if (m < 0) { /* the format cannot store m < 0 */
			m = 0;
			s = sxq / sqq;
		}
		if (!(s > 0))
			continue;
		e = error32(x, w, top, s, m);
		if (e < best) {
			best = e;
			*scale = s;
			*min = m;
		}
	}
}

/* Rounds a sub-block's scale and minimum to integers, and tries their neighbours. */
static DT_FORMAT_CODE void settle32(const float *x, const float *w, int top, float d, float dmin, int *scale,
				    int *min)
{
	int s0 = *scale, m0 = *min;
	float best = INFINITY;

	for (int s = s0 - 1; s <= s0 + 1; s++)
		for (int m = m0 - 1; m <= m0 + 1; m++) {
			float e;

			if (s < 0 || s > 63 || m < 0 || m > 63)
				continue;
			e = error32(x, w, top, d * (float)s, dmin * (float)m);
			if (e < best) {
				best = e;
				*scale = s;
				*min = m;
			}
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

static DT_FORMAT_CODE void weigh(const float *x, int n, float *w)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	sum = sqrtf(sum / (float)n);
	for (int i = 0; i < n; i++)
		w[i] = sum + fabsf(x[i]);
}

static DT_FORMAT_CODE void search(int high, const float *src, int64_t n, const float *importance,
				  uint8_t *out)
{
	const int top = high ? 31 : 15, bytes = 144 + high;

	for (; n > 0; n -= 256, src += 256, importance = importance ? importance + 256 : NULL, out += bytes) {
		float x[256], w[256], scale[8], min[8], d = 0, dmin = 0;
		int s[8], m[8];

		dt_take_finite(src, 256, x);
		for (int j = 0; j < 8; j++) {
			if (importance)
				memcpy(w + 32 * j, importance + 32 * j, 32 * sizeof(*w));
			else
				weigh(x + 32 * j, 32, w + 32 * j);
			fit32(x + 32 * j, w + 32 * j, top, &scale[j], &min[j]);
			d = scale[j] > d ? scale[j] : d;
			dmin = min[j] > dmin ? min[j] : dmin;
		}
		d = dt_put_half(out, d / 63);
		dmin = dt_put_half(out + 2, dmin / 63);
		memset(out + 16, 0, (size_t)high + 128);
		for (int j = 0; j < 8; j++) {
			float step, inverse;

			s[j] = d > 0 ? dt_near(scale[j] / d, 0, 63) : 0;
			m[j] = dmin > 0 ? dt_near(min[j] / dmin, 0, 63) : 0;
			settle32(x + 32 * j, w + 32 * j, top, d, dmin, &s[j], &m[j]);
			step = d * (float)s[j];
			inverse = dt_inverse_of(step);
			for (int i = 0; i < 32; i++) {
				int code = dt_near((x[32 * j + i] + dmin * (float)m[j]) * inverse, 0, top);

				out[16 + high + j / 2 * 32 + i] |= (uint8_t)((code & 15) << j % 2 * 4);
				if (high)
					out[16 + i] |= (uint8_t)(code >> 4 << j);
			}
		}
		put_scales(s, m, out + 4);
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
