/* Activations against libm in f64, slopes against finite differences; odd sizes, extremes, aliases. */
#include "group.h"

#include "kernels/shape.h"

static double ref_slope(double x, enum dt_act_fn f)
{
	const double h = 1e-6;

	return (act_ref(x + h, f) - act_ref(x - h, f)) / (2 * h);
}

static double ref_up_slope(double u, enum dt_act_fn f)
{
	const double h = 1e-6;

	return (up_ref(u + h, f) - up_ref(u - h, f)) / (2 * h);
}

/* At the limit of a clamp, the inner side counts. */
static double within(double x)
{
	return fabs(x) == 7 ? x * (1 - 1e-6) : x;
}

static const enum dt_act_fn plain[] = {DT_ACT_GELU_TANH, DT_ACT_GELU_ERF, DT_ACT_SILU, DT_ACT_RELU,
				       DT_ACT_TANH};
#define PLAIN (int)(sizeof plain / sizeof *plain)

static const int64_t sizes[] = {1, 3, 17, 100, 2049, 10007};

static void test_act(void **state)
{
	for (int v = 0; v < 6 * TYPES * PLAIN; v++) {
		const int64_t n = sizes[v / PLAIN / TYPES];
		const enum dt_dtype type = compute_types[v / PLAIN % TYPES];
		const enum dt_act_fn f = plain[v % PLAIN];
		struct dt_tensor x = random_tensor(type, 1, n, 1, 8), dy = random_tensor(type, 1, n, 2, 1);
		struct dt_tensor y = tensor(type, 1, n), dx = tensor(type, 1, n), y2 = copy_of(x),
				 dx2 = copy_of(dy);
		double *want = reals(n), *slope = reals(n);

		for (int64_t i = 0; i < n; i++) {
			want[i] = act_ref(get(x, i), f);
			slope[i] = get(dy, i) * ref_slope(get(x, i), f);
		}
		assert_int_equal(dev->ops->act_forward(dev, y, x, f), 0);
		check_close("act", y, want, 1e-6, 1e-6);
		assert_int_equal(dev->ops->act_backward(dev, dx, dy, x, f), 0);
		check_close("act slope", dx, slope, 2e-6, 2e-6);
		assert_int_equal(dev->ops->act_forward(dev, y2, y2, f), 0);
		check_same_bits("act in place", y, y2);
		assert_int_equal(dev->ops->act_backward(dev, dx2, dx2, x, f), 0);
		check_same_bits("act slope in place", dx, dx2);
		free_all(x.data, dy.data, y.data, dx.data, y2.data, dx2.data, want, slope);
	}
}

static void test_gated(void **state)
{
	static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {5, 2051}, {70, 130}};

	for (int v = 0; v < 4 * TYPES * 5; v++) {
		const int64_t rows = shapes[v / 5 / TYPES][0], n = shapes[v / 5 / TYPES][1];
		const enum dt_dtype type = compute_types[v / 5 % TYPES];
		const enum dt_act_fn f = (enum dt_act_fn)(v % 5);
		struct dt_tensor x = random_tensor(type, rows, 2 * n, 1, f == DT_ACT_SILU_CLAMPED ? 9 : 4),
				 dy = random_tensor(type, rows, n, 2, 1);
		struct dt_tensor y = tensor(type, rows, n), dx = tensor(type, rows, 2 * n),
				 in_place = copy_of(x);
		double *want = reals(rows * n), *dwant = reals(rows * 2 * n);

		for (int64_t i = 0; i < rows * n; i++) {
			const int64_t g = i / n * 2 * n + i % n;

			want[i] = act_ref(get(x, g), f) * up_ref(get(x, g + n), f);
			dwant[g] = get(dy, i) * ref_slope(within(get(x, g)), f) * up_ref(get(x, g + n), f);
			dwant[g + n] =
				get(dy, i) * act_ref(get(x, g), f) * ref_up_slope(within(get(x, g + n)), f);
		}
		assert_int_equal(dev->ops->gated_forward(dev, y, x, f), 0);
		check_close("gated", y, want, 4e-6, 2e-6);
		assert_int_equal(dev->ops->gated_backward(dev, dx, dy, x, f), 0);
		check_close("gated slope", dx, dwant, 8e-6, 2e-6);
		assert_int_equal(dev->ops->gated_backward(dev, in_place, dy, in_place, f), 0);
		check_same_bits("gated slope in place", dx, in_place);
		free_all(x.data, dy.data, y.data, dx.data, in_place.data, want, dwant);
	}
}

/* f or f' at x: half a unit in the last place, and what f32 adds. NaN stays one. */
static void check_half(const char *what, enum dt_act_fn f, double x, double got, double want, double slack)
{
	if (isnan(x) && !isnan(got))
		fail_msg("%s %d of NaN is %g", what, f, got);
	if (isfinite(x) && !(fabs(got - want) <= slack + (BF16_EPS + 4e-6) * fabs(want)))
		fail_msg("%s %d (%.9g): got %.9g, want %.9g", what, f, x, got, want);
}

/* Every bf16 number, with either sign of NaN. Far from 0 differences have no digits: the slope is 0 or 1. */
static void test_every_half(void **state)
{
	enum { ALL = 65536 };
	struct dt_tensor x = tensor(DT_BF16, 1, ALL), y = tensor(DT_BF16, 1, ALL),
			 one = tensor(DT_BF16, 1, ALL);

	for (int i = 0; i < ALL; i++) {
		((uint16_t *)x.data)[i] = (uint16_t)i;
		put(one, i, 1);
	}
	for (int k = 0; k < PLAIN; k++) {
		const enum dt_act_fn f = plain[k];

		assert_int_equal(dev->ops->act_forward(dev, y, x, f), 0);
		for (int i = 0; i < ALL; i++)
			check_half("f", f, get(x, i), get(y, i), act_ref(get(x, i), f), 1e-6);
		assert_int_equal(dev->ops->act_backward(dev, y, one, x, f), 0);
		for (int i = 0; i < ALL && f != DT_ACT_RELU; i++) {
			const double v = get(x, i);

			check_half("f'", f, v, get(y, i),
				   fabs(v) < 100      ? ref_slope(v, f)
				   : f == DT_ACT_TANH ? 0
						      : v > 0,
				   2e-6);
		}
	}
	free_all(x.data, y.data, one.data);
}

/* Rows of any number: the same bits (what batch invariance of a whole model needs). */
static void rows_alone(enum dt_dtype type)
{
	const int64_t rows = 9, n = 333;
	struct dt_tensor x = random_tensor(type, rows, 2 * n, 1, 4), y = tensor(type, rows, n);
	struct dt_tensor z = tensor(type, rows, n), a = tensor(type, rows, 2 * n),
			 b = tensor(type, rows, 2 * n);

	assert_int_equal(dev->ops->gated_forward(dev, y, x, DT_ACT_SILU), 0);
	assert_int_equal(dev->ops->act_forward(dev, a, x, DT_ACT_GELU_TANH), 0);
	for (int64_t i = 0; i < rows; i++) {
		const struct dt_tensor in = dt_t2(dt_at(x, i * 2 * n), type, 1, 2 * n);

		assert_int_equal(
			dev->ops->gated_forward(dev, dt_t2(dt_at(z, i * n), type, 1, n), in, DT_ACT_SILU), 0);
		assert_int_equal(dev->ops->act_forward(dev, dt_t2(dt_at(b, i * 2 * n), type, 1, 2 * n), in,
						       DT_ACT_GELU_TANH),
				 0);
	}
	check_same_bits("gated row", y, z);
	check_same_bits("act row", a, b);
	free_all(x.data, y.data, z.data, a.data, b.data);
}

static void test_rows_alone(void **state)
{
	for (int t = 0; t < TYPES; t++)
		rows_alone(compute_types[t]);
}

static void test_extremes(void **state)
{
	float in[] = {0, -0.f, 1e-30f, 30, -30, 100, -100, 1e10f, -1e10f, 3e38f, -3e38f, NAN};
	float out[12], one[12], d[12];
	const struct dt_tensor x = dt_t1(in, DT_F32, 12), y = dt_t1(out, DT_F32, 12),
			       g = dt_t1(one, DT_F32, 12);

	for (int i = 0; i < 12; i++)
		one[i] = 1;
	for (int f = 0; f < 4; f++) {
		assert_int_equal(dev->ops->act_forward(dev, y, x, (enum dt_act_fn)f), 0);
		assert_int_equal(dev->ops->act_backward(dev, dt_t1(d, DT_F32, 12), g, x, (enum dt_act_fn)f),
				 0);
		assert_true(isnan(out[11]));
		for (int i = 0; i < 11; i++) {
			if (!(fabs(out[i] - fmax(in[i], 0)) <= 1e-6 + 1e-6 * fabs(in[i])))
				fail_msg("f %d (%g) = %g", f, in[i], out[i]);
			if (i > 2 && d[i] != (in[i] > 0 ? 1 : 0) && fabs(d[i] - (in[i] > 0)) > 1e-6)
				fail_msg("f' %d (%g) = %g", f, in[i], d[i]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_act),	   cmocka_unit_test(test_gated),
		cmocka_unit_test(test_every_half), cmocka_unit_test(test_rows_alone),
		cmocka_unit_test(test_extremes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
