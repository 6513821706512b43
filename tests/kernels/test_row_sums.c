/* Sums over rows on the host against f64 loops, of lengths around the lanes and of a vocabulary. */
#include "check.h"
#include "kernels/row_sums.h"

static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 1000, 50257};

/* Logits between -15 and 15, the largest twice. */
static float *row(uint32_t seed, int64_t n)
{
	float *l = malloc((size_t)n * sizeof *l);

	assert_non_null(l);
	for (int64_t i = 0; i < n; i++)
		l[i] = (float)(15 * rnd(seed, i));
	l[n / 3] = l[n / 2] = 16;
	return l;
}

static double log_sum(const float *l, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += exp((double)l[i]);
	return log(sum);
}

static void test_log_sum(void **state)
{
	for (size_t t = 0; t < sizeof lengths / sizeof *lengths; t++) {
		const int64_t n = lengths[t];
		float *l = row(1, n);
		const double got = dt_row_log_sum(l, n), want = log_sum(l, n);

		if (!(fabs(got - want) <= 1e-7))
			fail_msg("of %lld: %.12g, expected %.12g", (long long)n, got, want);
		assert_int_equal(dt_row_argmax(l, n), n / 3);
		l[n - 1] = 17;
		assert_int_equal(dt_row_argmax(l, n), n - 1);
		l[n - 1] = NAN;
		assert_true(isnan(dt_row_log_sum(l, n)));
		assert_int_equal(dt_row_argmax(l, n), n / 3 < n - 1 ? n / 3 : 0);
		l[n - 1] = -INFINITY;
		assert_true(n == 1 || fabs(dt_row_log_sum(l, n) - log_sum(l, n)) <= 1e-7);
		free(l);
	}
}

static void test_divergence(void **state)
{
	for (size_t t = 0; t < sizeof lengths / sizeof *lengths; t++) {
		const int64_t n = lengths[t];
		float *a = row(2, n), *b = row(3, n);
		double want = 0, got, la, lb;

		for (int64_t i = 0; i < n; i++)
			b[i] = a[i] + b[i] / 10;
		la = log_sum(a, n);
		lb = log_sum(b, n);
		for (int64_t i = 0; i < n; i++)
			want += exp(a[i] - la) * ((a[i] - la) - (b[i] - lb));
		got = dt_row_divergence(a, b, n, la, lb);
		if (!(fabs(got - want) <= 3e-6))
			fail_msg("of %lld: %.12g, expected %.12g", (long long)n, got, want);
		assert_true(n < 15 || want > 1e-3);
		free_all(a, b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_log_sum),
		cmocka_unit_test(test_divergence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
