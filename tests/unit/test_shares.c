/*
 * Unequal ranks: the best division is no worse than any other, found by trying all; lines through times;
 * rounds of images.
 */
#include "plan/rounds.h"
#include "plan/shares.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, TOTAL = 14 };

/* Uniform on [0, 1), the same in every run. */
static double random_part(uint64_t *at)
{
	*at = *at * 6364136223846793005u + 1442695040888963407u;
	return (double)(*at >> 11) * 0x1p-53;
}

static void test_best(void **state)
{
	uint64_t at = 0;
	for (int k = 0; k < 2000; k++) {
		double fixed[RANKS], each[RANKS], least = INFINITY;
		int64_t n[RANKS], sum = 0, total = RANKS + (int64_t)(random_part(&at) * (TOTAL - RANKS + 1));

		for (int i = 0; i < RANKS; i++) {
			fixed[i] = k % 2 ? 5 * random_part(&at) : 0;
			each[i] = 0.05 + random_part(&at) * (k % 3 ? 1 : 20);
		}
		dt_shares_best(RANKS, fixed, each, 1, total, n);
		for (int i = 0; i < RANKS; i++) {
			assert_true(n[i] >= 1);
			sum += n[i];
		}
		assert_int_equal(sum, total);
		for (int64_t a = 1; a <= total - 2; a++)
			for (int64_t b = 1; b <= total - a - 1; b++)
				least = fmin(least, dt_shares_time(RANKS, fixed, each,
								   (int64_t[]){a, b, total - a - b}));
		assert_true(dt_shares_time(RANKS, fixed, each, n) <= least * (1 + 1e-12));
	}
}

static void test_many(void **state)
{
	double each[512];
	int64_t n[512], sum = 0;

	for (int i = 0; i < 512; i++)
		each[i] = 1 + i % 7;
	dt_shares_best(512, NULL, each, 1, 1000000, n);
	for (int i = 0; i < 512; i++) {
		sum += n[i];
		assert_true(fabs((double)n[i] * each[i] - (double)n[0] * each[0]) <=
			    8); /* all end together */
	}
	assert_int_equal(sum, 1000000);
	dt_shares_best(512, NULL, each, 1, 512, n);
	for (int i = 0; i < 512; i++)
		assert_int_equal(n[i], 1);
}

/* No part of a round is larger than a microbatch, and one image more would make one so. */
static void test_rounds(void **state)
{
	static const struct {
		const char *shares;
		int dp;
		int64_t microbatch, most;
	} cases[] = {{NULL, 3, 8, 24}, {"equal", 3, 8, 24},	   {"1,1,1", 3, 8, 24}, {"2,1", 2, 16, 24},
		     {"1,2", 2, 4, 6}, {"1000,6000,1", 3, 21, 24}, {"1,1e6", 2, 5, 5},	{"3,1,2", 3, 1, 2}};
	struct dt_err err = {0};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const int dp = cases[i].dp;
		const struct dt_run r = {
			.shares = cases[i].shares, .microbatch = cases[i].microbatch, .layout = {.dp = dp}};
		const int64_t most = dt_rounds_most(&r, &err);
		int64_t n[RANKS], more[RANKS], sum = 0, largest[2] = {0};
		double each[RANKS];

		if (most != cases[i].most)
			fail_msg("%s: %lld images at once, not %lld", r.shares, (long long)most,
				 (long long)cases[i].most);
		assert_int_equal(dt_rounds_each(&r, each, &err), 0);
		dt_shares_best(dp, NULL, each, 0, most, n);
		dt_shares_best(dp, NULL, each, 0, most + 1, more);
		for (int k = 0; k < dp; k++) {
			sum += n[k];
			largest[0] = n[k] > largest[0] ? n[k] : largest[0];
			largest[1] = more[k] > largest[1] ? more[k] : largest[1];
		}
		assert_int_equal(sum, most);
		assert_true(largest[0] <= r.microbatch && largest[1] > r.microbatch);
	}
	/* Rounds are equal but for an image, and are the batch. */
	for (int64_t batch = 0; batch < 40; batch++)
		for (int64_t rounds = 1; rounds < 9; rounds++)
			for (int64_t k = 0; k < rounds; k++) {
				const int64_t n = dt_rounds_first(batch, rounds, k + 1) -
						  dt_rounds_first(batch, rounds, k);

				assert_true(n == batch / rounds || n == batch / rounds + 1);
				assert_int_equal(dt_rounds_first(batch, rounds, rounds), batch);
			}
}

static void test_line(void **state)
{
	struct dt_shares_fit f = {0};
	double fixed, each;

	assert_false(dt_shares_line(&f, &fixed, &each));
	dt_shares_add(&f, 4, 2 + 0.5 * 4);
	assert_true(dt_shares_line(&f, &fixed, &each)); /* one point: all of it is for the microbatches */
	assert_true(fixed == 0 && fabs(each - 1) < 1e-12);
	dt_shares_add(&f, 2, 2 + 0.5 * 2);
	assert_true(dt_shares_line(&f, &fixed, &each));
	assert_true(fabs(fixed - 2) < 1e-9 && fabs(each - 0.5) < 1e-9);
	for (int i = 0; i < 200; i++) /* another machine: the old times are forgotten */
		dt_shares_add(&f, 3 + i % 2, 7 * (3 + i % 2));
	assert_true(dt_shares_line(&f, &fixed, &each));
	assert_true(fabs(fixed) < 1e-6 && fabs(each - 7) < 1e-6);
	memset(&f, 0, sizeof(f));
	dt_shares_add(&f, 1, 5);
	dt_shares_add(&f, 9, 1); /* noise */
	assert_true(dt_shares_line(&f, &fixed, &each) && fixed >= 0 && each > 0);
}

static void test_parse(void **state)
{
	static const char *const bad[] = {"",	  "3",	 "3,1,2", "3,",	   ",1",  "3,0",
					  "3,-1", "3,x", "3,nan", "3,inf", "3;1", "1e300,1"};
	struct dt_err err = {0};
	double v[2];

	assert_int_equal(dt_shares_parse("3,0.5", 2, v, &err), 0);
	assert_true(v[0] == 3 && v[1] == 0.5);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_true(dt_shares_parse(bad[i], 2, v, &err) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_best), cmocka_unit_test(test_many),  cmocka_unit_test(test_rounds),
		cmocka_unit_test(test_line), cmocka_unit_test(test_parse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
