/*
 * Blocks of 256 whose scales are found by search: each sub-block's scale (and minimum) is the weighted
 * least-squares fit to the best of about twenty roundings, then rounded to the integer that is better than
 * its neighbours. Squared errors are weighted by importance [n]; if that is NULL, larger elements weigh more.
 * Deterministic, the same on every processor. NaN and Inf count as 0. n is a multiple of 256.
 *
 * Sub-blocks are searched together: their numbers are stored as [element][sub-block], each loop over
 * sub-blocks is outermost, and a condition selects a value instead of leaving the loop. Compilers make vector
 * instructions of that, and each sub-block's sums keep the order of its elements.
 */
#ifndef DT_KERNELS_FORMAT_SEARCH_H
#define DT_KERNELS_FORMAT_SEARCH_H

#include "kernels/format/format.h"

#define DT_SEARCH_TRIES 20     /* number of roundings tried around the default one */
#define DT_LEAST	1e-30f /* smaller scales count as 0: the inverse would overflow */

static inline DT_FORMAT_CODE float dt_inverse_of(float x)
{
	return fabsf(x) > DT_LEAST ? 1 / x : 0;
}

/* Rounds to nearest within [low, top]; NaN becomes low. */
static inline DT_FORMAT_CODE int dt_near(float q, int low, int top)
{
	q = q > (float)low ? q : (float)low;
	q = q > (float)top ? (float)top : q;
	return (int)(q + 128.5f) - 128;
}

static inline DT_FORMAT_CODE void dt_take_finite(const float *src, int n, float *x)
{
	for (int i = 0; i < n; i++)
		x[i] = isfinite(src[i]) ? src[i] : 0;
}

/* Signs of eight numbers from seven of them: the number of negative ones is even. */
static inline DT_FORMAT_CODE uint8_t dt_even_signs(unsigned seven)
{
	unsigned odd = seven ^ seven >> 4;

	odd ^= odd >> 2;
	odd ^= odd >> 1;
	return (uint8_t)(seven | (odd & 1) << 7);
}

/*
 * Weights of 256 finite numbers where the caller has no importance: the RMS of the element's sub-block, of
 * `each` elements, plus its magnitude.
 */
static inline DT_FORMAT_CODE void dt_own_weights(const float *x, int each, float *w)
{
	for (int j = 0; j < 256; j += each) {
		float sum = 0;

		for (int i = j; i < j + each; i++)
			sum += x[i] * x[i];
		sum = sqrtf(sum / (float)each);
		for (int i = j; i < j + each; i++)
			w[i] = sum + fabsf(x[i]);
	}
}

/* q4_k and q5_k (k_min.c). */
void dt_k_min_decode(const struct dt_format_traits *t, const uint8_t *s, int64_t n, float *y);
void dt_k_min_encode(const struct dt_format_traits *t, const float *x, int64_t n, uint8_t *out);
void dt_k_min_weighted(const struct dt_format_traits *t, const float *x, const float *w, uint8_t *out);
void dt_k_min_put(const struct dt_format_traits *t, const uint8_t *code, uint8_t *block);
void dt_k_min_piece(const struct dt_format_traits *t, struct dt_panel_piece *r, const uint8_t *block, int j);
void dt_k_min_scales(const uint8_t *block, float step[16], float min[16]);
#define DT_K_MIN                                                                                             \
	.decode = dt_k_min_decode, .encode = dt_k_min_encode, .weighted = dt_k_min_weighted,                 \
	.put = dt_k_min_put, .piece = dt_k_min_piece, .scales = dt_k_min_scales

#endif
/* SPDX-License-Identifier: Apache-2.0 */
