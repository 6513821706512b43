#include "data/augment.h"

#include "base/rng.h"

#include <math.h>
#include <string.h>

/* Random draws of sample n: numbers n * DRAWS .. of a uniform and of a normal stream. */
#define DRAWS 256
enum { AT_KIND, AT_TOP, AT_LEFT, AT_SHARE, AT_GAMMA };
#define ATTEMPTS 60 /* of the rejection sampling, for two gammas: all fail with probability under 10^-60 */

struct draws {
	struct dt_rng uniform, normal;
	uint64_t first;
};

static double uniform(const struct draws *d, int at)
{
	return dt_rng_uniform(&d->uniform, d->first + (uint64_t)at);
}

/* Draws Gamma(alpha, 1): Marsaglia and Tsang 2000; for alpha < 1 as Gamma(alpha + 1) U^(1 / alpha). */
static double gamma_draw(const struct draws *d, double alpha, int at)
{
	double boost = alpha < 1 ? pow(1 - uniform(d, at), 1 / alpha) : 1,
	       m = (alpha < 1 ? alpha + 1 : alpha) - 1. / 3, c = 1 / sqrt(9 * m);

	for (int k = 1; k <= ATTEMPTS; k++) {
		double x = dt_rng_normal(&d->normal, d->first + (uint64_t)(at + k)), v = 1 + c * x,
		       u = 1 - uniform(d, at + k);

		v = v * v * v;
		if (v > 0 && log(u) < 0.5 * x * x + m - m * v + m * log(v))
			return boost * m * v;
	}
	return boost * m;
}

static double beta_draw(const struct draws *d, double alpha)
{
	double x, y;

	if (alpha == 1)
		return uniform(d, AT_SHARE);
	x = gamma_draw(d, alpha, AT_GAMMA);
	y = gamma_draw(d, alpha, AT_GAMMA + ATTEMPTS + 1);
	return x + y > 0 ? x / (x + y) : 1;
}

/* One side of the box: of length part * n, around a random centre, clipped. */
static void side(const struct draws *d, int at, int n, double part, int *first, int *length)
{
	int cut = (int)(n * part), centre = (int)(uniform(d, at) * n), low = centre - cut / 2,
	    high = centre + cut / 2;

	low = low < 0 ? 0 : low;
	high = high > n ? n : high;
	*first = low;
	*length = high - low;
}

struct dt_augment_mix dt_augment_mix(const struct dt_augment *a, uint64_t seed, int64_t n)
{
	struct draws d = {dt_rng_make(seed, DT_RNG_AUGMENT, 1), dt_rng_make(seed, DT_RNG_AUGMENT, 2),
			  (uint64_t)n * DRAWS};
	struct dt_augment_mix m = {.share = 1};
	bool cut = a->cutmix > 0;
	double share;

	if (!cut && a->mixup <= 0)
		return m;
	if (cut && a->mixup > 0)
		cut = uniform(&d, AT_KIND) < 0.5;
	share = beta_draw(&d, cut ? a->cutmix : a->mixup);
	if (!cut) {
		m.share = (float)share;
		return m;
	}
	side(&d, AT_TOP, a->height, sqrt(1 - share), &m.box.top, &m.box.height);
	side(&d, AT_LEFT, a->width, sqrt(1 - share), &m.box.left, &m.box.width);
	if (!m.box.height || !m.box.width)
		m.box = (struct dt_image_box){0};
	m.share = (float)(1 - (double)m.box.height * m.box.width / ((double)a->height * a->width));
	return m;
}

void dt_augment_blend(const struct dt_augment *a, struct dt_augment_mix m, int channels, const float *x,
		      const float *partner, float *out)
{
	size_t plane = (size_t)a->height * (size_t)a->width, all = (size_t)channels * plane;

	if (m.box.height) {
		if (out != x)
			memcpy(out, x, all * sizeof(*out));
		for (int c = 0; c < channels; c++)
			for (int r = 0; r < m.box.height; r++) {
				size_t at = (size_t)c * plane + (size_t)(m.box.top + r) * (size_t)a->width +
					    (size_t)m.box.left;

				memcpy(out + at, partner + at, (size_t)m.box.width * sizeof(*out));
			}
		return;
	}
	for (size_t i = 0; i < all; i++)
		out[i] = m.share * x[i] + (1 - m.share) * partner[i];
}
/* SPDX-License-Identifier: Apache-2.0 */
