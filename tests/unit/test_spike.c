/* The detector of spikes: its statistics against plain ones, planted spikes, and long clean curves. */
#include "base/rng.h"
#include "train/spike.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

static char why[128];

static double noise(uint64_t i, int which)
{
	struct dt_rng r = dt_rng_make(7, DT_RNG_INIT, (uint32_t)which);

	return (double)dt_rng_normal(&r, i);
}

static void test_spread(void **state)
{
	const double v[] = {3, 1, 100, 2, 5}, w[] = {4, 1, 2, 3};
	double m;

	/* median 3; distances 0 2 97 1 2, median 2 */
	assert_float_equal(spike_spread(v, 5, &m), 1.4826 * 2, 1e-12);
	assert_float_equal(m, 3, 0);
	assert_float_equal(spike_spread(w, 4, &m), 1.4826 * 1, 1e-12);
	assert_float_equal(m, 2.5, 0);
}

/* A day of training at a step a second: decay, noise of a thirtieth, norms that vary by a fifth. */
static void test_clean(void **state)
{
	static struct spike s;

	memset(&s, 0, sizeof(s));
	for (uint64_t i = 0; i < 86400; i++) {
		double loss = 2 + 9 * exp(-(double)i / 300) + 0.1 * noise(i, 0),
		       norm = (1 + 5 * exp(-(double)i / 100)) * exp(0.2 * noise(i, 1));

		if (spike_look(&s, 128, 10, loss, norm, why, sizeof(why)))
			fail_msg("step %llu: %s", (unsigned long long)i, why);
	}
}

/* Losses and norms that dt-train wrote, warm-up to the end: no alarm; and a spike in it is found at once. */
static void test_recorded(void **state)
{
	FILE *f = fopen(GOLDEN_DIR "/loss-curve.txt", "r");
	static struct spike s, before;
	double loss, norm;
	int n = 0;

	assert_non_null(f);
	memset(&s, 0, sizeof(s));
	while (fscanf(f, "%lf %lf", &loss, &norm) == 2) {
		before = s;
		if (n >= 1000 && n % 50 == 0 &&
		    !spike_look(&before, 128, 10, loss + 2.5, norm, why, sizeof(why)))
			fail_msg("step %d: a loss of %g is no spike", n, loss + 2.5);
		before = s;
		if (n >= 1000 && n % 50 == 0 &&
		    !spike_look(&before, 128, 10, loss, norm * 40, why, sizeof(why)))
			fail_msg("step %d: a norm of %g is no spike", n, norm * 40);
		if (spike_look(&s, 128, 10, loss, norm, why, sizeof(why)))
			fail_msg("step %d: %s", n, why);
		n++;
	}
	fclose(f);
	assert_true(n > 1000);
}

/*
 * Of the steps i = 0, 1 ... after s, whose loss is raised by rise (i + 1) and whose norm is multiplied by
 * grows^(i + 1), the first that is found, counted from 1; 0: none of n.
 */
static int found_after(const struct spike *s, const double (*at)[2], int n, double rise, double grows)
{
	static struct spike copy;

	copy = *s;
	for (int i = 0; i < n; i++)
		if (spike_look(&copy, 128, 10, at[i][0] + rise * (i + 1), at[i][1] * pow(grows, i + 1), why,
			       sizeof(why)))
			return i + 1;
	return 0;
}

/*
 * A week at 15 s a step, recorded by loss_curve.py: no alarm. What is planted in it, every so often, is
 * found: jumps of loss or norm at once, a loss or a norm that runs away within five steps.
 */
static void test_week(void **state)
{
	enum { MOST = 50000, EVERY = 97, SOON = 5 };
	static double at[MOST][2];
	static struct spike s;
	gzFile f = gzopen(GOLDEN_DIR "/loss-week.txt.gz", "rb");
	char line[64];
	int n = 0;

	assert_non_null(f);
	for (; n < MOST && gzgets(f, line, sizeof(line)); n++) {
		assert_int_equal(sscanf(line, "%lf %lf", &at[n][0], &at[n][1]), 2);
		at[n][0] /= 1000;
		at[n][1] /= 1000;
	}
	gzclose(f);
	assert_int_equal(n, 40320);
	memset(&s, 0, sizeof(s));
	for (int i = 0; i < n; i++) {
		if (i >= 1000 && i + SOON < n && i % EVERY == 0) {
			assert_int_equal(found_after(&s, at + i, SOON, 1.5, 1), 1);
			assert_int_equal(found_after(&s, at + i, SOON, 0, 40), 1);
			assert_in_range(found_after(&s, at + i, SOON, 0.25, 1), 1, SOON);
			assert_in_range(found_after(&s, at + i, SOON, 0, 2), 1, SOON);
		}
		if (spike_look(&s, 128, 10, at[i][0], at[i][1], why, sizeof(why)))
			fail_msg("step %d: %s", i + 1, why);
	}
}

static void test_spikes_stay_out(void **state)
{
	static struct spike s;
	int found = 0;

	memset(&s, 0, sizeof(s));
	for (uint64_t i = 0; i < 1000; i++) {
		bool spike = i >= 500 &&
			     i < 600; /* as many in a row as most of the window: the last is still one */

		found += spike_look(&s, 128, 10, (spike ? 6 : 3) + 0.05 * noise(i, 2), 1, why, sizeof(why));
	}
	assert_int_equal(found, 100);
	assert_int_equal(s.n, 128);
}

static void test_json(void **state)
{
	static struct spike s, t;
	json_t *o = json_object();

	memset(&s, 0, sizeof(s));
	for (uint64_t i = 0; i < 100; i++)
		spike_look(&s, 64, 10, 3 + 0.1 * noise(i, 3), 1.5, why, sizeof(why));
	s.bad = 2;
	json_object_set_new(o, "spike", spike_to_json(&s));
	assert_int_equal(spike_from_json(&t, o, 64, NULL), 0);
	assert_memory_equal(&s, &t, sizeof(s));
	json_object_set_new(json_object_get(o, "spike"), "next", json_integer(65));
	assert_true(spike_from_json(&t, o, 64, NULL) < 0);
	json_decref(o);
}

/* A run that resumes with another window goes on from the newest of its values, at most the new window. */
static void test_another_window(void **state)
{
	static const int before[] = {8, 8, 8, 16, 16, 16}, steps[] = {8, 11, 5, 16, 21, 11},
			 after[] = {16, 16, 8, 8, 8, 8};
	static struct spike s, t, want;

	for (size_t i = 0; i < sizeof(before) / sizeof(*before); i++) {
		const int kept = steps[i] < before[i] ? steps[i] : before[i];
		json_t *o = json_object();

		memset(&s, 0, sizeof(s));
		memset(&want, 0, sizeof(want));
		for (int k = 0; k < steps[i]; k++) {
			spike_look(&s, before[i], 1e9, 3 + 0.01 * k, 1.5, why, sizeof(why));
			if (k >= steps[i] - kept)
				spike_look(&want, after[i], 1e9, 3 + 0.01 * k, 1.5, why, sizeof(why));
		}
		json_object_set_new(o, "spike", spike_to_json(&s));
		assert_int_equal(spike_from_json(&t, o, after[i], NULL), 0);
		json_decref(o);
		for (int k = 0; k < 20; k++) {
			double a, b, of_t = spike_spread(t.loss, t.n, &a),
				     of_want = spike_spread(want.loss, want.n, &b);

			assert_int_equal(t.n, want.n);
			assert_float_equal(a, b, 0);
			assert_float_equal(of_t, of_want, 0);
			spike_look(&t, after[i], 1e9, 4 + 0.01 * k, 1.5, why, sizeof(why));
			spike_look(&want, after[i], 1e9, 4 + 0.01 * k, 1.5, why, sizeof(why));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spread),		cmocka_unit_test(test_clean),
		cmocka_unit_test(test_recorded),	cmocka_unit_test(test_week),
		cmocka_unit_test(test_spikes_stay_out), cmocka_unit_test(test_json),
		cmocka_unit_test(test_another_window),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
