/* Convolutions against plain loops in f64: odd sizes, strides, paddings, every type, results that add up. */
#include "check.h"

static struct dt_dev *dev;

struct sides {
	int64_t h, w;
};

static struct sides out_of(const struct dt_conv *p)
{
	return (struct sides){dt_window_out(p->height, p->kernel, p->stride, p->pad),
			      dt_window_out(p->width, p->kernel, p->stride, p->pad)};
}

/* Visits every product: y[yi] += x[xi] w[wi]. */
static void products(const struct dt_conv *p, double *y, const double *x, const double *w, double *dx,
		     double *dw, const double *dy)
{
	const struct sides o = out_of(p);

	for (int64_t n = 0; n < p->batch; n++)
		for (int64_t i = 0; i < o.h * o.w; i++)
			for (int64_t ky = 0; ky < p->kernel; ky++)
				for (int64_t kx = 0; kx < p->kernel; kx++) {
					const int64_t iy = i / o.w * p->stride + ky - p->pad,
						      ix = i % o.w * p->stride + kx - p->pad;

					if (iy < 0 || ix < 0 || iy >= p->height || ix >= p->width)
						continue;
					for (int64_t c = 0; c < p->channels; c++)
						for (int64_t k = 0; k < p->out; k++) {
							const int64_t xi = ((n * p->height + iy) * p->width +
									    ix) * p->channels +
									   c,
								      wi = ((k * p->channels + c) *
										    p->kernel +
									    ky) * p->kernel +
									   kx,
								      yi = (n * o.h * o.w + i) * p->out + k;

							y[yi] += x[xi] * w[wi];
							dx[xi] += dy[yi] * w[wi];
							dw[wi] += dy[yi] * x[xi];
						}
				}
}

/* What one rounding to the type is off by, of what is rounded. */
static double rounded(enum dt_dtype type)
{
	return type == DT_BF16 ? BF16_EPS : type == DT_F16 ? F16_EPS : 0;
}

static void one(const struct dt_conv *p, enum dt_dtype type)
{
	const struct sides o = out_of(p);
	const int64_t xr = p->batch * p->height * p->width, yr = p->batch * o.h * o.w,
		      cols = p->channels * p->kernel * p->kernel;
	struct dt_tensor x = random_tensor(type, xr, p->channels, 1, 1),
			 w = random_tensor(type, p->out, cols, 2, 1),
			 dy = random_tensor(type, yr, p->out, 3, 1), y = tensor(type, yr, p->out),
			 dx = tensor(type, xr, p->channels), dw = random_tensor(DT_F32, p->out, cols, 4, 1);
	double *fx = values(x), *fw = values(w), *fdy = values(dy), *fy = reals(yr * p->out),
	       *fdx = reals(xr * p->channels), *fdw = reals(p->out * cols);
	/* f32 sums in another order: relative to the number of terms */
	const double abs = 1e-6 * sqrt((double)(cols > yr ? cols : yr)) * 4;
	const double loose = on_device() ? rounded(type) : 0; /* conv.h: a card rounds a batch's sum */

	products(p, fy, fx, fw, fdx, fdw, fdy);
	assert_int_equal(dev->ops->conv_forward(dev, y, x, w, p), 0);
	check_close("y", y, fy, abs, 1e-5);
	assert_int_equal(dev->ops->conv_backward(dev, dx, dy, w, p), 0);
	check_close("dx", dx, fdx, abs, 1e-5);
	assert_int_equal(dev->ops->conv_weights(dev, dw, dy, x, false, p), 0);
	check_close("dw", dw, fdw, abs, 1e-5 + loose);
	assert_int_equal(dev->ops->conv_weights(dev, dw, dy, x, true, p), 0);
	for (int64_t i = 0; i < p->out * cols; i++)
		fdw[i] *= 2;
	check_close("dw twice", dw, fdw, 2 * abs, 1e-5 + loose);
	free_all(fx, fw, fdy, fy, fdx, fdw, x.data, w.data, dy.data, y.data, dx.data, dw.data);
}

static void test_shapes(void **state)
{
	static const struct dt_conv shapes[] = {
		{2, 3, 9, 7, 5, 3, 1, 1},     {3, 1, 28, 28, 16, 3, 1, 1}, {2, 16, 8, 8, 32, 3, 2, 1},
		{2, 3, 23, 19, 8, 7, 2, 3},   {2, 24, 6, 6, 40, 1, 1, 0},  {3, 16, 7, 9, 32, 1, 2, 0},
		{1, 64, 4, 4, 64, 3, 1, 1},   {2, 5, 1, 1, 3, 1, 1, 0},	   {2, 6, 5, 5, 10, 5, 1, 0},
		{2, 3, 10, 10, 7, 3, 3, 0},   {2, 56, 7, 9, 72, 3, 1, 1},  {1, 272, 3, 3, 144, 1, 1, 0},
		{1, 144, 3, 3, 176, 3, 1, 1},
	};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int t = 0; t < TYPES; t++)
			one(&shapes[i], compute_types[t]);
}

/* Whether y = relu(conv + bias + residual); residual: absent, its own memory, or y. */
static void one_bias(const struct dt_conv *p, enum dt_dtype type, int residual, bool relu)
{
	const struct sides o = out_of(p);
	const int64_t xr = p->batch * p->height * p->width, yr = p->batch * o.h * o.w,
		      cols = p->channels * p->kernel * p->kernel;
	struct dt_tensor x = random_tensor(type, xr, p->channels, 1, 1),
			 w = random_tensor(type, p->out, cols, 2, 1),
			 bias = random_tensor(DT_F32, 1, p->out, 5, 1),
			 add = random_tensor(type, yr, p->out, 6, 1),
			 y = random_tensor(type, yr, p->out, 6, 1);
	double *fx = values(x), *fw = values(w), *fb = values(bias), *fadd = values(add), largest = 0,
	       *fy = reals(yr * p->out), *fdx = reals(xr * p->channels), *fdw = reals(p->out * cols);

	products(p, fy, fx, fw, fdx, fdw, fadd);
	for (int64_t i = 0; i < yr * p->out; i++) {
		largest = fmax(largest, fabs(fy[i]));
		fy[i] += fb[i % p->out] + (residual ? fadd[i] : 0);
		fy[i] = relu && fy[i] < 0 ? 0 : fy[i];
	}
	assert_int_equal(dev->ops->conv_bias(dev, y, x, w, bias,
					     residual == 2   ? y
					     : residual == 1 ? add
							     : DT_NONE,
					     relu, p),
			 0);
	/* conv.h: on a card the convolution is rounded before anything is added */
	check_close("y", y, fy, 4e-6 * sqrt((double)cols) + (on_device() ? largest * rounded(type) : 0),
		    1e-5);
	free_all(fx, fw, fb, fadd, fy, fdx, fdw, x.data, w.data, bias.data, add.data, y.data);
}

static void test_bias(void **state)
{
	static const struct dt_conv shapes[] = {
		{2, 3, 9, 7, 5, 3, 1, 1},   {2, 16, 8, 8, 32, 3, 2, 1}, {2, 3, 23, 19, 8, 7, 2, 3},
		{2, 24, 6, 6, 40, 1, 1, 0}, {3, 16, 7, 9, 32, 1, 2, 0}, {1, 64, 4, 4, 64, 3, 1, 1},
		{2, 56, 7, 9, 72, 3, 1, 1},
	};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int t = 0; t < TYPES; t++)
			for (int k = 0; k < 6; k++)
				one_bias(&shapes[i], compute_types[t], k / 2, k % 2);
}

/* Twice the threads, and the same again: the same bits for each. */
static void test_repeated(void **state)
{
	const struct dt_conv p = {4, 16, 10, 10, 24, 3, 1, 1};
	struct dt_tensor x = random_tensor(DT_F32, 400, 16, 1, 1), w = random_tensor(DT_F32, 24, 144, 2, 1),
			 a = tensor(DT_F32, 400, 24), b = tensor(DT_F32, 400, 24);

	assert_int_equal(dev->ops->conv_forward(dev, a, x, w, &p), 0);
	assert_int_equal(dev->ops->conv_forward(dev, b, x, w, &p), 0);
	check_same_bits("again", a, b);
	free_all(x.data, w.data, a.data, b.data);
}

static void test_refused(void **state)
{
	const struct dt_conv good = {2, 3, 8, 8, 4, 3, 1, 1};
	struct dt_tensor x = tensor(DT_F32, 128, 3), w = tensor(DT_F32, 4, 27), y = tensor(DT_F32, 128, 4),
			 h = tensor(DT_BF16, 128, 3), bias = tensor(DT_F32, 1, 4);
	struct dt_conv p = good;

	p.stride = 0;
	assert_int_equal(dev->ops->conv_forward(dev, y, x, w, &p), -EINVAL);
	p = good;
	p.kernel = 2;
	assert_int_equal(dev->ops->conv_forward(dev, y, x, w, &p), -EINVAL);
	p = good;
	p.height = 9;
	assert_int_equal(dev->ops->conv_forward(dev, y, x, w, &p), -EINVAL);
	assert_int_equal(dev->ops->conv_forward(dev, y, h, w, &good), -EINVAL);
	p = (struct dt_conv){2, 3, 8, 8, 4, 11, 1, 1};
	assert_int_equal(dev->ops->conv_forward(dev, y, x, w, &p), -EINVAL);
	assert_int_equal(dev->ops->conv_bias(dev, y, x, w, w, DT_NONE, true, &good), -EINVAL);
	assert_int_equal(dev->ops->conv_bias(dev, y, x, w, bias, x, true, &good), -EINVAL);
	p = good;
	p.batch = 0;
	assert_int_equal(dev->ops->conv_forward(dev, y, x, w, &p), 0);
	put(w, 5, 7); /* the gradient of no images */
	assert_int_equal(dev->ops->conv_weights(dev, w, y, x, true, &p), 0);
	assert_true(get(w, 5) == 7);
	assert_int_equal(dev->ops->conv_weights(dev, w, y, x, false, &p), 0);
	assert_true(get(w, 5) == 0);
	free_all(x.data, w.data, y.data, h.data, bias.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_bias),
		cmocka_unit_test(test_repeated),
		cmocka_unit_test(test_refused),
	};
	int rc;

	dev = open_device(2);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
