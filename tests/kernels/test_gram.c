/* gram and transpose (gram.h) against f64 loops: sizes around tiles and blocks, exact symmetry, threads. */
#include "group.h"

#include "kernels/gram.h"

static void is_symmetric(struct dt_tensor c)
{
	const int64_t m = c.dim[0];

	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < i; j++)
			assert_true(get(c, i * m + j) == get(c, j * m + i));
}

/* b must be symmetric. */
static struct dt_tensor symmetric(enum dt_dtype t, int64_t m, uint32_t stream)
{
	struct dt_tensor b = random_tensor(t, m, m, stream, 1);
	const size_t size = (size_t)dt_dtype_size(t);

	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < i; j++)
			memcpy((char *)b.data + (size_t)(j * m + i) * size,
			       (char *)b.data + (size_t)(i * m + j) * size, size);
	return b;
}

static void one_gram(enum dt_dtype t, int64_t m, int64_t k, bool with_b)
{
	struct dt_tensor a = random_tensor(t, m, k, 1, 1), b = symmetric(t, m, 2), c = tensor(t, m, m);
	double *want = reals(m * m);
	char what[80];

	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < m; j++) {
			double v = 0;

			for (int64_t l = 0; l < k; l++)
				v += get(a, i * k + l) * get(a, j * k + l);
			want[i * m + j] = 0.5 * v + (with_b ? -2 * get(b, i * m + j) : 0) + (i == j ? 3 : 0);
		}
	assert_int_equal(dev->ops->gram(dev, c, a, 0.5f, with_b ? b : DT_NONE, -2, 3), 0);
	snprintf(what, sizeof what, "gram %lld x %lld %s", (long long)m, (long long)k, dt_dtype_name(t));
	/* On a card the product is rounded before the sum. */
	check_close(what, c, want, 1e-6 * (double)(k + 4) + (t == DT_F32 ? 0 : BF16_EPS * (double)k / 2),
		    1e-6);
	is_symmetric(c);
	free_all(a.data, b.data, c.data, want);
}

static void test_grams(void **state)
{
	static const int64_t size[][2] = {{1, 1}, {3, 7},   {16, 5},  {17, 33},	 {40, 64},
					  {5, 0}, {256, 9}, {257, 8}, {300, 40}, {530, 21}};

	for (size_t i = 0; i < sizeof size / sizeof *size; i++)
		for (int with_b = 0; with_b < 2; with_b++) {
			one_gram(DT_F32, size[i][0], size[i][1], with_b);
			one_gram(DT_BF16, size[i][0], size[i][1], with_b);
		}
}

/* The product alone: of one block it is written to c at once, with the bits of mirrored halves. */
static void test_product_alone(void **state)
{
	static const int64_t size[][2] = {{192, 192}, {192, 768}, {130, 1030}, {256, 64}, {33, 700}};

	for (int i = 0; i < 5; i++)
		for (int t = 0; t < 2; t++) {
			const int64_t m = size[i][0], k = size[i][1];
			const enum dt_dtype type = t ? DT_BF16 : DT_F32;
			struct dt_tensor a = random_tensor(type, m, k, 1, 1), zero = tensor(type, m, m);
			struct dt_tensor c = tensor(type, m, m), mirrored = tensor(type, m, m);

			memset(zero.data, 0, (size_t)(m * m * dt_dtype_size(type)));
			assert_int_equal(dev->ops->gram(dev, c, a, 1, DT_NONE, 0, 0), 0);
			assert_int_equal(dev->ops->gram(dev, mirrored, a, 1, zero, 1, 0), 0);
			is_symmetric(c);
			if (dev->kind == DT_DEV_CPU)
				check_same_bits("product alone", c, mirrored);
			free_all(a.data, zero.data, c.data, mirrored.data);
		}
}

static void one_transpose(enum dt_dtype to, enum dt_dtype from, int64_t m, int64_t n)
{
	struct dt_tensor x = random_tensor(from, m, n, 1, 1), y = tensor(to, n, m);
	double *want = reals(m * n);

	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++)
			want[j * m + i] = get(x, i * n + j);
	assert_int_equal(dev->ops->transpose(dev, y, x), 0);
	check_close("transpose", y, want, 0, 0);
	free_all(x.data, y.data, want);
}

static void test_transposes(void **state)
{
	static const int64_t size[][2] = {{1, 1}, {1, 40}, {16, 16}, {17, 33}, {300, 130}};

	for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
		one_transpose(DT_F32, DT_F32, size[i][0], size[i][1]);
		one_transpose(DT_BF16, DT_F32, size[i][0], size[i][1]);
		one_transpose(DT_F32, DT_BF16, size[i][0], size[i][1]);
	}
}

static void test_refused(void **state)
{
	struct dt_tensor a = tensor(DT_F32, 4, 6), c = tensor(DT_F32, 4, 4), h = tensor(DT_F16, 4, 6);

	assert_int_equal(dev->ops->gram(dev, a, a, 1, DT_NONE, 0, 0), -EINVAL);
	assert_int_equal(dev->ops->gram(dev, c, h, 1, DT_NONE, 0, 0), -EINVAL);
	assert_int_equal(dev->ops->gram(dev, c, a, 1, a, 1, 0), -EINVAL);
	assert_int_equal(dev->ops->transpose(dev, c, a), -EINVAL);
	free_all(a.data, c.data, h.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grams),
		cmocka_unit_test(test_product_alone),
		cmocka_unit_test(test_transposes),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
