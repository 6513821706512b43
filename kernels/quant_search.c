#include "kernels/quant_search.h"

#include "kernels/dtype.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define TRIES 20     /* roundings tried, on either side of the plain one together */
#define LEAST 1e-30f /* what is smaller is 0: its inverse is no number */

static float inverse_of(float x)
{
	return fabsf(x) > LEAST ? 1 / x : 0;
}

/* Rounded to nearest, in [low, top]; NaN becomes low. */
static int near(float q, int low, int top)
{
	q = q > (float)low ? q : (float)low;
	q = q > (float)top ? (float)top : q;
	return (int)(q + 128.5f) - 128;
}

static float half_put(uint8_t *p, float x)
{
	uint16_t h = dt_f32_to_f16(x);

	memcpy(p, &h, 2);
	return dt_f16_to_f32(h);
}

static void take_finite(const float *src, int n, float *x)
{
	for (int i = 0; i < n; i++)
		x[i] = isfinite(src[i]) ? src[i] : 0;
}

/* ---- q4_k, q5_k: x = scale q - min, q in [0, top], top 15 or 31, min >= 0; 32 numbers ---- */

static float error32(const float *x, const float *w, int top, float scale, float min)
{
	float inverse = inverse_of(scale), sum = 0;

	for (int i = 0; i < 32; i++) {
		float q = (float)near((x[i] + min) * inverse, 0, top), e = scale * q - min - x[i];

		sum += w[i] * e * e;
	}
	return sum;
}

static void fit32(const float *x, const float *w, int top, float *scale, float *min)
{
	float low = 0, high = x[0], best;

	for (int i = 0; i < 32; i++) {
		low = x[i] < low ? x[i] : low;
		high = x[i] > high ? x[i] : high;
	}
	*min = -low;
	*scale = high - low > LEAST ? (high - low) / (float)top : 0;
	if (*scale <= 0)
		return;
	best = error32(x, w, top, *scale, *min);
	for (int t = 0; t <= TRIES; t++) {
		float inverse = ((float)(top - 1) + 0.1f * (float)t) / (high - low), sw = 0, sq = 0, sqq = 0,
		      sx = 0, sxq = 0;
		float det, s, m, e;

		for (int i = 0; i < 32; i++) {
			float q = (float)near(inverse * (x[i] - low), 0, top);

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
		if (m < 0) { /* a minimum above 0 has no place in the format */
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

/* The integers of a sub-block's scale and minimum: those found, or neighbours that fit better. */
static void settle32(const float *x, const float *w, int top, float d, float dmin, int *scale, int *min)
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

/* 6 bits each of eight scales and minima in 12 bytes. */
static void put_scales(const int *scale, const int *min, uint8_t *out)
{
	for (int j = 0; j < 4; j++) {
		out[j] = (uint8_t)(scale[j] | scale[j + 4] >> 4 << 6);
		out[j + 4] = (uint8_t)(min[j] | min[j + 4] >> 4 << 6);
		out[j + 8] = (uint8_t)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
	}
}

static void weigh(const float *x, int n, float *w)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += x[i] * x[i];
	sum = sqrtf(sum / (float)n);
	for (int i = 0; i < n; i++)
		w[i] = sum + fabsf(x[i]);
}

/* high: bytes of fifth bits between the scales and the nibbles, 0 or 32. */
static void search_min(const float *src, int64_t n, const float *importance, int high, uint8_t *out)
{
	const int top = high ? 31 : 15, bytes = 144 + high;

	for (; n > 0; n -= 256, src += 256, importance += importance ? 256 : 0, out += bytes) {
		float x[256], w[256], scale[8], min[8], d = 0, dmin = 0;
		int s[8], m[8];

		take_finite(src, 256, x);
		for (int j = 0; j < 8; j++) {
			if (importance)
				memcpy(w + 32 * j, importance + 32 * j, 32 * sizeof(*w));
			else
				weigh(x + 32 * j, 32, w + 32 * j);
			fit32(x + 32 * j, w + 32 * j, top, &scale[j], &min[j]);
			d = scale[j] > d ? scale[j] : d;
			dmin = min[j] > dmin ? min[j] : dmin;
		}
		d = half_put(out, d / 63);
		dmin = half_put(out + 2, dmin / 63);
		memset(out + 16, 0, (size_t)high + 128);
		for (int j = 0; j < 8; j++) {
			float step, inverse;

			s[j] = d > 0 ? near(scale[j] / d, 0, 63) : 0;
			m[j] = dmin > 0 ? near(min[j] / dmin, 0, 63) : 0;
			settle32(x + 32 * j, w + 32 * j, top, d, dmin, &s[j], &m[j]);
			step = d * (float)s[j];
			inverse = inverse_of(step);
			for (int i = 0; i < 32; i++) {
				int code = near((x[32 * j + i] + dmin * (float)m[j]) * inverse, 0, top);

				out[16 + high + j / 2 * 32 + i] |= (uint8_t)((code & 15) << j % 2 * 4);
				if (high)
					out[16 + i] |= (uint8_t)(code >> 4 << j);
			}
		}
		put_scales(s, m, out + 4);
	}
}

void dt_quantize_q4_k(const float *src, int64_t n, const float *importance, uint8_t *out)
{
	search_min(src, n, importance, 0, out);
}

void dt_quantize_q5_k(const float *src, int64_t n, const float *importance, uint8_t *out)
{
	search_min(src, n, importance, 32, out);
}

/* ---- q6_k: x = scale q, q in [-32, 31]; 16 numbers ---- */

static float error16(const float *x, const float *w, float scale)
{
	float inverse = inverse_of(scale), sum = 0;

	for (int i = 0; i < 16; i++) {
		float e = scale * (float)near(x[i] * inverse, -32, 31) - x[i];

		sum += w[i] * e * e;
	}
	return sum;
}

static float fit16(const float *x, const float *w)
{
	float most = 0, best_error, best;

	for (int i = 0; i < 16; i++)
		most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
	if (fabsf(most) < LEAST)
		return 0;
	best = most / -32;
	best_error = error16(x, w, best);
	for (int t = 0; t <= TRIES; t++) {
		float inverse = -(31 + 0.1f * (float)t) / most, sqq = 0, sxq = 0, e;

		for (int i = 0; i < 16; i++) {
			float q = (float)near(x[i] * inverse, -32, 31);

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

static int settle16(const float *x, const float *w, float d, int s0)
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

void dt_quantize_q6_k(const float *src, int64_t n, const float *importance, uint8_t *out)
{
	for (; n > 0; n -= 256, src += 256, importance += importance ? 256 : 0, out += 210) {
		float x[256], w[256], scale[16], most = 0, d;

		take_finite(src, 256, x);
		for (int i = 0; i < 256; i++)
			w[i] = importance ? importance[i] : x[i] * x[i];
		for (int j = 0; j < 16; j++) {
			scale[j] = fit16(x + 16 * j, w + 16 * j);
			most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
		}
		memset(out, 0, 192);
		d = half_put(out + 208, most / -128);
		for (int j = 0; j < 16; j++) {
			int s = d != 0 ? settle16(x + 16 * j, w + 16 * j, d, near(scale[j] / d, -128, 127))
				       : 0;
			float step = d * (float)s, inverse = inverse_of(step);

			out[192 + j] = (uint8_t)(int8_t)s;
			for (int i = 0; i < 16; i++) {
				int at = 16 * j + i, run = at / 32,
				    l = at % 32; /* as quant_formats.c reads them */
				unsigned q = (unsigned)(near(x[at] * inverse, -32, 31) + 32);

				out[run / 4 * 64 + run % 2 * 32 + l] |=
					(uint8_t)((q & 15) << run % 4 / 2 * 4);
				out[128 + run / 4 * 32 + l] |= (uint8_t)(q >> 4 << run % 4 * 2);
			}
		}
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
