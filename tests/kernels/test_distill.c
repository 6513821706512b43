/*
 * Distillation against f64: the loss of its statistics, the gradient by finite differences of the loss and by
 * the formula these confirm, whole and in shards of the vocabulary.
 */
#include "group.h"

struct site {
	int64_t rows, n, k;
	double temperature, weight;
	int32_t *column; /* [rows, k] */
	float *prob;	 /* [rows, k + 1] */
	int32_t *target;
};

/* Columns spread over the row, of which the first is 0 and the last n - 1; probabilities that sum to 1. */
static struct site make(int64_t rows, int64_t n, int64_t k, double temperature, double weight)
{
	struct site s = {rows, n, k, temperature, weight, NULL, NULL, NULL};

	s.column = malloc((size_t)(rows * k) * sizeof(*s.column));
	s.prob = malloc((size_t)(rows * (k + 1)) * sizeof(*s.prob));
	s.target = malloc((size_t)rows * sizeof(*s.target));
	for (int64_t i = 0; i < rows; i++) {
		float *q = s.prob + i * (k + 1);
		double sum = 0;

		for (int64_t c = 0; c < k; c++)
			s.column[i * k + c] = (int32_t)(k > 1 ? c * (n - 1) / (k - 1) : i % n);
		for (int64_t c = 0; c <= k; c++)
			sum += (double)(q[c] = k == n && c == k ? 0
								: (float)(0.02 + fabs(rnd(5, i * 31 + c))));
		for (int64_t c = 0; c <= k; c++)
			q[c] /= (float)sum;
		/* A target among the teacher's columns, one that is not, and one that is ignored. */
		s.target[i] = i % 3 == 2 ? -1
			      : i % 3	 ? s.column[i * k + k / 2]
					 : (int32_t)((i * 131 + 7) % n);
	}
	return s;
}

static void drop(struct site *s)
{
	free_all(s->column, s->prob, s->target);
}

static struct dt_distill params(const struct site *s, int64_t first)
{
	return (struct dt_distill){.k = s->k,
				   .temperature = (float)s->temperature,
				   .weight = (float)s->weight,
				   .columns = s->column,
				   .probs = s->prob,
				   .vocab_first = first};
}

static double log_sum(const double *l, int64_t n, double temperature)
{
	double max = -INFINITY, sum = 0;

	for (int64_t j = 0; j < n; j++)
		max = fmax(max, l[j]);
	for (int64_t j = 0; j < n; j++)
		sum += exp((l[j] - max) / temperature);
	return log(sum) + max / temperature;
}

/* KL of row i as its definition has it; ret_others: the student's log-probability of all other columns. */
static double kl_of(const struct site *s, const double *l, int64_t i, double *ret_others)
{
	const double all = log_sum(l, s->n, s->temperature);
	const float *q = s->prob + i * (s->k + 1);
	double kl = 0, others = 0;
	int64_t c = 0;

	for (int64_t j = 0; j < s->n; j++) {
		const double p = l[j] / s->temperature - all;

		if (c < s->k && s->column[i * s->k + c] == j) {
			kl += (double)q[c] * (log((double)q[c]) - p);
			c++;
		} else {
			others += exp(p);
		}
	}
	*ret_others = log(others);
	return q[s->k] > 0 ? kl + (double)q[s->k] * (log((double)q[s->k]) - log(others)) : kl;
}

static double loss_of(const struct site *s, const double *l, int64_t i)
{
	double others;

	return (1 - s->weight) * (log_sum(l, s->n, 1) - l[s->target[i]]) +
	       s->weight * s->temperature * s->temperature * kl_of(s, l, i, &others);
}

/* The gradient by the formula of the header. */
static void formula(const struct site *s, const double *l, int64_t i, double *g)
{
	const double one = log_sum(l, s->n, 1), all = log_sum(l, s->n, s->temperature);
	const float *q = s->prob + i * (s->k + 1);
	double others;
	int64_t c = 0;

	kl_of(s, l, i, &others);
	for (int64_t j = 0; j < s->n; j++) {
		const double p = exp(l[j] / s->temperature - all);
		const bool in = c < s->k && s->column[i * s->k + c] == j;
		const double teacher = in	     ? (double)q[c]
				       : q[s->k] > 0 ? p * (double)q[s->k] / exp(others)
						     : 0;

		c += in;
		g[j] = (1 - s->weight) * (exp(l[j] - one) - (j == s->target[i])) +
		       s->weight * s->temperature * (p - teacher);
	}
}

/* The loss from the op's statistics, as distill.h has it. */
static double from_stats(const struct site *s, int64_t i, double kept, double rest, double dot)
{
	const float *q = s->prob + i * (s->k + 1);
	double kl = log(kept + rest) - dot;

	for (int64_t c = 0; c < s->k; c++)
		kl += (double)q[c] * log((double)q[c]);
	return q[s->k] > 0 ? kl + (double)q[s->k] * (log((double)q[s->k]) - log(rest)) : kl;
}

static void check_gradient(const struct site *s, double *l, int64_t i, double scale, double *want)
{
	const double h = 1e-4;

	formula(s, l, i, want);
	for (int64_t j = 0; j < s->n; j++) {
		const double old = l[j];
		double a, b;

		if (s->n > 300 && j % 97 && j != s->target[i]) /* long rows: some columns */
			continue;
		l[j] = old + h;
		a = loss_of(s, l, i);
		l[j] = old - h;
		b = loss_of(s, l, i);
		l[j] = old;
		if (fabs((a - b) / (2 * h) - want[j]) > 1e-7)
			fail_msg("row %lld column %lld: difference %.9g, formula %.9g", (long long)i,
				 (long long)j, (a - b) / (2 * h), want[j]);
	}
	for (int64_t j = 0; j < s->n; j++)
		want[j] *= scale;
}

static void one(struct site s, enum dt_dtype in, enum dt_dtype out, bool alias)
{
	const int64_t rows = s.rows, n = s.n;
	struct dt_tensor logits = random_tensor(in, rows, n, 1, 6), d = alias ? logits : tensor(out, rows, n);
	struct dt_distill p = params(&s, 0);
	double *l = values(logits), *want = reals(rows * n), others;
	float max[8], sum[8], hit[8], kept[8], rest[8], dot[8];
	const double scale = 0.3;

	assert_true(rows <= 8);
	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, logits, s.target, 0), 0);
	assert_int_equal(dev->ops->distill_stats(dev, kept, rest, dot, logits, max, s.target, &p), 0);
	for (int64_t i = 0; i < rows; i++) {
		double kl;

		if (s.target[i] < 0) {
			assert_true(kept[i] == 0 && rest[i] == 0 && dot[i] == 0);
			continue;
		}
		kl = kl_of(&s, l + i * n, i, &others);
		if (fabs(from_stats(&s, i, kept[i], rest[i], dot[i]) - kl) > 1e-5)
			fail_msg("row %lld: KL %.9g, want %.9g", (long long)i,
				 from_stats(&s, i, kept[i], rest[i], dot[i]), kl);
		check_gradient(&s, l + i * n, i, scale, want + i * n);
	}
	assert_int_equal(
		dev->ops->distill_grad(dev, d, logits, max, sum, kept, rest, s.target, (float)scale, &p), 0);
	check_close("dlogits", d, want, 1e-6, 1e-5);
	free_all(l, want, logits.data, alias ? NULL : d.data);
	drop(&s);
}

static void test_whole(void **state)
{
	one(make(6, 17, 5, 1, 1), DT_F32, DT_F32, false);
	one(make(6, 17, 5, 2.5, 0.7), DT_F32, DT_F32, true);
	one(make(4, 259, 1, 2, 0.5), DT_F32, DT_F32, false);
	one(make(4, 33, 33, 3, 0.9), DT_F32, DT_F32, true); /* every column is the teacher's */
	one(make(3, 5003, 64, 1.5, 0.4), DT_F32, DT_F32, true);
	one(make(3, 5003, 64, 1, 0.4), DT_F32, DT_BF16, false);
	one(make(2, 5003, 4500, 1.5, 0.4), DT_F32, DT_F32, true);
	one(make(5, 131, 8, 2, 0.5), DT_BF16, DT_BF16, true);
	one(make(5, 131, 8, 2, 0.5), DT_F32, DT_F16, false);
	one(make(5, 131, 8, 2, 0), DT_F32, DT_F32, false);
}

/* Rows with a stride give what dense ones do, and zeros behind the gradient's columns. */
static void one_strided(int64_t n, int64_t ld, int64_t ldd, enum dt_dtype in, enum dt_dtype out)
{
	enum { ROWS = 6 };
	struct site s = make(ROWS, n, 7, 2, 0.6);
	struct dt_tensor l = random_tensor(in, ROWS, n, 1, 6), d = tensor(out, ROWS, n), got;
	const struct dt_tensor sl = strided_copy(l, ld), rows = tensor(out, ROWS, ldd);
	const struct dt_tensor sd = dt_t2_ld(in == out && ld == ldd ? sl.data : rows.data, out, ROWS, n, ldd);
	struct dt_distill p = params(&s, 0);
	float max[ROWS], sum[ROWS], hit[ROWS], a[3][ROWS], b[3][ROWS];

	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, l, s.target, 0), 0);
	assert_int_equal(dev->ops->distill_stats(dev, a[0], a[1], a[2], l, max, s.target, &p), 0);
	assert_int_equal(dev->ops->distill_stats(dev, b[0], b[1], b[2], sl, max, s.target, &p), 0);
	for (int i = 0; i < 3 * ROWS; i++)
		if (fabsf(a[i / ROWS][i % ROWS] - b[i / ROWS][i % ROWS]) >
		    1e-6f * (1 + fabsf(a[i / ROWS][i % ROWS])))
			fail_msg("statistic %d of row %d: %g, dense %g", i / ROWS, i % ROWS,
				 b[i / ROWS][i % ROWS], a[i / ROWS][i % ROWS]);
	assert_int_equal(dev->ops->distill_grad(dev, d, l, max, sum, a[0], a[1], s.target, 0.3f, &p), 0);
	assert_int_equal(dev->ops->distill_grad(dev, sd, sl, max, sum, a[0], a[1], s.target, 0.3f, &p), 0);
	got = dense_copy(sd, ldd > n ? 0 : -1);
	check_same_bits("gradient with a stride", got, d);
	free_all(l.data, d.data, sl.data, rows.data, got.data);
	drop(&s);
}

static void test_strides(void **state)
{
	for (int64_t n = 33; n < 5000 && dt_dev_row_pad(dev) > 1; n += 4670) {
		one_strided(n, n + 7, n + 7, DT_F32, DT_BF16);
		one_strided(n, n + 7, n + 15, DT_F32, DT_F16);
		one_strided(n, n + 7, n + 7, DT_F32, DT_F32); /* in place */
		one_strided(n, n + 3, n + 3, DT_F32, DT_F32);
		one_strided(n, n, n + 7, DT_F32, DT_BF16);
	}
}

/* With weight 0 the gradient is that of the cross-entropy. */
static void test_plain(void **state)
{
	struct site s = make(6, 131, 8, 2, 0);
	struct dt_tensor l = random_tensor(DT_F32, 6, 131, 1, 9), a = tensor(DT_F32, 6, 131),
			 b = tensor(DT_F32, 6, 131);
	struct dt_distill p = params(&s, 0);
	float max[6], sum[6], hit[6], kept[6], rest[6], dot[6];

	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, l, s.target, 0), 0);
	assert_int_equal(dev->ops->distill_stats(dev, kept, rest, dot, l, max, s.target, &p), 0);
	assert_int_equal(dev->ops->ce_grad(dev, a, l, max, sum, s.target, NULL, 1, 0), 0);
	assert_int_equal(dev->ops->distill_grad(dev, b, l, max, sum, kept, rest, s.target, 1, &p), 0);
	for (int64_t i = 0; i < 6 * 131; i++)
		assert_true(fabs(get(a, i) - get(b, i)) < 1e-7);
	free_all(l.data, a.data, b.data);
	drop(&s);
}

/* Uneven shards, one of a single column and one without any of the teacher's, give the whole's. */
static void test_shards(void **state)
{
	enum { ROWS = 6, N = 131 };
	static const int64_t cut[] = {0, 40, 41, 43, N};
	struct site s = make(ROWS, N, 7, 2, 0.6);
	struct dt_tensor whole = random_tensor(DT_F32, ROWS, N, 1, 9), grad = tensor(DT_F32, ROWS, N);
	float max[ROWS], sum[ROWS], hit[ROWS], all[3][ROWS], joined[3][ROWS] = {{0}};
	struct dt_distill p = params(&s, 0);

	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, whole, s.target, 0), 0);
	assert_int_equal(dev->ops->distill_stats(dev, all[0], all[1], all[2], whole, max, s.target, &p), 0);
	assert_int_equal(dev->ops->distill_grad(dev, grad, whole, max, sum, all[0], all[1], s.target, 1, &p),
			 0);
	for (int pass = 0; pass < 2; pass++)
		for (int k = 0; k < 4; k++) {
			const int64_t n = cut[k + 1] - cut[k];
			struct dt_tensor part = tensor(DT_F32, ROWS, n), d = tensor(DT_F32, ROWS, n);
			float here[3][ROWS];

			p.vocab_first = cut[k];
			for (int64_t i = 0; i < ROWS * n; i++)
				put(part, i, get(whole, i / n * N + cut[k] + i % n));
			assert_int_equal(dev->ops->distill_stats(dev, here[0], here[1], here[2], part, max,
								 s.target, &p),
					 0);
			for (int i = 0; i < 3 * ROWS && !pass; i++)
				joined[i / ROWS][i % ROWS] += here[i / ROWS][i % ROWS];
			if (pass) {
				assert_int_equal(dev->ops->distill_grad(dev, d, part, max, sum, joined[0],
									joined[1], s.target, 1, &p),
						 0);
				for (int64_t i = 0; i < ROWS * n; i++)
					assert_true(fabs(get(d, i) - get(grad, i / n * N + cut[k] + i % n)) <
						    1e-6);
			}
			free_all(part.data, d.data);
		}
	for (int i = 0; i < 3 * ROWS; i++)
		assert_true(fabsf(joined[i / ROWS][i % ROWS] - all[i / ROWS][i % ROWS]) <
			    1e-5f * (1 + fabsf(all[i / ROWS][i % ROWS])));
	free_all(whole.data, grad.data);
	drop(&s);
}

/* A student that is sure of the teacher's columns has a finite loss and gradient. */
static void test_sure(void **state)
{
	float l[4] = {200, -200, -200, -200}, d[4], max, sum, hit, kept, rest, dot;
	const int32_t column = 0, target = 0;
	const float prob[2] = {0.75f, 0.25f};
	struct dt_tensor t = dt_t2(l, DT_F32, 1, 4), g = dt_t2(d, DT_F32, 1, 4);
	struct dt_distill p = {1, 1, 1, &column, prob, 0};

	assert_int_equal(dev->ops->ce_stats(dev, &max, &sum, &hit, t, &target, 0), 0);
	assert_int_equal(dev->ops->distill_stats(dev, &kept, &rest, &dot, t, &max, &target, &p), 0);
	assert_true(kept == 1 && rest == 0);
	assert_int_equal(dev->ops->distill_grad(dev, g, t, &max, &sum, &kept, &rest, &target, 1, &p), 0);
	for (int i = 0; i < 4; i++)
		assert_true(isfinite(d[i]));
	assert_true(d[0] == 0.25f);
	p.temperature = 0;
	assert_int_equal(dev->ops->distill_stats(dev, &kept, &rest, &dot, t, &max, &target, &p), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole), cmocka_unit_test(test_plain),   cmocka_unit_test(test_shards),
		cmocka_unit_test(test_sure),  cmocka_unit_test(test_strides),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
