/*
 * The search (search.h) of formats with x = d s q: integers q of 256 elements, a signed integer s per sub-
 * block, d per 256. A format's file defines these and includes this file, which has no guard: each format
 * has its own copy.
 *
 *   K(name)      a name of the format's own
 *   K_SUBS       sub-blocks per 256
 *   K_SCALES     s is in [-K_SCALES, K_SCALES - 1]
 *   K_AT(t)      rounding number t scales the number of largest magnitude to this
 *   K_VALUE(x)   the integer nearest to x, as float
 *   K_CODE(x)    its code
 */
#ifdef K_SUBS
#define K_EACH (256 / K_SUBS)

struct K(numbers) {
	float x[K_EACH][K_SUBS], w[K_EACH][K_SUBS]; /* [element][sub-block] */
};

/* Weighted squared error of each sub-block. */
static inline DT_FORMAT_CODE void K(errors)(const struct K(numbers) * b, const float *scale, float *error)
{
	for (int j = 0; j < K_SUBS; j++) {
		const float inverse = dt_inverse_of(scale[j]);
		float sum = 0;

		DT_FORMAT_FOR (32, int i = 0; i < K_EACH; i++) {
			float e = scale[j] * K_VALUE(b->x[i][j] * inverse) - b->x[i][j];

			sum += b->w[i][j] * e * e;
		}
		error[j] = sum;
	}
}

/* The least-squares scales for rounding number t; 0: none. */
static inline DT_FORMAT_CODE void K(fit_once)(const struct K(numbers) * b, int t, const float *most,
					      float *scale)
{
	for (int j = 0; j < K_SUBS; j++) {
		const float inverse = K_AT(t) / most[j];
		float sqq = 0, sxq = 0;

		DT_FORMAT_FOR (32, int i = 0; i < K_EACH; i++) {
			const float q = K_VALUE(b->x[i][j] * inverse);

			sqq += b->w[i][j] * q * q;
			sxq += b->w[i][j] * b->x[i][j] * q;
		}
		scale[j] = sqq > 0 && sxq != 0 ? sxq / sqq : 0;
	}
}

static DT_FORMAT_WIDE void K(fit)(const struct K(numbers) * b, float *best)
{
	float most[K_SUBS], least[K_SUBS], scale[K_SUBS], error[K_SUBS];

	for (int j = 0; j < K_SUBS; j++) {
		float m = 0;

		for (int i = 0; i < K_EACH; i++)
			m = fabsf(b->x[i][j]) > fabsf(m) ? b->x[i][j] : m;
		most[j] = m;
		best[j] = fabsf(m) < DT_LEAST ? 0 : m / K_AT(DT_SEARCH_TRIES / 2);
	}
	K(errors)(b, best, least);
	for (int t = 0; t <= DT_SEARCH_TRIES; t++) {
		K(fit_once)(b, t, most, scale);
		K(errors)(b, scale, error);
		for (int j = 0; j < K_SUBS; j++) {
			const bool better = best[j] != 0 && scale[j] != 0 && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			best[j] = better ? scale[j] : best[j];
		}
	}
}

/* Replaces each s, a scale in units of d, by the best of it and its neighbours. */
static DT_FORMAT_WIDE void K(settle)(const struct K(numbers) * b, float d, int *s)
{
	float least[K_SUBS], scale[K_SUBS], error[K_SUBS];
	int from[K_SUBS];

	for (int j = 0; j < K_SUBS; j++) {
		least[j] = INFINITY;
		from[j] = s[j];
	}
	for (int k = -1; k <= 1; k++) {
		for (int j = 0; j < K_SUBS; j++)
			scale[j] = d * (float)(from[j] + k);
		K(errors)(b, scale, error);
		for (int j = 0; j < K_SUBS; j++) {
			const int to = from[j] + k;
			const bool better = to >= -K_SCALES && to < K_SCALES && error[j] < least[j];

			least[j] = better ? error[j] : least[j];
			s[j] = better ? to : s[j];
		}
	}
}

static DT_FORMAT_WIDE void K(round_off)(const struct K(numbers) * b, float d, const int *s, uint8_t *code)
{
	for (int j = 0; j < K_SUBS; j++) {
		const float inverse = dt_inverse_of(d * (float)s[j]);

		for (int i = 0; i < K_EACH; i++)
			code[K_EACH * j + i] = (uint8_t)K_CODE(b->x[i][j] * inverse);
	}
}

/* Finds d (f16, stored at half), scales and codes of 256 finite numbers. */
static DT_FORMAT_CODE void K(search)(const float *x, const float *w, uint8_t *half, int s[K_SUBS],
				     uint8_t code[256])
{
	float scale[K_SUBS], most = 0, d;
	struct K(numbers) b;

	for (int at = 0; at < 256; at++) {
		b.x[at % K_EACH][at / K_EACH] = x[at];
		b.w[at % K_EACH][at / K_EACH] = w[at];
	}
	K(fit)(&b, scale);
	for (int j = 0; j < K_SUBS; j++)
		most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
	d = dt_put_half(half, most / -K_SCALES);
	for (int j = 0; j < K_SUBS; j++)
		s[j] = d != 0 ? dt_near(scale[j] / d, -K_SCALES, K_SCALES - 1) : 0;
	if (d != 0)
		K(settle)(&b, d, s);
	K(round_off)(&b, d, s, code);
}
#undef K
#undef K_SUBS
#undef K_EACH
#undef K_SCALES
#undef K_AT
#undef K_VALUE
#undef K_CODE
#endif
/* SPDX-License-Identifier: Apache-2.0 */
