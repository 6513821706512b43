/* A linear layer with its activation against a plain f64 loop, its backward against the derivative of that */
#include "group.h"

/* The slope of f by central differences of f64, whose error is about 1e-10. */
static double slope(double x, enum dt_act_fn f)
{
	const double h = 1e-5;

	return f == DT_ACT_RELU ? x > 0 : (act_ref(x + h, f) - act_ref(x - h, f)) / (2 * h);
}

/* x [m, k] with op(w): [n, k] transposed, or [k, n]. */
static double *product(struct dt_tensor x, struct dt_tensor w, bool trans, struct dt_tensor bias)
{
	const int64_t m = x.dim[0], k = x.dim[1], n = w.dim[trans ? 0 : 1];
	double *c = reals(m * n);

	for (int64_t i = 0; i < m; i++)
		for (int64_t j = 0; j < n; j++) {
			double s = bias.data ? get(bias, j) : 0;

			for (int64_t l = 0; l < k; l++)
				s += get(x, i * k + l) * get(w, trans ? j * k + l : l * n + j);
			c[i * n + j] = s;
		}
	return c;
}

static void one(enum dt_dtype t, int64_t m, int64_t n, int64_t k, bool biased, enum dt_act_fn f)
{
	struct dt_tensor x = random_tensor(t, m, k, 1, 1), w = random_tensor(t, n, k, 2, 0.3);
	struct dt_tensor bias = biased ? random_tensor(t, 1, n, 3, 1) : DT_NONE;
	struct dt_tensor u = tensor(t, m, n), y = tensor(t, m, n), du = tensor(t, m, n),
			 back = tensor(t, k, n);
	struct dt_tensor u2 = tensor(t, m, n), y2 = tensor(t, m, n);
	double *want = product(x, w, true, bias), *grad;

	assert_int_equal(dev->ops->matmul_act(dev, y, u, x, w, bias, f), 0);
	check_close("u", u, want, 1e-5, 1e-5);
	/* of u, whose own rounding is on top: f is no steeper than 1.13 */
	for (int64_t i = 0; i < m * n; i++) {
		const double room = t == DT_BF16 ? BF16_EPS : t == DT_F16 ? F16_EPS : 0, v = want[i];

		if (!(fabs(get(y, i) - act_ref(v, f)) <=
		      2e-5 + 1.2 * room * fabs(v) + (room + 1e-5) * fabs(act_ref(v, f))))
			fail_msg("y [%lld]: got %.9g, want %.9g", (long long)i, get(y, i), act_ref(v, f));
	}
	for (int64_t i = 0; i < k * n; i++)
		put(back, i, 0.3 * rnd(4, i));
	grad = product(x, back, false, DT_NONE);
	for (int64_t i = 0; i < m * n; i++)
		grad[i] *= slope(get(u, i), f);
	assert_int_equal(dev->ops->matmul_act_backward(dev, du, x, back, u, f), 0);
	/* dy w may be rounded before it is multiplied */
	check_close("du", du, grad, 2e-5, 2e-5 + (t == DT_BF16 ? BF16_EPS : t == DT_F16 ? F16_EPS : 0));
	/* again: the same bits */
	assert_int_equal(dev->ops->matmul_act(dev, y2, u2, x, w, bias, f), 0);
	check_same_bits("u", u, u2);
	check_same_bits("y", y, y2);
	free_all(x.data, w.data, bias.data, u.data, y.data, du.data, back.data, u2.data, y2.data, want, grad);
}

static void test_shapes(void **state)
{
	static const int64_t shapes[][3] = {{1, 1, 1},	  {3, 5, 7},	{17, 33, 65}, {64, 64, 64},
					    {65, 72, 40}, {8, 136, 24}, {70, 8, 100}, {33, 129, 16}};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int t = 0; t < TYPES; t++) {
			const int64_t *s = shapes[i];

			one(compute_types[t], s[0], s[1], s[2], true, DT_ACT_GELU_TANH);
			one(compute_types[t], s[0], s[1], s[2], i % 2, (enum dt_act_fn)(i % 4));
			one(compute_types[t], s[0], s[1], s[2], i % 2, DT_ACT_TANH);
		}
}

/* Where the parts are what matmul and act do, so are the bits. */
static void test_parts(void **state)
{
	struct dt_tensor x = random_tensor(DT_BF16, 40, 48, 5, 1), w = random_tensor(DT_BF16, 72, 48, 6, 0.4);
	struct dt_tensor bias = random_tensor(DT_BF16, 1, 72, 7, 1),
			 back = random_tensor(DT_BF16, 48, 72, 8, 1);
	struct dt_tensor u = tensor(DT_BF16, 40, 72), y = tensor(DT_BF16, 40, 72),
			 du = tensor(DT_BF16, 40, 72);
	struct dt_tensor u2 = tensor(DT_BF16, 40, 72), y2 = tensor(DT_BF16, 40, 72),
			 du2 = tensor(DT_BF16, 40, 72);

	dev->batch_invariant = true; /* no cuBLASLt */
	assert_int_equal(dev->ops->matmul_act(dev, y, u, x, w, bias, DT_ACT_GELU_TANH), 0);
	assert_int_equal(dev->ops->matmul(dev, u2, x, false, w, true, bias, false), 0);
	assert_int_equal(dev->ops->act_forward(dev, y2, u2, DT_ACT_GELU_TANH), 0);
	check_same_bits("u", u, u2);
	check_same_bits("y", y, y2);
	assert_int_equal(dev->ops->matmul_act_backward(dev, du, x, back, u, DT_ACT_GELU_TANH), 0);
	assert_int_equal(dev->ops->matmul(dev, du2, x, false, back, false, DT_NONE, false), 0);
	assert_int_equal(dev->ops->act_backward(dev, du2, du2, u, DT_ACT_GELU_TANH), 0);
	check_same_bits("du", du, du2);
	dev->batch_invariant = false;
	free_all(x.data, w.data, bias.data, back.data, u.data, y.data, du.data, u2.data, y2.data, du2.data);
}

/* How many elements of y are not f of u as it was kept, nor of du its two factors as they are rounded. */
static int fused(int64_t n, int64_t shift, bool biased)
{
	struct dt_tensor x = random_tensor(DT_BF16, 64, 48, 5, 1), w = random_tensor(DT_BF16, n, 48, 6, 0.4);
	struct dt_tensor bias = biased ? random_tensor(DT_BF16, 1, n, 7, 1) : DT_NONE;
	struct dt_tensor back = random_tensor(DT_BF16, 48, n, 8, 1), room = tensor(DT_BF16, 64, n + 8),
			 u = room;
	struct dt_tensor y = tensor(DT_BF16, 64, n), du = tensor(DT_BF16, 64, n),
			 du2 = tensor(DT_BF16, 64, n);
	int differ = 0;

	u.data = (char *)room.data + shift;
	u.dim[1] = n;
	assert_int_equal(dev->ops->matmul_act(dev, y, u, x, w, bias, DT_ACT_GELU_TANH), 0);
	assert_int_equal(dev->ops->matmul_act_backward(dev, du, x, back, u, DT_ACT_GELU_TANH), 0);
	assert_int_equal(dev->ops->matmul(dev, du2, x, false, back, false, DT_NONE, false), 0);
	for (int64_t i = 0; i < 64 * n; i++) {
		const double v = get(u, i), two = act_ref(v, DT_ACT_GELU_TANH);

		differ += fabs(get(y, i) - two) > 1.01 * BF16_EPS * fabs(two) + 1e-6;
		differ += fabs(get(du, i) - get(du2, i) * slope(v, DT_ACT_GELU_TANH)) >
			  1.01 * BF16_EPS * fabs(get(du, i)) + 1e-6;
	}
	free_all(x.data, w.data, bias.data, back.data, room.data, y.data, du.data, du2.data);
	return differ;
}

/* cuBLASLt's own epilogues where it has them, which round less; two steps where it does not. */
static void test_epilogues(void **state)
{
	const bool blas = getenv("DT_TEST_CUBLASLT") != NULL;

	for (int biased = 0; biased < 2; biased++) {
		const int whole = fused(72, 0, biased), odd = fused(71, 0, biased),
			  shifted = fused(72, 2, biased);

		if (blas && whole < 100)
			fail_msg("%d elements tell of an epilogue", whole);
		if ((!blas && !on_device() && whole) || odd || shifted)
			fail_msg("%d, %d and %d elements are not of two steps", whole, odd, shifted);
	}
}

static void test_refused_and_empty(void **state)
{
	struct dt_tensor x = tensor(DT_F32, 4, 3), w = tensor(DT_F32, 5, 3), u = tensor(DT_F32, 4, 5);
	struct dt_tensor y = tensor(DT_F32, 4, 5), half = tensor(DT_BF16, 4, 5), wrong = tensor(DT_F32, 5, 4);
	struct dt_tensor none = dt_t2(x.data, DT_F32, 0, 3), nothing = dt_t2(u.data, DT_F32, 0, 5);
	struct dt_tensor bias = tensor(DT_F32, 1, 5), thin = dt_t2(x.data, DT_F32, 4, 0),
			 flat = dt_t2(w.data, DT_F32, 5, 0);

	assert_int_equal(dev->ops->matmul_act(dev, half, u, x, w, DT_NONE, DT_ACT_SILU), -EINVAL);
	assert_int_equal(dev->ops->matmul_act(dev, y, wrong, x, w, DT_NONE, DT_ACT_SILU), -EINVAL);
	assert_int_equal(dev->ops->matmul_act(dev, wrong, u, x, w, DT_NONE, DT_ACT_SILU), -EINVAL);
	assert_int_equal(dev->ops->matmul_act_backward(dev, u, x, w, y, DT_ACT_SILU), -EINVAL);
	assert_int_equal(dev->ops->matmul_act_backward(dev, half, u, w, x, DT_ACT_SILU), -EINVAL);
	assert_true(isnan(get(y, 0)) && isnan(get(u, 0)) && isnan(get(x, 0)));
	assert_int_equal(dev->ops->matmul_act(dev, nothing, nothing, none, w, DT_NONE, DT_ACT_SILU), 0);
	for (int i = 0; i < 5; i++)
		put(bias, i, i - 2);
	assert_int_equal(dev->ops->matmul_act(dev, y, u, thin, flat, bias, DT_ACT_RELU), 0);
	for (int i = 0; i < 20; i++)
		assert_true(get(u, i) == i % 5 - 2 && get(y, i) == (i % 5 > 2 ? i % 5 - 2 : 0));
	free_all(x.data, w.data, u.data, y.data, half.data, wrong.data, bias.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_epilogues),
		cmocka_unit_test(test_refused_and_empty),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
