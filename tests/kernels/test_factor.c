/* Adafactor's sums and its direction: those of plain loops, whatever the number of threads. */
#include "check.h"

static struct dt_dev *one, *many;

/* Sums of elements first .. first + n, in front of them what earlier elements gave. */
static void sums(struct dt_dev *dev, double *to, struct dt_tensor g, const struct dt_factor *f)
{
	for (int64_t i = 0; i < f->rows + f->cols; i++)
		to[i] = 1. / (double)(i + 3);
	assert_int_equal(dev->ops->factor_sums(dev, to, to + f->rows, g, f), 0);
}

static void test_sums(void **state)
{
	static const struct {
		int64_t rows, cols, first, n;
	} cases[] = {
		{1, 1, 0, 1},	     {40, 300, 0, 12000},     {40, 301, 0, 12040}, {41, 300, 77, 12100},
		{9000, 1, 0, 9000},  {9000, 3, 1, 26998},     {1, 9001, 0, 9001},  {2, 9001, 9000, 2},
		{3, 9001, 17, 9100}, {700, 33, 33 * 9, 9000}, {50, 17, 5, 100},	   {16, 1000, 8000, 8000},
	};

	for (int c = 0; c < (int)(sizeof cases / sizeof *cases); c++) {
		const struct dt_factor f = {cases[c].rows, cases[c].cols, cases[c].first, 0.75f, 0};
		struct dt_tensor g = random_tensor(DT_F32, 1, cases[c].n, 1, 1);
		double *a = reals(f.rows + f.cols), *b = reals(f.rows + f.cols),
		       *plain = reals(f.rows + f.cols);
		double *row = reals(f.rows);

		for (int64_t i = 0; i < f.rows + f.cols; i++)
			plain[i] = 1. / (double)(i + 3);
		for (int64_t i = 0; i < f.rows; i++)
			row[i] = 0;
		for (int64_t i = 0; i < cases[c].n; i++) {
			const double d = 0.75 * get(g, i), square = d * d + 1e-30;

			row[(f.first + i) / f.cols] += square;
			plain[f.rows + (f.first + i) % f.cols] += square;
		}
		for (int64_t i = 0; i < f.rows; i++)
			plain[i] += row[i];
		sums(one, a, g, &f);
		sums(many, b, g, &f);
		for (int64_t i = 0; i < f.rows + f.cols; i++) {
			if (a[i] != b[i])
				fail_msg("case %d, sum %lld: %.17g on one thread, %.17g on many", c,
					 (long long)i, a[i], b[i]);
			/* multiply-adds round once where the plain loop rounds twice */
			if (fabs(a[i] - plain[i]) > 1e-15 * 64 * plain[i])
				fail_msg("case %d, sum %lld: %.17g, by hand %.17g", c, (long long)i, a[i],
					 plain[i]);
		}
		free_all(g.data, a, b, plain, row);
	}
}

static void test_direction(void **state)
{
	static const struct {
		int64_t rows, cols, first, n;
	} cases[] = {{1, 1, 0, 1},
		     {40, 300, 0, 12000},
		     {41, 300, 77, 12100},
		     {9000, 3, 1, 26998},
		     {3, 9001, 17, 9100}};

	for (int c = 0; c < (int)(sizeof cases / sizeof *cases); c++) {
		const struct dt_factor f = {cases[c].rows, cases[c].cols, cases[c].first, 0.75f, 3.5};
		struct dt_tensor g = random_tensor(DT_F32, 1, cases[c].n, 1, 1), g1 = copy_of(g),
				 r = tensor(DT_F32, 1, f.rows), q = tensor(DT_F32, 1, f.cols);
		double *by_hand = reals(cases[c].n);

		for (int64_t i = 0; i < f.rows; i++)
			put(r, i, 0.01 * (double)(i % 50 + 1));
		for (int64_t i = 0; i < f.cols; i++)
			put(q, i, 0.02 * (double)(i % 70 + 1));
		for (int64_t i = 0; i < cases[c].n; i++)
			by_hand[i] =
				0.75 * get(g, i) /
				sqrt(get(r, (f.first + i) / f.cols) * get(q, (f.first + i) % f.cols) / f.sum);
		assert_int_equal(one->ops->factor_direction(one, g1, r, q, &f), 0);
		assert_int_equal(many->ops->factor_direction(many, g, r, q, &f), 0);
		check_same_bits("direction over threads", g, g1);
		check_close("direction", g, by_hand, 0, 1e-7);
		free_all(g.data, g1.data, r.data, q.data, by_hand);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sums),
		cmocka_unit_test(test_direction),
	};
	int rc;

	one = open_device(1);
	many = open_device(5);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(one);
	dt_dev_close(many);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
