/*
 * The search (search.h) of formats with x = d s q - dmin m: integers q in [0, top] of 256 elements,
 * integers s and m per sub-block, d and dmin per 256. A format's file defines these and includes this file,
 * which has no guard: each format has its own copy.
 *
 *   K(name)      a name of the format's own
 *   K_SUBS       sub-blocks per 256
 *   K_SCALES     the largest s and m
 */
#ifdef K_SUBS
#define K_EACH (256 / K_SUBS)

struct K(numbers) {
	float x[K_EACH][K_SUBS], w[K_EACH][K_SUBS]; /* [element][sub-block] */
	float low[K_SUBS], high[K_SUBS];	    /* range of each sub-block, with 0 */
	float sw[K_SUBS], sx[K_SUBS];		    /* sums of w, and of w x */
};

/* Weighted squared error of each sub-block. */
static inline DT_FORMAT_CODE void K(errors)(const struct K(numbers) * b, int top, const float *scale,
					    const float *min, float *error)
{
	for (int j = 0; j < K_SUBS; j++) {
		const float inverse = dt_inverse_of(scale[j]);
		float sum = 0;

		DT_FORMAT_FOR (32, int i = 0; i < K_EACH; i++) {
			float q = (float)dt_near((b->x[i][j] + min[j]) * inverse, 0, top);
			float e = scale[j] * q - min[j] - b->x[i][j];

			sum += b->w[i][j] * e * e;
		}
		error[j] = sum;
	}
}

static inline DT_FORMAT_CODE void K(look)(struct K(numbers) * b)
{
	for (int j = 0; j < K_SUBS; j++) {
		float low = 0, high = b->x[0][j], sw = 0, sx = 0;

		DT_FORMAT_FOR (32, int i = 0; i < K_EACH; i++) {
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
static inline DT_FORMAT_CODE void K(fit_once)(const struct K(numbers) * b, int top, int t, float *scale,
					      float *min)
{
	for (int j = 0; j < K_SUBS; j++) {
		const float low = b->low[j],
			    inverse = ((float)(top - 1) + 0.1f * (float)t) / (b->high[j] - low);
		const float sw = b->sw[j], sx = b->sx[j];
		float sq = 0, sqq = 0, sxq = 0, det, s, m;

		DT_FORMAT_FOR (32, int i = 0; i < K_EACH; i++) {
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

static DT_FORMAT_WIDE void K(fit)(struct K(numbers) * b, int top, float *scale, float *min)
{
	float least[K_SUBS], s[K_SUBS], m[K_SUBS], error[K_SUBS];

	K(look)(b);
	for (int j = 0; j < K_SUBS; j++) {
		min[j] = -b->low[j];
		scale[j] = b->high[j] - b->low[j] > DT_LEAST ? (b->high[j] - b->low[j]) / (float)top : 0;
	}
	K(errors)(b, top, scale, min, least);
	for (int t = 0; t <= DT_SEARCH_TRIES; t++) {
		K(fit_once)(b, top, t, s, m);
		K(errors)(b, top, s, m, error);
		for (int j = 0; j < K_SUBS; j++) {
			const bool better = scale[j] > 0 && s[j] > 0 && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			scale[j] = better ? s[j] : scale[j];
			min[j] = better ? m[j] : min[j];
		}
	}
}

/* Replaces scales and minima, in units of d and dmin, by the best of them and their neighbours. */
static DT_FORMAT_WIDE void K(settle)(const struct K(numbers) * b, int top, float d, float dmin, int *scale,
				     int *min)
{
	float least[K_SUBS], s[K_SUBS], m[K_SUBS], error[K_SUBS];
	int s0[K_SUBS], m0[K_SUBS];

	for (int j = 0; j < K_SUBS; j++) {
		least[j] = INFINITY;
		s0[j] = scale[j];
		m0[j] = min[j];
	}
	for (int k = 0; k < 9; k++) {
		const int ds = k / 3 - 1, dm = k % 3 - 1;

		for (int j = 0; j < K_SUBS; j++) {
			s[j] = d * (float)(s0[j] + ds);
			m[j] = dmin * (float)(m0[j] + dm);
		}
		K(errors)(b, top, s, m, error);
		for (int j = 0; j < K_SUBS; j++) {
			const int to = s0[j] + ds, down = m0[j] + dm;
			const bool fits = to >= 0 && to <= K_SCALES && down >= 0 && down <= K_SCALES;
			const bool better = fits && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			scale[j] = better ? to : scale[j];
			min[j] = better ? down : min[j];
		}
	}
}

static DT_FORMAT_WIDE void K(round_off)(const struct K(numbers) * b, int top, float d, float dmin,
					const int *s, const int *m, uint8_t *code)
{
	for (int j = 0; j < K_SUBS; j++) {
		const float inverse = dt_inverse_of(d * (float)s[j]), add = dmin * (float)m[j];

		for (int i = 0; i < K_EACH; i++)
			code[K_EACH * j + i] = (uint8_t)dt_near((b->x[i][j] + add) * inverse, 0, top);
	}
}

/* Finds d and dmin (f16, stored at half), scales, minima and codes of 256 finite numbers. */
static DT_FORMAT_CODE void K(search)(int top, const float *x, const float *w, uint8_t *half, int s[K_SUBS],
				     int m[K_SUBS], uint8_t code[256])
{
	float scale[K_SUBS], min[K_SUBS], d = 0, dmin = 0;
	struct K(numbers) b;

	for (int at = 0; at < 256; at++) {
		b.x[at % K_EACH][at / K_EACH] = x[at];
		b.w[at % K_EACH][at / K_EACH] = w[at];
	}
	K(fit)(&b, top, scale, min);
	for (int j = 0; j < K_SUBS; j++) {
		d = scale[j] > d ? scale[j] : d;
		dmin = min[j] > dmin ? min[j] : dmin;
	}
	d = dt_put_half(half, d / K_SCALES);
	dmin = dt_put_half(half + 2, dmin / K_SCALES);
	for (int j = 0; j < K_SUBS; j++) {
		s[j] = d > 0 ? dt_near(scale[j] / d, 0, K_SCALES) : 0;
		m[j] = dmin > 0 ? dt_near(min[j] / dmin, 0, K_SCALES) : 0;
	}
	K(settle)(&b, top, d, dmin, s, m);
	K(round_off)(&b, top, d, dmin, s, m, code);
}
#undef K
#undef K_SUBS
#undef K_EACH
#undef K_SCALES
#endif
/* SPDX-License-Identifier: Apache-2.0 */
