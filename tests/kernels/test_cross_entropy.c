/* Cross-entropy against f64, whole and in shards of the vocabulary, its gradient by finite differences. */
#include "group.h"

/* Loss of row i. */
static double ref_loss(const double *l, int64_t n, int32_t target)
{
	double max = -INFINITY, sum = 0;

	for (int64_t j = 0; j < n; j++)
		max = fmax(max, l[j]);
	for (int64_t j = 0; j < n; j++)
		sum += exp(l[j] - max);
	return log(sum) + max - l[target];
}

static void one(int64_t rows, int64_t n, enum dt_dtype in, enum dt_dtype out, bool alias)
{
	struct dt_tensor logits = random_tensor(in, rows, n, 1, 12),
			 d = alias ? logits : tensor(out, rows, n);
	double *l = values(logits), *want = reals(rows * n);
	float *max = malloc((size_t)rows * 4), *sum = malloc((size_t)rows * 4),
	      *hit = malloc((size_t)rows * 4);
	int32_t *target = malloc((size_t)rows * 4);
	const double scale = 0.3;

	for (int64_t i = 0; i < rows; i++)
		target[i] = i % 4 == 3 ? -1 : (int32_t)((i * 131 + 7) % n);
	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, logits, target, 0), 0);
	for (int64_t i = 0; i < rows; i++) {
		double loss = log(sum[i]) + max[i] - hit[i];

		if (target[i] < 0) {
			assert_true(hit[i] == 0);
			continue;
		}
		if (fabs(loss - ref_loss(l + i * n, n, target[i])) > 1e-5)
			fail_msg("loss %lld: got %.9g, want %.9g", (long long)i, loss,
				 ref_loss(l + i * n, n, target[i]));
		for (int64_t j = 0; j < n; j++) {
			const double h = 1e-4, old = l[i * n + j];
			double a, b;

			l[i * n + j] = old + h;
			a = n > 300 && j % 97 && j != target[i] ? NAN : ref_loss(l + i * n, n, target[i]);
			l[i * n + j] = old - h;
			b = isnan(a) ? NAN : ref_loss(l + i * n, n, target[i]);
			l[i * n + j] = old;
			/* Long rows: differences for some columns, the formula they confirm for the others */
			want[i * n + j] = isnan(a) ? scale * exp(old - log(sum[i]) - max[i])
						   : scale * (a - b) / (2 * h);
		}
	}
	assert_int_equal(dev->ops->ce_grad(dev, d, logits, max, sum, target, NULL, (float)scale, 0), 0);
	check_close("dlogits", d, want, 1e-6, 1e-5);
	free_all(l, want, max, sum, hit, target, logits.data, alias ? NULL : d.data);
}

static void test_whole(void **state)
{
	static const int64_t shapes[][2] = {{1, 1}, {5, 17}, {8, 259}, {6, 5003}};

	for (int i = 0; i < 4; i++) {
		one(shapes[i][0], shapes[i][1], DT_F32, DT_F32, false);
		one(shapes[i][0], shapes[i][1], DT_F32, DT_F32, true);
		one(shapes[i][0], shapes[i][1], DT_F32, DT_BF16, false);
		one(shapes[i][0], shapes[i][1], DT_BF16, DT_BF16, true);
		one(shapes[i][0], shapes[i][1], DT_BF16, DT_F32, false);
		one(shapes[i][0], shapes[i][1], DT_F32, DT_F16, false);
		one(shapes[i][0], shapes[i][1], DT_F16, DT_F16, true);
	}
}

/* Rows with a stride give what dense ones do, and zeros behind the gradient's columns. */
static void one_strided(int64_t n, int64_t ld, int64_t ldd, enum dt_dtype in, enum dt_dtype out)
{
	enum { ROWS = 5 };
	struct dt_tensor l = random_tensor(in, ROWS, n, 1, 12), d = tensor(out, ROWS, n), got;
	const struct dt_tensor sl = strided_copy(l, ld), rows = tensor(out, ROWS, ldd);
	const struct dt_tensor sd = dt_t2_ld(in == out && ld == ldd ? sl.data : rows.data, out, ROWS, n, ldd);
	float max[2][ROWS], sum[2][ROWS], hit[2][ROWS];
	int32_t target[ROWS] = {0, (int32_t)n - 1, -1, (int32_t)n / 2, 1};

	assert_int_equal(dev->ops->ce_stats(dev, max[0], sum[0], hit[0], l, target, 0), 0);
	assert_int_equal(dev->ops->ce_stats(dev, max[1], sum[1], hit[1], sl, target, 0), 0);
	for (int i = 0; i < ROWS; i++)
		if (max[0][i] != max[1][i] || hit[0][i] != hit[1][i] ||
		    fabsf(sum[0][i] - sum[1][i]) > 1e-6f * sum[0][i])
			fail_msg("row %d: %g %g %g, dense %g %g %g", i, max[1][i], sum[1][i], hit[1][i],
				 max[0][i], sum[0][i], hit[0][i]);
	assert_int_equal(dev->ops->ce_grad(dev, d, l, max[0], sum[0], target, NULL, 0.3f, 0), 0);
	assert_int_equal(dev->ops->ce_grad(dev, sd, sl, max[0], sum[0], target, NULL, 0.3f, 0), 0);
	got = dense_copy(sd, ldd > n ? 0 : -1);
	check_same_bits("gradient with a stride", got, d);
	free_all(l.data, d.data, sl.data, rows.data, got.data);
}

static void test_strides(void **state)
{
	struct dt_tensor l = random_tensor(DT_F32, 5, 40, 1, 1);
	const struct dt_tensor narrow = dt_t2_ld(l.data, DT_F32, 5, 33, 40);
	float max[5], sum[5], hit[5];
	int32_t target[5] = {0};

	if (dt_dev_row_pad(dev) == 1)
		assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, narrow, target, 0), -EINVAL);
	for (int64_t n = 33; n < 5000 && dt_dev_row_pad(dev) > 1; n += 4670) {
		one_strided(n, n + 7, n + 7, DT_F32, DT_BF16);
		one_strided(n, n + 7, n + 15, DT_F32, DT_F16);
		one_strided(n, n + 7, n + 7, DT_F32, DT_F32); /* in place */
		one_strided(n, n + 3, n + 3, DT_F32, DT_F32);
		one_strided(n, n, n + 7, DT_F32, DT_BF16);
		one_strided(n, n + 7, n, DT_BF16, DT_F32);
	}
	/* in place, but not the same rows */
	if (dt_dev_row_pad(dev) > 1)
		assert_int_equal(dev->ops->ce_grad(dev, dt_t2(l.data, DT_F32, 5, 33), narrow, max, sum,
						   target, NULL, 1, 0),
				 -EINVAL);
	free(l.data);
}

/* Three uneven shards give the whole's loss and gradient. */
static void test_shards(void **state)
{
	enum { ROWS = 6, N = 131 };
	static const int64_t cut[] = {0, 40, 41, N};
	struct dt_tensor whole = random_tensor(DT_F32, ROWS, N, 1, 9), grad = tensor(DT_F32, ROWS, N);
	float max[4][ROWS], sum[4][ROWS], hit[4][ROWS], M[ROWS], S[ROWS] = {0}, T[ROWS] = {0};
	int32_t target[ROWS] = {0, 39, 40, 41, N - 1, -1};

	assert_int_equal(dev->ops->ce_stats(dev, max[3], sum[3], hit[3], whole, target, 0), 0);
	assert_int_equal(dev->ops->ce_grad(dev, grad, whole, max[3], sum[3], target, NULL, 1, 0), 0);
	for (int pass = 0; pass < 2; pass++)
		for (int s = 0; s < 3; s++) {
			const int64_t n = cut[s + 1] - cut[s];
			struct dt_tensor part = tensor(DT_F32, ROWS, n), d = tensor(DT_F32, ROWS, n);

			for (int64_t i = 0; i < ROWS * n; i++)
				put(part, i, get(whole, i / n * N + cut[s] + i % n));
			if (!pass)
				assert_int_equal(
					dev->ops->ce_stats(dev, max[s], sum[s], hit[s], part, target, cut[s]),
					0);
			for (int i = 0; i < ROWS && s == 2 && !pass; i++) {
				M[i] = fmaxf(max[0][i], fmaxf(max[1][i], max[2][i]));
				for (int k = 0; k < 3; k++) {
					S[i] += sum[k][i] * expf(max[k][i] - M[i]);
					T[i] += hit[k][i];
				}
				assert_true(M[i] == max[3][i] && T[i] == hit[3][i]);
				assert_true(fabsf(S[i] - sum[3][i]) < 1e-5f * S[i]);
			}
			if (pass) {
				assert_int_equal(
					dev->ops->ce_grad(dev, d, part, M, S, target, NULL, 1, cut[s]), 0);
				for (int64_t i = 0; i < ROWS * n; i++)
					assert_true(fabs(get(d, i) - get(grad, i / n * N + cut[s] + i % n)) <
						    1e-6);
			}
			free_all(part.data, d.data);
		}
	free_all(whole.data, grad.data);
}

/* A row's weight is a factor of its gradient, of any sign; an ignored row stays zero. */
static void test_weights(void **state)
{
	enum { ROWS = 5, N = 37 };
	struct dt_tensor l = random_tensor(DT_F32, ROWS, N, 1, 9), one = tensor(DT_F32, ROWS, N),
			 d = tensor(DT_F32, ROWS, N);
	float max[ROWS], sum[ROWS], hit[ROWS];
	const float weight[ROWS] = {1, -2.5f, 0, 0.125f, 7};
	int32_t target[ROWS] = {3, 0, N - 1, 5, -1};

	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, l, target, 0), 0);
	assert_int_equal(dev->ops->ce_grad(dev, one, l, max, sum, target, NULL, 0.5f, 0), 0);
	assert_int_equal(dev->ops->ce_grad(dev, d, l, max, sum, target, weight, 0.5f, 0), 0);
	for (int64_t i = 0; i < ROWS * N; i++) {
		double want = target[i / N] < 0 ? 0 : (double)weight[i / N] * get(one, i);

		if (fabs(get(d, i) - want) > 1e-6 * (1 + fabs(want)))
			fail_msg("%lld: %g, not %g", (long long)i, get(d, i), want);
	}
	free_all(l.data, one.data, d.data);
}

static void test_special(void **state)
{
	float l[3][4] = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY},
			 {1, NAN, 2, 3},
			 {-INFINITY, 2, -INFINITY, -INFINITY}};
	float max[3], sum[3], hit[3];
	int32_t target[3] = {-1, 0, 1};
	struct dt_tensor t = dt_t2(l, DT_F32, 3, 4), h = dt_t2(l, DT_BF16, 3, 4);

	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, t, target, 0), 0);
	assert_true(max[0] == -INFINITY && sum[0] == 0);
	assert_true(isnan(sum[1]));
	assert_true(max[2] == 2 && sum[2] == 1 && hit[2] == 2);
	/* of another type, overlapping */
	assert_int_equal(dev->ops->ce_grad(dev, h, t, max, sum, target, NULL, 1, 0), -EINVAL);
}

/* Rows of bf16 of more than one chunk of columns: NaN of either sign, -Inf, the largest last. */
static void test_special_half(void **state)
{
	enum { ROWS = 5, N = 4111 };
	struct dt_tensor l = random_tensor(DT_BF16, ROWS, N, 1, 9);
	uint16_t *p = l.data;
	float max[ROWS], sum[ROWS], hit[ROWS];
	int32_t target[ROWS] = {-1, -1, -1, N - 1, 0};

	for (int64_t j = 0; j < N; j++)
		p[j] = 0xff80;
	p[N + 3] = 0x7fc0;
	p[2 * N + 4110] = 0xffc0;
	for (int64_t j = 0; j < N - 1; j++)
		p[3 * N + j] = 0xff80;
	p[3 * N + N - 1] = dt_f32_to_bf16(-300);
	p[4 * N + 4000] = dt_f32_to_bf16(200);
	assert_int_equal(dev->ops->ce_stats(dev, max, sum, hit, l, target, 0), 0);
	assert_true(max[0] == -INFINITY && sum[0] == 0);
	assert_true(isnan(sum[1]) && isnan(sum[2]));
	assert_true(max[3] == dt_bf16_to_f32(p[3 * N + N - 1]) && sum[3] == 1 && hit[3] == max[3]);
	assert_true(max[4] == 200 && fabsf(sum[4] - 1) < 1e-6f);
	assert_int_equal(dev->ops->ce_grad(dev, l, l, max, sum, target, NULL, 1, 0), 0);
	assert_true(p[3 * N] == 0 && dt_bf16_to_f32(p[4 * N - 1]) == 0);
	assert_true(dt_bf16_to_f32(p[4 * N]) == -1 && dt_bf16_to_f32(p[4 * N + 4000]) == 1);
	free(l.data);
}

/*
 * Rows of bf16 whose logits have one sign, are within a few of each other or hundreds apart, longer than a
 * chunk and of odd length: the largest, the exponents whose bounds are left out, the ends.
 */
static void test_ranges(void **state)
{
	enum { N = 4111 };
	static const double from[] = {-20, 3, -1e-3, -500, -90, -1e30}, to[] = {-2, 9, 1e-3, 40, 0, 1e30};

	for (size_t c = 0; c < sizeof from / sizeof *from; c++) {
		struct dt_tensor l = random_tensor(DT_BF16, 1, N, c + 1, 1);
		float max, sum, hit;
		int32_t target = N / 2;
		double want = 0, most = -INFINITY;

		for (int64_t j = 0; j < N; j++) {
			put(l, j, from[c] + (to[c] - from[c]) * (get(l, j) / 2 + 0.5));
			most = fmax(most, get(l, j));
		}
		for (int64_t j = 0; j < N; j++)
			want += exp(get(l, j) - most);
		assert_int_equal(dev->ops->ce_stats(dev, &max, &sum, &hit, l, &target, 0), 0);
		if (max != most || !(fabs(sum / want - 1) <= 5e-7) || hit != get(l, N / 2))
			fail_msg("%g to %g: %.9g, sum %.9g, not %.9g, sum %.9g", from[c], to[c], max, sum,
				 most, want);
		free(l.data);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),	     cmocka_unit_test(test_shards),
		cmocka_unit_test(test_weights),	     cmocka_unit_test(test_special),
		cmocka_unit_test(test_special_half), cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_strides),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
