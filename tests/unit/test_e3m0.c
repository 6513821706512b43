/* Numbers in 4 bits against a search over all that there are. */
#include "base/rng.h"
#include "comm/e3m0.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { N = 1000 }; /* the last block is not full */

static float nearest(float x, float scale)
{
	float best = 0;

	for (int e = 1; e < 8; e++)
		for (int sign = -1; sign < 2; sign += 2) {
			const float y = (float)sign * ldexpf(scale, e - 7);

			if (fabsf(x - y) < fabsf(x - best))
				best = y;
		}
	return best;
}

static void test_nearest(void **state)
{
	const struct dt_rng r = dt_rng_make(3, DT_RNG_TEST, 1);
	struct dt_e3m0 block[(N + DT_E3M0_BLOCK - 1) / DT_E3M0_BLOCK];
	float x[N], y[N];

	for (int i = 0; i < N; i++) {
		x[i] = dt_rng_normal(&r, (uint64_t)i) * expf(2 * dt_rng_normal(&r, (uint64_t)(N + i)));
		y[i] = 1;
	}
	dt_e3m0_put(block, x, N);
	dt_e3m0_add(y, block, N);
	for (int i = 0; i < N; i++) {
		float most = 0;

		for (int k = i / DT_E3M0_BLOCK * DT_E3M0_BLOCK;
		     k < N && k / DT_E3M0_BLOCK == i / DT_E3M0_BLOCK; k++)
			most = fmaxf(most, fabsf(x[k]));
		assert_true(block[i / DT_E3M0_BLOCK].scale == most);
		assert_true(y[i] == 1 + nearest(x[i], most));
	}
}

static void test_ends(void **state)
{
	struct dt_e3m0 b;
	float x[5] = {0, 0, 0, 0, 0}, y[5] = {1, 2, 3, 4, 5};

	dt_e3m0_put(&b, x, 5);
	dt_e3m0_add(y, &b, 5);
	assert_true(y[0] == 1 && y[4] == 5);
	x[0] = 0x1p-140f; /* below the normal numbers */
	x[1] = -0x1p-140f;
	dt_e3m0_put(&b, x, 5);
	memset(y, 0, sizeof(y));
	dt_e3m0_add(y, &b, 5);
	assert_true(y[0] == x[0] && y[1] == x[1] && y[2] == 0);
	for (int k = 0; k < 2; k++) { /* what is not finite stays seen */
		x[3] = k ? NAN : -INFINITY;
		dt_e3m0_put(&b, x, 5);
		memset(y, 0, sizeof(y));
		dt_e3m0_add(y, &b, 5);
		for (int i = 0; i < 5; i++)
			assert_true(isnan(y[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_nearest), cmocka_unit_test(test_ends)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
