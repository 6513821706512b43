/* The gradient noise scale of synthetic gradients whose mean and covariance are known. */
#include "base/rng.h"
#include "train/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

enum { DIM = 400, RANKS = 4 };

/* Steps of gradients G + sigma N(0, 1) a sample; the mean of b samples is drawn at once. */
static double measured(double sigma, double batch, int steps)
{
	struct dt_rng r = dt_rng_make(11, DT_RNG_INIT, 0);
	const double b = batch / RANKS;
	struct noise x = {0};
	uint64_t at = 0;

	for (int s = 0; s < steps; s++) {
		double own = 0, all = 0, sum[DIM] = {0};

		for (int k = 0; k < RANKS; k++)
			for (int i = 0; i < DIM; i++) {
				double g = 0.1 * cos(i) + sigma / sqrt(b) * (double)dt_rng_normal(&r, at++);

				own += g / RANKS * (g / RANKS);
				sum[i] += g / RANKS;
			}
		for (int i = 0; i < DIM; i++)
			all += sum[i] * sum[i];
		noise_add(&x, batch, RANKS, own, all);
	}
	return noise_known(&x) ? noise_scale(&x) : NAN;
}

static double expected(double sigma)
{
	double square = 0;

	for (int i = 0; i < DIM; i++)
		square += 0.01 * cos(i) * cos(i);
	return DIM * sigma * sigma / square;
}

static void test_known(void **state)
{
	const double sigma[] = {0.1, 0.5, 1};

	for (int i = 0; i < 3; i++) {
		double got = measured(sigma[i], 64, 200), want = expected(sigma[i]);

		if (!(fabs(got / want - 1) < 0.1))
			fail_msg("sigma %g: %g samples, want %g", sigma[i], got, want);
	}
}

/* Equal gradients have no noise, opposite ones no signal: neither has a scale. */
static void test_unknown(void **state)
{
	struct noise x = {0};

	assert_false(noise_known(&x));
	noise_add(&x, 8, 2, 2 * 0.25, 1);
	assert_false(noise_known(&x));
	x = (struct noise){0};
	noise_add(&x, 8, 2, 2 * 0.25, 0);
	assert_false(noise_known(&x));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_known), cmocka_unit_test(test_unknown)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
