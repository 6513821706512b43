/* The bounds vec.h states, over every 151st float of the range; and the device itself. */
#include "check.h"

#include "kernels/cpu/vec.h"

static double ulp(double want)
{
	return ldexp(1, (int)fmax(floor(log2(fabs(want))), -126) - 23);
}

static void test_exp(void **state)
{
	double worst = 0;

	for (int sign = 0; sign < 2; sign++)
		for (uint32_t u = 0; u < 0x42b17217u; u += 151) {
			uint32_t bits = u | (uint32_t)sign << 31;
			float x, y;

			memcpy(&x, &bits, 4);
			if (x < -86.6f)
				break;
			y = dt_expf(x);
			worst = fmax(worst, fabs(y - exp(x)) / ulp(exp(x)));
		}
	print_message("exp: %.3f ulp\n", worst);
	assert_true(worst <= 2);
	assert_true(dt_expf(-100) == 0 && dt_expf(-INFINITY) == 0 && dt_expf(INFINITY) == INFINITY);
	assert_true(dt_expf(0) == 1 && dt_expf(89) == INFINITY && isnan(dt_expf(NAN)));
}

static void test_erf(void **state)
{
	double worst = 0;

	for (uint32_t u = 0; u < 0x40c00000u; u += 151) {
		float x;

		memcpy(&x, &u, 4);
		worst = fmax(worst, fmax(fabs(dt_erff(x) - erf(x)), fabs(dt_erff(-x) - erf(-x))));
	}
	print_message("erf: %.3g\n", worst);
	assert_true(worst <= 2e-7);
	assert_true(isnan(dt_erff(NAN)) && dt_erff(INFINITY) == 1 && dt_erff(-INFINITY) == -1);
}

static void test_tanh(void **state)
{
	double worst = 0;

	for (uint32_t u = 0x30000000u; u < 0x42000000u; u += 151) { /* 2^-31 to 32 */
		float x;

		memcpy(&x, &u, 4);
		worst = fmax(worst, fabs(dt_tanhf(x) - tanh(x)) / ulp(tanh(x)));
		worst = fmax(worst, fabs(dt_tanhf(-x) - tanh(-x)) / ulp(tanh(x)));
	}
	print_message("tanh: %.3f ulp\n", worst);
	assert_true(worst <= 4);
	assert_true(isnan(dt_tanhf(NAN)) && dt_tanhf(INFINITY) == 1 && dt_tanhf(-INFINITY) == -1);
	assert_true(dt_tanhf(0) == 0);
}

static void test_exp2_negative(void **state)
{
	double worst = 0;

	for (uint32_t u = 0x80000000u; u < 0xc2fc0000u; u += 151) { /* 0 to -126 */
		float t;

		memcpy(&t, &u, 4);
		worst = fmax(worst, fabs(dt_exp2f_negative(t) / exp2(t) - 1));
	}
	print_message("2^t: %.3g\n", worst);
	assert_true(worst <= 2e-7);
	assert_true(dt_exp2f_negative(0) == 1 && dt_exp2f_negative(-1) == 0.5f);
	assert_true(dt_exp2f_negative(-127) == 0 && dt_exp2f_negative(-INFINITY) == 0);
	assert_true(dt_exp2f_negative(-126.5f) < 0x1p-126f && dt_exp2f_negative(-126.5f) >= 0);
	assert_true(isnan(dt_exp2f_negative(NAN)) && isnan(dt_exp2f_negative(-NAN)));
}

static float sigmoid2(float t)
{
	return dt_sigmoid2_of(dt_sigmoid2_power(dt_sigmoid2_bounded(t)));
}

static void test_sigmoid(void **state)
{
	double worst = 0;

	for (int sign = 0; sign < 2; sign++)
		for (uint32_t u = 0x20000000u; u <= 0x42f80000u; u += 151) { /* to 124 */
			uint32_t bits = u | (uint32_t)sign << 31;
			double want;
			float t;

			memcpy(&t, &bits, 4);
			want = 1 / (1 + exp2(-(double)t));
			worst = fmax(worst, fabs(sigmoid2(t) / want - 1));
		}
	print_message("sigmoid: %.3g\n", worst);
	assert_true(worst <= 4e-6);
	assert_true(sigmoid2(0) == 0.5f && sigmoid2(1e30f) == 1);
	assert_true(sigmoid2(-128) == 0 && sigmoid2(-INFINITY) == 0);
	assert_true(sigmoid2(INFINITY) == 1 && isfinite(sigmoid2(NAN)));
}

static void test_device(void **state)
{
	struct dt_dev *dev = NULL;

	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, 0, 0), 0);
	assert_true(dev->nthreads >= 1);
	assert_true(dt_dev_matmul_rate(dev, DT_F32, 0.01) > 1e6);
	assert_true(dt_dev_matmul_rate(dev, DT_I32, 0.01) == 0);
	assert_true(dt_dev_copy_rate(dev, 0.01) > 1e6);
	assert_true(dt_dev_isa(dev)[0]);
	dt_dev_close(dev);
	dt_dev_close(NULL);
	dev = NULL;
	assert_int_equal(dt_dev_open(&dev, DT_DEV_CPU, -1, 1), -EINVAL);
	assert_null(dev);
}

/* A build without CUDA says so and leaves the result alone. */
/* Without CUDA, without a driver: an answer, and no device. */
static void test_no_cuda(void **state)
{
	struct dt_dev *dev = NULL;
	int rc = dt_dev_open(&dev, DT_DEV_CUDA, 0, 0);

	if (rc == 0) {
		dt_dev_close(dev);
		print_message("skipped: there is a card\n");
		skip();
	}
	assert_null(dev);
	if (rc != -ENODEV)
		assert_int_equal(rc, -ENOTSUP);
	if (rc == -ENOTSUP)
		assert_int_equal(dt_ops_cuda.add(NULL, DT_NONE, DT_NONE, DT_NONE), -ENOTSUP);
	assert_true(strlen(dt_dev_why(rc)) > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exp),	cmocka_unit_test(test_erf),
		cmocka_unit_test(test_tanh),	cmocka_unit_test(test_exp2_negative),
		cmocka_unit_test(test_sigmoid), cmocka_unit_test(test_device),
		cmocka_unit_test(test_no_cuda),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
