/* The number of servers that a load asks for, against a clock of the test's own. */
#include "route/scale.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static const struct dt_scale_rule plain = {.least = 1,
					   .most = 10,
					   .requests = 8,
					   .band = 0.25,
					   .up_after = 5,
					   .down_after = 60,
					   .zero_after = 100};

/* The same load every second of from to below to. Returns the number in the end. */
static int hold(struct dt_scale *s, const struct dt_scale_rule *rule, int load, int from, int to)
{
	for (int t = from; t < to; t++)
		dt_scale_step(s, rule, load, t);
	return s->wanted;
}

static void test_bands(void **state)
{
	struct dt_scale s;

	dt_scale_init(&s, &plain, 4, 0);
	/* 4 servers: more over 4 * 8 * 1.25 = 40, fewer from ceil(load / 6) = 3 on, which is 18 */
	assert_int_equal(hold(&s, &plain, 40, 0, 1000), 4);
	assert_int_equal(hold(&s, &plain, 19, 1000, 2000), 4);
	assert_int_equal(hold(&s, &plain, 41, 2000, 2006), 6); /* ceil(41 / 8) */
	dt_scale_init(&s, &plain, 4, 0);
	assert_int_equal(hold(&s, &plain, 18, 0, 60), 4);
	assert_int_equal(dt_scale_step(&s, &plain, 18, 60), 3);
	assert_int_equal(hold(&s, &plain, 18, 61, 1000), 3); /* 18 of 3 * 8: within both bands */
}

static void test_a_load_within_the_bands_never_flaps(void **state)
{
	struct dt_scale s;

	dt_scale_init(&s, &plain, 4, 0);
	for (int t = 0; t < 10000; t++)
		assert_int_equal(dt_scale_step(&s, &plain, 19 + t % 22, t), 4);
}

static void test_peaks_and_pauses_are_passed_over(void **state)
{
	struct dt_scale s;

	dt_scale_init(&s, &plain, 2, 0);
	for (int t = 0; t < 3000; t++) /* four seconds of five far too much, or nothing for 50 of 60 */
		assert_int_equal(dt_scale_step(&s, &plain, t % 5 ? 70 : 16, t), 2);
	for (int t = 3000; t < 9000; t++)
		assert_int_equal(dt_scale_step(&s, &plain, t % 60 < 50 ? 1 : 16, t), 2);
}

static void test_the_least_peak_up_and_the_most_down(void **state)
{
	struct dt_scale s;

	dt_scale_init(&s, &plain, 1, 0);
	hold(&s, &plain, 80, 0, 3);
	hold(&s, &plain, 24, 3, 4);
	assert_int_equal(hold(&s, &plain, 80, 4, 6), 3); /* 24 was there all the time */
	dt_scale_init(&s, &plain, 8, 0);
	hold(&s, &plain, 1, 0, 30);
	hold(&s, &plain, 18, 30, 31);
	assert_int_equal(hold(&s, &plain, 1, 31, 61), 3);  /* 18 / 6: what the time before needed at most */
	assert_int_equal(hold(&s, &plain, 1, 61, 121), 3); /* and the time starts anew */
	assert_int_equal(hold(&s, &plain, 1, 121, 123), 1);
}

static void test_zero(void **state)
{
	struct dt_scale_rule rule = plain;
	struct dt_scale s;

	dt_scale_init(&s, &plain, 1, 0);
	assert_int_equal(hold(&s, &plain, 0, 0, 1000), 1); /* least is 1 */
	rule.least = 0;
	dt_scale_init(&s, &rule, 3, 0);
	dt_scale_step(&s, &rule, 1, 0);
	assert_int_equal(hold(&s, &rule, 0, 1, 60), 3);
	assert_int_equal(hold(&s, &rule, 0, 60, 100), 1); /* one stays until zero_after */
	assert_int_equal(dt_scale_step(&s, &rule, 0, 100), 0);
	assert_int_equal(hold(&s, &rule, 0, 101, 500), 0);
	assert_int_equal(dt_scale_step(&s, &rule, 1, 500), 1); /* at once */
	assert_int_equal(hold(&s, &rule, 0, 501, 600), 1);     /* since the last request */
	assert_int_equal(dt_scale_step(&s, &rule, 0, 600), 0);
	assert_int_equal(dt_scale_step(&s, &rule, 17, 601), 3);
}

static void test_spares(void **state)
{
	struct dt_scale_rule rule = plain;
	struct dt_scale s;

	rule.least = 0;
	rule.spares = 2;
	dt_scale_init(&s, &rule, 0, 0);
	assert_int_equal(s.wanted, 2);
	assert_int_equal(hold(&s, &rule, 0, 0, 5000), 2);
	assert_int_equal(hold(&s, &rule, 1, 5000, 5010), 3); /* one for the load, two for what may come */
	assert_int_equal(hold(&s, &rule, 10, 5010, 6000), 3);
	assert_int_equal(hold(&s, &rule, 11, 6000, 6010), 4);
	assert_int_equal(hold(&s, &rule, 1000, 6010, 6020), 10); /* never over most */
}

static void test_a_new_rule_counts_at_once(void **state)
{
	struct dt_scale_rule rule = plain;
	struct dt_scale s;

	dt_scale_init(&s, &rule, 5, 0);
	rule.most = 3;
	assert_int_equal(dt_scale_step(&s, &rule, 40, 1), 3);
	rule.least = rule.most = 7;
	assert_int_equal(dt_scale_step(&s, &rule, 0, 2), 7);
}

/* Whatever comes: within the bounds, and a load that stays ends within its bands. */
static void test_any_load(void **state)
{
	uint32_t seed = 12345;

	for (int run = 0; run < 200; run++) {
		struct dt_scale_rule rule = plain;
		struct dt_scale s;
		int load = 0, t = 0;

		rule.least = (int)((seed = seed * 1664525 + 1013904223) >> 16) % 3;
		rule.spares = (int)((seed = seed * 1664525 + 1013904223) >> 16) % 3;
		dt_scale_init(&s, &rule, run % 12, 0);
		for (; t < 500; t++) {
			int n;

			load = (int)((seed = seed * 1664525 + 1013904223) >> 16) % 100;
			n = dt_scale_step(&s, &rule, load, t);
			assert_in_range(n, rule.least > rule.spares ? rule.least : rule.spares, rule.most);
		}
		hold(&s, &rule, load, t, t + 400);
		if (load > 0 && s.wanted < rule.most) /* enough */
			assert_true(load <= (s.wanted - rule.spares) * rule.requests * (1 + rule.band));
		if (s.wanted > rule.least && s.wanted - rule.spares > 1) /* and with one fewer too much */
			assert_true(load > (s.wanted - rule.spares - 1) * rule.requests * (1 - rule.band));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bands),
		cmocka_unit_test(test_a_load_within_the_bands_never_flaps),
		cmocka_unit_test(test_peaks_and_pauses_are_passed_over),
		cmocka_unit_test(test_the_least_peak_up_and_the_most_down),
		cmocka_unit_test(test_zero),
		cmocka_unit_test(test_spares),
		cmocka_unit_test(test_a_new_rule_counts_at_once),
		cmocka_unit_test(test_any_load),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
