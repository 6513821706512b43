/* Noise on embeddings: its range and moments, and that a token's does not depend on where it is computed. */
#include "nn/embed_noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 150, C = 48 };

static void test_moments(void **state)
{
	struct dt_rng rng = dt_rng_make(3, DT_RNG_DROPOUT, 1);
	double sum = 0, squares = 0, n = (double)ROWS * C;
	const float width = 0.25f;
	float row[C], same = 0;

	for (int64_t i = 0; i < ROWS; i++) {
		dt_noise_draw(&rng, i, width, row, C);
		for (int k = 0; k < C; k++) {
			assert_true(fabsf(row[k]) <= width);
			sum += row[k];
			squares += (double)row[k] * row[k];
			same += k && row[k] == row[k - 1];
		}
	}
	if (fabs(sum / n) > 0.01 || fabs(squares / n / (width * width / 3.0) - 1) > 0.05 || same > 5)
		fail_msg("mean %g, variance %g", sum / n, squares / n);
}

/* Rows in another order and number, in each type: the same noise, rounded. */
static void test_rows(void **state)
{
	static float y[ROWS * C], part[C], want[C];
	static uint16_t narrow[ROWS * C];
	static float width[ROWS];
	static int64_t token[ROWS];
	struct dt_noise n = {.rng = dt_rng_make(7, DT_RNG_DROPOUT, 1), .width = width, .token = token};
	struct dt_dev *dev;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 1), 0);
	for (int i = 0; i < ROWS; i++) {
		width[i] = (float)i / ROWS;
		token[i] = 1000000007LL + 13 * i;
		for (int k = 0; k < C; k++)
			y[i * C + k] = 2;
	}
	assert_int_equal(dt_noise_add(dev, &n, dt_t2(y, DT_F32, ROWS, C)), 0);
	assert_int_equal(dt_noise_add(dev, &n, dt_t2(narrow, DT_BF16, ROWS, C)), 0);
	for (int i = ROWS - 1; i >= 0; i--) {
		uint32_t bits;
		float v;

		dt_noise_draw(&n.rng, token[i], width[i], want, C);
		memset(part, 0, sizeof(part));
		assert_int_equal(dt_noise_add(dev, &(struct dt_noise){n.rng, &width[i], &token[i]},
					      dt_t2(part, DT_F32, 1, C)),
				 0);
		for (int k = 0; k < C; k++) {
			bits = (uint32_t)narrow[i * C + k] << 16;
			memcpy(&v, &bits, sizeof(v));
			if (y[i * C + k] != 2 + want[k] || part[k] != want[k] ||
			    fabsf(v - want[k]) > fabsf(want[k]) / 200)
				fail_msg("row %d: %g and %g, not %g", i, y[i * C + k] - 2, v, want[k]);
		}
	}
	dt_dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moments),
		cmocka_unit_test(test_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
