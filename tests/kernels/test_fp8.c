/*
 * Tensors in 8 bits against their definition, code by code; products against f64 loops over what the codes
 * mean: odd sizes, types, bias, accumulation; a linear and its gradients against f64 within the precision of
 * the formats.
 */
#include "check.h"

static struct dt_dev *dev;

static double meant(struct dt_tensor t, int64_t i)
{
	const uint8_t code = ((uint8_t *)t.data)[i];

	return (double)(t.dtype == DT_E4M3 ? dt_e4m3_to_f32(code) : dt_e5m2_to_f32(code));
}

static float largest(enum dt_dtype t)
{
	return t == DT_E4M3 ? 448 : 57344;
}

static uint8_t code_of(enum dt_dtype t, double v)
{
	return t == DT_E4M3 ? dt_f32_to_e4m3((float)v) : dt_f32_to_e5m2((float)v);
}

/* x [rows, cols] in 8 bits; turned: only the transpose. */
static void one_tensor(enum dt_dtype in, enum dt_dtype out, int64_t rows, int64_t cols, int which,
		       double size)
{
	struct dt_tensor x = random_tensor(in, rows, cols, 1, size), y = tensor(out, rows, cols),
			 yt = tensor(out, cols, rows), none = DT_NONE;
	float s = -1;
	double amax = 0;
	int e, rc;

	for (int64_t i = 0; i < rows * cols; i += 7) /* of many sizes */
		put(x, i, ldexp(get(x, i), -(int)(i % 23)));
	for (int64_t i = 0; i < rows * cols; i++)
		amax = fmax(amax, fabs(get(x, i)));
	rc = dev->ops->fp8_quantize(dev, which & 1 ? y : none, which & 2 ? yt : none, &s, x);
	assert_int_equal(rc, 0);
	assert_true(frexp((double)s, &e) == 0.5);
	if (amax > (double)s * (double)largest(out) ||
	    (amax > 1e-20 && amax <= (double)s / 2 * (double)largest(out)))
		fail_msg("scale %g for %g", (double)s, amax);
	for (int64_t i = 0; i < rows * cols; i++) {
		const uint8_t want = code_of(out, get(x, i) / (double)s);
		const int64_t turned = i % cols * rows + i / cols;

		if ((which & 1 && ((uint8_t *)y.data)[i] != want) ||
		    (which & 2 && ((uint8_t *)yt.data)[turned] != want))
			fail_msg("%s %lldx%lld [%lld]: %02x, turned %02x, want %02x", dt_dtype_name(out),
				 (long long)rows, (long long)cols, (long long)i, ((uint8_t *)y.data)[i],
				 ((uint8_t *)yt.data)[turned], want);
	}
	free_all(x.data, y.data, yt.data);
}

static void test_quantize(void **state)
{
	static const int64_t sizes[][2] = {{1, 1},    {3, 5},	 {16, 16},   {64, 64}, {48, 80}, {65, 130},
					   {7, 1000}, {1000, 3}, {128, 208}, {33, 16}, {16, 33}};

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		for (int v = 0; v < TYPES * 2; v++)
			one_tensor(compute_types[v % TYPES], v / TYPES ? DT_E5M2 : DT_E4M3, sizes[i][0],
				   sizes[i][1], 1 + (int)(i + (size_t)v) % 3, v % TYPES == 2 ? 30 : 1e5);
	one_tensor(DT_F32, DT_E4M3, 20, 20, 3, 1e-35); /* smaller than any scale */
	one_tensor(DT_F32, DT_E4M3, 20, 20, 3, 3e38);
	one_tensor(DT_F32, DT_E5M2, 300, 300, 3, 0); /* zeros */
}

static void test_quantize_edges(void **state)
{
	struct dt_tensor x = random_tensor(DT_F32, 32, 48, 1, 1), y = tensor(DT_E4M3, 32, 48);
	struct dt_tensor none = DT_NONE, h = tensor(DT_BF16, 32, 48), few = tensor(DT_E4M3, 32, 47);
	static const float bad[] = {NAN, INFINITY, -INFINITY};
	float s;

	for (int i = 0; i < 3; i++) {
		put(x, 777, (double)bad[i]);
		assert_int_equal(dev->ops->fp8_quantize(dev, y, none, &s, x), 0);
		assert_true(isnan(s));
	}
	assert_int_equal(dev->ops->fp8_quantize(dev, none, none, &s, x), -EINVAL);
	assert_int_equal(dev->ops->fp8_quantize(dev, h, none, &s, x), -EINVAL);
	assert_int_equal(dev->ops->fp8_quantize(dev, few, none, &s, x), -EINVAL);
	assert_int_equal(dev->ops->fp8_quantize(dev, y, none, NULL, x), -EINVAL);
	free_all(x.data, y.data, h.data, few.data);
}

/* All codes that are numbers, not all as likely. */
static struct dt_tensor codes(enum dt_dtype t, int64_t rows, int64_t cols, uint32_t stream)
{
	struct dt_tensor x = tensor(t, rows, cols);

	for (int64_t i = 0; i < rows * cols; i++)
		((uint8_t *)x.data)[i] = code_of(t, rnd(stream, i) * ldexp(1, (int)(i % 11) - 3));
	return x;
}

struct shape {
	int64_t m, n, k;
};

static void one_product(struct shape s, enum dt_dtype ta, enum dt_dtype tb, enum dt_dtype tc, int flags)
{
	const bool has_bias = flags & 1, acc = flags & 2;
	struct dt_tensor a = codes(ta, s.m, s.k, 1), b = codes(tb, s.n, s.k, 2);
	struct dt_tensor bias = random_tensor(tc, 1, s.n, 3, 1);
	struct dt_tensor c = acc ? random_tensor(tc, s.m, s.n, 4, 1) : tensor(tc, s.m, s.n);
	const float sa = 0x1p-7f, sb = 0x1p3f;
	double *want = reals(s.m * s.n);
	char what[128];

	for (int64_t i = 0; i < s.m; i++)
		for (int64_t j = 0; j < s.n; j++) {
			double v = 0;

			for (int64_t k = 0; k < s.k; k++)
				v += meant(a, i * s.k + k) * meant(b, j * s.k + k);
			want[i * s.n + j] =
				v / 16 + (acc ? get(c, i * s.n + j) : 0) + (has_bias ? get(bias, j) : 0);
		}
	assert_int_equal(dev->ops->fp8_matmul(dev, c, a, &sa, b, &sb, has_bias ? bias : DT_NONE, acc), 0);
	snprintf(what, sizeof what, "%lldx%lldx%lld %s x %s -> %s, flags %d", (long long)s.m, (long long)s.n,
		 (long long)s.k, dt_dtype_name(ta), dt_dtype_name(tb), dt_dtype_name(tc), flags);
	check_close(what, c, want, 1e-5 * (double)(s.k + 1), 1e-6);
	free_all(a.data, b.data, bias.data, c.data, want);
}

static void test_products(void **state)
{
	static const struct shape shapes[] = {{1, 1, 1},    {16, 16, 16},   {3, 5, 7},	   {64, 48, 80},
					      {17, 33, 65}, {80, 144, 112}, {97, 101, 48}, {4, 3, 0}};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int v = 0; v < 4 * TYPES; v++) {
			const enum dt_dtype tc = compute_types[v % TYPES];

			one_product(shapes[i], DT_E4M3, DT_E4M3, tc, v / TYPES);
			if (emulated(dev) && v % TYPES != (int)i % TYPES)
				continue;
			one_product(shapes[i], DT_E5M2, DT_E4M3, tc, v / TYPES);
			one_product(shapes[i], DT_E4M3, DT_E5M2, tc, v / TYPES);
		}
}

static void test_product_edges(void **state)
{
	struct dt_tensor a = codes(DT_E4M3, 16, 32, 1), b = codes(DT_E4M3, 48, 32, 2),
			 g = codes(DT_E5M2, 16, 32, 3);
	struct dt_tensor g2 = codes(DT_E5M2, 48, 32, 3), c = tensor(DT_BF16, 16, 48),
			 f = tensor(DT_F32, 1, 48);
	const float one = 1, nan = NAN;
	struct dt_tensor none = DT_NONE;

	assert_int_equal(dev->ops->fp8_matmul(dev, c, g, &one, g2, &one, none, false), -EINVAL);
	assert_int_equal(dev->ops->fp8_matmul(dev, c, a, &one, c, &one, none, false), -EINVAL);
	assert_int_equal(dev->ops->fp8_matmul(dev, c, b, &one, a, &one, none, false), -EINVAL);
	assert_int_equal(dev->ops->fp8_matmul(dev, c, a, &one, b, &one, f, false), -EINVAL);
	assert_int_equal(dev->ops->fp8_matmul(dev, c, a, NULL, b, &one, none, false), -EINVAL);
	assert_int_equal(dev->ops->fp8_matmul(dev, c, g, &one, b, &nan, none, false), 0);
	for (int64_t i = 0; i < 16 * 48; i++) /* what was not finite is not lost */
		assert_true(isnan(get(c, i)));
	free_all(a.data, b.data, g.data, g2.data, c.data, f.data);
}

/* |got - want| in the 2-norm, as a share of want's. */
static double distance(struct dt_tensor got, const double *want)
{
	double d = 0, n = 0;

	for (int64_t i = 0; i < dt_numel(got); i++) {
		d += pow(get(got, i) - want[i], 2);
		n += want[i] * want[i];
	}
	return sqrt(d / n);
}

/* y = x w^T, dx = dy w, dw = dy^T x as the trainer does them, against f64: what is lost is the formats'
 * rounding. */
static void test_linear(void **state)
{
	enum { T = 64, IN = 96, OUT = 80 };
	struct dt_tensor x = random_tensor(DT_BF16, T, IN, 1, 3),
			 w = random_tensor(DT_BF16, OUT, IN, 2, 0.05);
	struct dt_tensor dy = random_tensor(DT_BF16, T, OUT, 3, 1e-4), none = DT_NONE;
	struct dt_tensor x8 = tensor(DT_E4M3, T, IN), xt = tensor(DT_E4M3, IN, T),
			 w8 = tensor(DT_E4M3, OUT, IN), wt = tensor(DT_E4M3, IN, OUT),
			 dy8 = tensor(DT_E5M2, T, OUT), dyt = tensor(DT_E5M2, OUT, T);
	struct dt_tensor y = tensor(DT_F32, T, OUT), dx = tensor(DT_F32, T, IN), dw = tensor(DT_F32, OUT, IN);
	double *wy = reals(T * OUT), *wdx = reals(T * IN), *wdw = reals(OUT * IN);
	float sx, sw, sd;

	for (int64_t t = 0; t < T; t++)
		for (int64_t o = 0; o < OUT; o++)
			for (int64_t i = 0; i < IN; i++) {
				wy[t * OUT + o] += get(x, t * IN + i) * get(w, o * IN + i);
				wdx[t * IN + i] += get(dy, t * OUT + o) * get(w, o * IN + i);
				wdw[o * IN + i] += get(dy, t * OUT + o) * get(x, t * IN + i);
			}
	assert_int_equal(dev->ops->fp8_quantize(dev, x8, xt, &sx, x), 0);
	assert_int_equal(dev->ops->fp8_quantize(dev, w8, wt, &sw, w), 0);
	assert_int_equal(dev->ops->fp8_quantize(dev, dy8, dyt, &sd, dy), 0);
	assert_int_equal(dev->ops->fp8_matmul(dev, y, x8, &sx, w8, &sw, none, false), 0);
	assert_int_equal(dev->ops->fp8_matmul(dev, dx, dy8, &sd, wt, &sw, none, false), 0);
	assert_int_equal(dev->ops->fp8_matmul(dev, dw, dyt, &sd, xt, &sx, none, false), 0);
	/* Uniform numbers are off by 2^-4 / sqrt(12) / 0.7 or so in E4M3, twice that in E5M2. */
	print_message("y %.4f dx %.4f dw %.4f\n", distance(y, wy), distance(dx, wdx), distance(dw, wdw));
	assert_true(distance(y, wy) < 0.045 && distance(y, wy) > 0.005);
	assert_true(distance(dx, wdx) < 0.07);
	assert_true(distance(dw, wdw) < 0.07);
	free_all(x.data, w.data, dy.data, x8.data, xt.data, w8.data, wt.data, dy8.data, dyt.data, y.data,
		 dx.data, dw.data, wy, wdx, wdw);
}

/* Where the products are not there they are refused, and asked about first. */
static void test_asked(void **state)
{
	if (getenv("DT_TEST_CUBLASLT")) /* whose workspace counts */
		assert_true(dt_dev_scratch_bytes(dev) >= (size_t)1 << 20);
	assert_true(dt_dev_multiplies(dev, DT_BF16));
	assert_true(dt_dev_multiplies(dev, DT_E4M3));
	assert_true(dt_dev_matmul_rate(dev, DT_E4M3, 0.01) > 0);
	assert_true(dt_dev_matmul_rate(dev, DT_E5M2, 0.01) == 0);
	if (!emulated(dev))
		return;
	setenv("DT_EMULATED_SM", "80", 1);
	struct dt_dev *old = open_device(1);
	struct dt_tensor a = codes(DT_E4M3, 16, 16, 1), c = tensor(DT_BF16, 16, 16);
	const float one = 1;

	assert_false(dt_dev_multiplies(old, DT_E4M3));
	assert_int_equal(old->ops->fp8_matmul(old, c, a, &one, a, &one, DT_NONE, false), -ENOTSUP);
	free_all(a.data, c.data);
	dt_dev_close(old);
	unsetenv("DT_EMULATED_SM");
}

static int setup(void **state)
{
	dev = open_device(2);
	print_message("isa %s\n", dt_dev_isa(dev));
	if (dt_dev_multiplies(dev, DT_E4M3))
		return 0;
	print_message("skipped: this card has no products of 8-bit floats\n");
	exit(77);
}

static int teardown(void **state)
{
	dt_dev_close(dev);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantize), cmocka_unit_test(test_quantize_edges),
		cmocka_unit_test(test_products), cmocka_unit_test(test_product_edges),
		cmocka_unit_test(test_linear),	 cmocka_unit_test(test_asked),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
