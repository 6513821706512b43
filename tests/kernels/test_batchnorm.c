/*
 * Batch norm against f64: statistics of groups, the fused sum and ReLU, gradients by finite differences of
 * the reference, and parts of a batch merged as ranks merge them.
 */
#include "check.h"

static struct dt_dev *dev;

#define EPS 1e-5

/* Mean and sum of squared deviations of rows [first, first + n) of column j. */
static void ref_stats(const double *x, int64_t c, int64_t first, int64_t n, int64_t j, double *m, double *q)
{
	*m = *q = 0;
	for (int64_t r = first; r < first + n; r++)
		*m += x[r * c + j] / (double)n;
	for (int64_t r = first; r < first + n; r++)
		*q += (x[r * c + j] - *m) * (x[r * c + j] - *m);
}

static void ref_forward(double *y, const double *x, const double *res, const double *gamma,
			const double *beta, int64_t rows, int64_t c, int64_t groups, bool relu)
{
	const int64_t n = rows / groups;

	for (int64_t g = 0; g < groups; g++)
		for (int64_t j = 0; j < c; j++) {
			double m, q;

			ref_stats(x, c, g * n, n, j, &m, &q);
			for (int64_t r = g * n; r < (g + 1) * n; r++) {
				double z =
					gamma[j] * (x[r * c + j] - m) / sqrt(q / (double)n + EPS) + beta[j];

				z += res ? res[r * c + j] : 0;
				y[r * c + j] = relu && z < 0 ? 0 : z;
			}
		}
}

/* Sum of y dy, whose gradients are what backward gives. */
static double energy(const double *x, const double *res, const double *gamma, const double *beta,
		     const double *dy, double *y, int64_t rows, int64_t c, int64_t groups, bool relu)
{
	double e = 0;

	ref_forward(y, x, res, gamma, beta, rows, c, groups, relu);
	for (int64_t i = 0; i < rows * c; i++)
		e += y[i] * dy[i];
	return e;
}

struct sums {
	struct dt_tensor mean, rstd, q, sum, dot;
};

static struct sums sums_of(int64_t groups, int64_t c)
{
	return (struct sums){tensor(DT_F32, groups, c), tensor(DT_F32, groups, c), tensor(DT_F32, groups, c),
			     tensor(DT_F32, groups, c), tensor(DT_F32, groups, c)};
}

static void sums_free(struct sums *s)
{
	free_all(s->mean.data, s->rstd.data, s->q.data, s->sum.data, s->dot.data);
}

static void to_rstd(struct sums *s, double n)
{
	for (int64_t i = 0; i < dt_numel(s->q); i++)
		put(s->rstd, i, 1 / sqrt(get(s->q, i) / n + EPS));
}

static void one(int64_t rows, int64_t c, int64_t groups, enum dt_dtype type, bool relu, bool add)
{
	struct dt_tensor x = random_tensor(type, rows, c, 1, 2), dy = random_tensor(type, rows, c, 2, 1),
			 gamma = random_tensor(type, 1, c, 3, 1), beta = random_tensor(type, 1, c, 4, 1),
			 res = add ? random_tensor(type, rows, c, 5, 1) : DT_NONE, y = tensor(type, rows, c),
			 dx = tensor(type, rows, c), dres = add ? tensor(type, rows, c) : DT_NONE;
	struct sums s = sums_of(groups, c);
	double *fx, *fg = values(gamma), *fb = values(beta), *fdy = values(dy),
		    *fr = add ? values(res) : NULL, *fy = reals(rows * c), *want = reals(rows * c),
		    *dg = reals(c), *db = reals(c), n;
	const double h = 1e-6, loose = type == DT_F32 ? 3e-5 : type == DT_F16 ? 4e-3 : 3e-2;
	struct dt_bn p = {x, y, s.mean, s.rstd, gamma, relu};

	for (int64_t i = 0; i < rows * c; i++)
		put(x, i, get(x, i) + (double)(i % c)); /* means apart from zero */
	fx = values(x);
	n = (double)(rows / groups);
	assert_int_equal(dev->ops->bn_stats(dev, s.mean, s.q, x), 0);
	for (int64_t i = 0; i < groups * c; i++) {
		double m, q;

		ref_stats(fx, c, i / c * (rows / groups), rows / groups, i % c, &m, &q);
		if (fabs(get(s.mean, i) - m) > 1e-5 * (1 + fabs(m)) || fabs(get(s.q, i) - q) > 2e-5 * (q + 1))
			fail_msg("statistics %lld: got %.9g and %.9g, want %.9g and %.9g", (long long)i,
				 get(s.mean, i), get(s.q, i), m, q);
	}
	to_rstd(&s, n);
	assert_int_equal(dev->ops->bn_forward(dev, &p, res, beta), 0);
	ref_forward(want, fx, fr, fg, fb, rows, c, groups, relu);
	check_close("y", y, want, 2e-5, 1e-5);
	assert_int_equal(dev->ops->bn_sums(dev, s.sum, s.dot, dy, &p), 0);
	assert_int_equal(dev->ops->bn_backward(dev, dx, dres, dy, s.sum, s.dot, n, &p), 0);
	/* the mask of the ReLU is that of the rounded y: keep the differences away from its edge */
	for (int64_t i = 0; i < rows * c; i++) {
		double a, b, old = fx[i];

		fx[i] = old + h;
		a = energy(fx, fr, fg, fb, fdy, fy, rows, c, groups, relu);
		fx[i] = old - h;
		b = energy(fx, fr, fg, fb, fdy, fy, rows, c, groups, relu);
		fx[i] = old;
		want[i] = (a - b) / (2 * h);
	}
	check_close("dx", dx, want, loose, loose);
	for (int64_t j = 0; j < c; j++)
		for (int64_t g = 0; g < groups; g++) {
			dg[j] += get(s.dot, g * c + j);
			db[j] += get(s.sum, g * c + j);
		}
	for (int64_t j = 0; j < c; j++) {
		double a, b, old = fg[j];

		fg[j] = old + h;
		a = energy(fx, fr, fg, fb, fdy, fy, rows, c, groups, relu);
		fg[j] = old - h;
		b = energy(fx, fr, fg, fb, fdy, fy, rows, c, groups, relu);
		fg[j] = old;
		if (fabs((a - b) / (2 * h) - dg[j]) > loose * (1 + fabs(dg[j])) * 4)
			fail_msg("dgamma %lld: got %.9g, want %.9g", (long long)j, dg[j], (a - b) / (2 * h));
		old = fb[j];
		fb[j] = old + h;
		a = energy(fx, fr, fg, fb, fdy, fy, rows, c, groups, relu);
		fb[j] = old - h;
		b = energy(fx, fr, fg, fb, fdy, fy, rows, c, groups, relu);
		fb[j] = old;
		if (fabs((a - b) / (2 * h) - db[j]) > loose * (1 + fabs(db[j])) * 4)
			fail_msg("dbeta %lld: got %.9g, want %.9g", (long long)j, db[j], (a - b) / (2 * h));
	}
	ref_forward(fy, fx, fr, fg, fb, rows, c, groups, relu);
	for (int64_t i = 0; i < rows * c && add; i++)
		want[i] = relu && !(get(y, i) > 0) ? 0 : fdy[i];
	if (add)
		check_close("dresidual", dres, want, 0, 0);
	sums_free(&s);
	free_all(x.data, dy.data, gamma.data, beta.data, res.data, y.data, dx.data, dres.data, fx, fg, fb,
		 fdy, fr, fy, want, dg, db);
}

static void test_shapes(void **state)
{
	static const int64_t shape[][3] = {{12, 3, 1}, {30, 7, 3}, {150, 5, 2}, {4, 17, 2}};

	for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
		for (int t = 0; t < TYPES; t++)
			for (int k = 0; k < 4; k++)
				one(shape[i][0], shape[i][1], shape[i][2], compute_types[t], k & 1, k & 2);
}

/* A mean a thousand times the deviation keeps its digits. */
static void test_far_mean(void **state)
{
	enum { ROWS = 5000, C = 3 };
	struct dt_tensor x = tensor(DT_F32, ROWS, C);
	struct sums s = sums_of(1, C);
	double *fx, m, q;

	for (int64_t i = 0; i < ROWS * C; i++)
		put(x, i, 1000 + rnd(1, i));
	fx = values(x);
	assert_int_equal(dev->ops->bn_stats(dev, s.mean, s.q, x), 0);
	for (int64_t j = 0; j < C; j++) {
		ref_stats(fx, C, 0, ROWS, j, &m, &q);
		if (fabs(get(s.q, j) - q) > 1e-3 * q)
			fail_msg("squared deviations: got %.9g, want %.9g", get(s.q, j), q);
	}
	sums_free(&s);
	free_all(x.data, fx);
}

/* Constant statistics: dx is gamma rstd dz, in place. No rows: nothing happens, sums are zero. */
static void test_constant(void **state)
{
	enum { ROWS = 40, C = 6 };
	struct dt_tensor x = random_tensor(DT_F32, ROWS, C, 1, 1), dy = random_tensor(DT_F32, ROWS, C, 2, 1),
			 gamma = random_tensor(DT_F32, 1, C, 3, 1), none = x;
	struct sums s = sums_of(1, C);
	double *want = values(dy);
	struct dt_bn p = {x, x, s.mean, s.rstd, gamma, false};

	for (int64_t j = 0; j < C; j++) {
		put(s.mean, j, 0.5);
		put(s.rstd, j, 2 + (double)j);
	}
	for (int64_t i = 0; i < ROWS * C; i++)
		want[i] *= get(gamma, i % C) * (2 + (double)(i % C));
	assert_int_equal(dev->ops->bn_backward(dev, dy, DT_NONE, dy, DT_NONE, DT_NONE, 0, &p), 0);
	check_close("dx", dy, want, 1e-6, 1e-6);
	none.dim[0] = 0;
	p.x = p.y = none;
	assert_int_equal(dev->ops->bn_stats(dev, s.mean, s.q, none), 0);
	assert_int_equal(dev->ops->bn_sums(dev, s.sum, s.dot, none, &p), 0);
	for (int64_t j = 0; j < C; j++)
		assert_true(get(s.mean, j) == 0 && get(s.q, j) == 0 && get(s.sum, j) == 0 &&
			    get(s.dot, j) == 0);
	sums_free(&s);
	free_all(x.data, dy.data, gamma.data, want);
}

static void test_threads(void **state)
{
	enum { ROWS = 4096, C = 40 };
	struct dt_tensor x = random_tensor(DT_F32, ROWS, C, 1, 1);
	struct sums a = sums_of(2, C), b = sums_of(2, C);
	struct dt_dev *other = open_device(3);

	assert_int_equal(dev->ops->bn_stats(dev, a.mean, a.q, x), 0);
	assert_int_equal(other->ops->bn_stats(other, b.mean, b.q, x), 0);
	check_same_bits("mean", a.mean, b.mean);
	check_same_bits("squared deviations", a.q, b.q);
	dt_dev_close(other);
	sums_free(&a);
	sums_free(&b);
	free(x.data);
}

static void test_refused(void **state)
{
	struct dt_tensor x = tensor(DT_F32, 10, 4), g = tensor(DT_F32, 1, 4), three = tensor(DT_F32, 3, 4);
	const struct dt_bn p = {x, x, three, three, g, false};

	assert_int_equal(dev->ops->bn_stats(dev, three, three, x), -EINVAL); /* 10 rows in 3 groups */
	assert_int_equal(dev->ops->bn_forward(dev, &p, DT_NONE, g), -EINVAL);
	free_all(x.data, g.data, three.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),	 cmocka_unit_test(test_far_mean),
		cmocka_unit_test(test_constant), cmocka_unit_test(test_threads),
		cmocka_unit_test(test_refused),
	};
	int rc;

	dev = open_device(2);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
