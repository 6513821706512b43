/* Pooling and pixels against plain loops; the loss of a classifier against f64 and finite differences. */
#include "check.h"

static struct dt_dev *dev;

struct sides {
	int64_t h, w;
};

static struct sides out_of(const struct dt_pooling *p)
{
	return (struct sides){dt_window_out(p->height, p->kernel, p->stride, p->pad),
			      dt_window_out(p->width, p->kernel, p->stride, p->pad)};
}

/* max: y of the largest, and its gradient to dx; else of the mean. */
static void reference(const struct dt_pooling *p, bool max, double *y, double *dx, const double *x,
		      const double *dy)
{
	const struct sides o = out_of(p);

	for (int64_t i = 0; i < p->batch * o.h * o.w * p->channels; i++) {
		const int64_t c = i % p->channels, ox = i / p->channels % o.w,
			      oy = i / p->channels / o.w % o.h, n = i / p->channels / o.w / o.h;
		double best = -INFINITY, sum = 0, k = (double)(p->kernel * p->kernel);
		int64_t at = -1;

		for (int64_t w = 0; w < p->kernel * p->kernel; w++) {
			const int64_t iy = oy * p->stride - p->pad + w / p->kernel,
				      ix = ox * p->stride - p->pad + w % p->kernel,
				      xi = ((n * p->height + iy) * p->width + ix) * p->channels + c;

			if (iy < 0 || ix < 0 || iy >= p->height || ix >= p->width)
				continue;
			sum += x[xi];
			if (!max)
				dx[xi] += dy[i] / k;
			if (x[xi] > best) {
				best = x[xi];
				at = xi;
			}
		}
		y[i] = max ? best : sum / k;
		if (max)
			dx[at] += dy[i];
	}
}

static void one(const struct dt_pooling *p, enum dt_dtype type)
{
	const struct sides o = out_of(p);
	const int64_t xr = p->batch * p->height * p->width, yr = p->batch * o.h * o.w, c = p->channels;
	struct dt_tensor x = random_tensor(type, xr, c, 1, 1), dy = random_tensor(type, yr, c, 2, 1),
			 y = tensor(type, yr, c), dx = tensor(type, xr, c), at = tensor(DT_U8, yr, c);
	double *fx = values(x), *fdy = values(dy);

	for (int max = 0; max < 2; max++) {
		double *fy = reals(yr * c), *fdx = reals(xr * c);

		reference(p, max, fy, fdx, fx, fdy);
		assert_int_equal(
			max ? dev->ops->pool_max(dev, y, at, x, p) : dev->ops->pool_avg(dev, y, x, p), 0);
		check_close(max ? "largest" : "mean", y, fy, max ? 0 : 1e-6, max ? 0 : 1e-6);
		assert_int_equal(max ? dev->ops->pool_max_backward(dev, dx, dy, at, p)
				     : dev->ops->pool_avg_backward(dev, dx, dy, p),
				 0);
		check_close(max ? "dx of largest" : "dx of mean", dx, fdx, 1e-6, 1e-6);
		free_all(fy, fdx);
	}
	free_all(x.data, dy.data, y.data, dx.data, at.data, fx, fdy);
}

static void test_shapes(void **state)
{
	static const struct dt_pooling shapes[] = {
		{2, 5, 9, 7, 3, 2, 1},	{3, 64, 4, 4, 4, 4, 0}, {2, 3, 8, 8, 2, 2, 0},
		{1, 17, 7, 7, 7, 1, 0}, {2, 1, 5, 6, 3, 1, 1},	{2, 4, 7, 5, 2, 3, 1},
	};

	for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
		for (int t = 0; t < TYPES; t++)
			one(&shapes[i], compute_types[t]);
}

static void test_pixels(void **state)
{
	enum { N = 3, C = 4, P = 15 };
	struct dt_tensor x = random_tensor(DT_F32, N, C * P, 1, 1);

	for (int t = 0; t < TYPES; t++) {
		struct dt_tensor y = tensor(compute_types[t], N * P, C);
		double *want = reals(N * P * C);

		for (int64_t i = 0; i < N * P * C; i++)
			want[i] = get(x, i / (P * C) * P * C + i % C * P + i / C % P);
		assert_int_equal(dev->ops->pixels(dev, y, x, C), 0);
		check_close("pixels", y, want, 0, 0);
		free_all(want, y.data);
	}
	assert_int_equal(dev->ops->pixels(dev, x, x, 7), -EINVAL);
	free(x.data);
}

static double ref_loss(const double *l, int64_t k, const struct dt_classes *p, int64_t i)
{
	double max = -INFINITY, sum = 0, loss = 0;

	for (int64_t j = 0; j < k; j++)
		max = fmax(max, l[j]);
	for (int64_t j = 0; j < k; j++)
		sum += exp(l[j] - max);
	for (int64_t j = 0; j < k; j++) {
		double share = p->share ? p->share[i] : 1,
		       q = (1 - p->smoothing) * ((j == p->targets[i] ? share : 0) +
						 (p->share && j == p->others[i] ? 1 - share : 0)) +
			   p->smoothing / (double)k;

		loss -= q * (l[j] - max - log(sum));
	}
	return loss;
}

static void loss_case(int64_t rows, int64_t k, enum dt_dtype out, float smoothing, bool mixed)
{
	struct dt_tensor logits = random_tensor(DT_F32, rows, k, 1, 5), d = tensor(out, rows, k);
	int32_t *target = malloc((size_t)rows * 4), *other = malloc((size_t)rows * 4),
		*above = malloc((size_t)rows * 4);
	float *share = malloc((size_t)rows * 4), *loss = malloc((size_t)rows * 4);
	double *l = values(logits), *want = reals(rows * k);
	const struct dt_classes p = {target, other, mixed ? share : NULL, smoothing, 0.25f};

	for (int64_t i = 0; i < rows; i++) {
		target[i] = i % 5 == 4 ? -1 : (int32_t)((i * 7 + 1) % k);
		other[i] = (int32_t)((i * 3) % k);
		share[i] = (float)(i % 4) / 3;
	}
	assert_int_equal(dev->ops->class_loss(dev, loss, above, d, logits, &p), 0);
	for (int64_t i = 0; i < rows; i++) {
		int32_t n = 0;

		if (target[i] < 0) {
			assert_true(loss[i] == 0 && above[i] == -1);
			continue;
		}
		if (fabs(loss[i] - ref_loss(l + i * k, k, &p, i)) > 1e-5)
			fail_msg("loss %lld: got %.9g, want %.9g", (long long)i, loss[i],
				 ref_loss(l + i * k, k, &p, i));
		for (int64_t j = 0; j < k; j++) {
			double h = 1e-5, old = l[i * k + j], a, b;

			n += old > l[i * k + target[i]];
			l[i * k + j] = old + h;
			a = ref_loss(l + i * k, k, &p, i);
			l[i * k + j] = old - h;
			b = ref_loss(l + i * k, k, &p, i);
			l[i * k + j] = old;
			want[i * k + j] = 0.25 * (a - b) / (2 * h);
		}
		assert_int_equal(above[i], n);
	}
	check_close("dlogits", d, want, 1e-6, 1e-5);
	assert_int_equal(dev->ops->class_loss(dev, loss, above, DT_NONE, logits, &p), 0);
	assert_int_equal(dev->ops->class_loss(dev, loss, above, logits, logits, &p), 0);
	check_close("in place", logits, want, 1e-6, 1e-5);
	free_all(target, other, above, share, loss, l, want, logits.data, d.data);
}

static void test_loss(void **state)
{
	for (int t = 0; t < TYPES; t++)
		for (int m = 0; m < 4; m++)
			loss_case(11, 10, compute_types[t], m & 1 ? 0.1f : 0, m & 2);
	loss_case(5, 1000, DT_F32, 0.1f, true);
	loss_case(3, 1, DT_F32, 0, false);
}

static double score_ref(double l, double s, enum dt_class_loss kind)
{
	return kind == DT_CLASS_LOSS_MSE ? (l - s) * (l - s) : log1p(exp(-fabs(l))) + fmax(l, 0) - s * l;
}

/* A single logit against a score: the loss in f64, its slope by differences. */
static void score_case(enum dt_class_loss kind, enum dt_dtype out)
{
	enum { ROWS = 37 };
	struct dt_tensor logits = random_tensor(DT_F32, ROWS, 1, 3, 6), d = tensor(out, ROWS, 1);
	int32_t target[ROWS], above[ROWS];
	float share[ROWS], loss[ROWS];
	double want[ROWS];
	const struct dt_classes p = {
		.targets = target, .share = share, .loss = kind, .scale = 0.25f, .smoothing = 0};

	for (int i = 0; i < ROWS; i++) {
		const double l = get(logits, i), h = 1e-5;

		target[i] = i % 5 == 4 ? -1 : 0;
		share[i] = (float)(i % 4) / 3;
		want[i] = 0.25 * (score_ref(l + h, share[i], kind) - score_ref(l - h, share[i], kind)) /
			  (2 * h);
		want[i] = target[i] < 0 ? 0 : want[i];
	}
	assert_int_equal(dev->ops->class_loss(dev, loss, above, d, logits, &p), 0);
	for (int i = 0; i < ROWS; i++) {
		const double l = get(logits, i), ref = target[i] < 0 ? 0 : score_ref(l, share[i], kind);

		if (fabs(loss[i] - ref) > 1e-6 * (1 + ref))
			fail_msg("loss %d: got %.9g, want %.9g", i, loss[i], ref);
		assert_int_equal(above[i], target[i] < 0	       ? -1
					   : kind == DT_CLASS_LOSS_MSE ? 0
								       : (l > 0) != (share[i] > 0.5f));
	}
	check_close("dlogits", d, want, 1e-6, 1e-5);
	assert_int_equal(dev->ops->class_loss(dev, loss, above, DT_NONE, logits, &p), 0);
	assert_int_equal(dev->ops->class_loss(dev, loss, above, logits, logits, &p), 0);
	check_close("in place", logits, want, 1e-6, 1e-5);
	free_all(logits.data, d.data);
}

static void test_scores(void **state)
{
	float l[2] = {1, 2}, loss[2], share = 1;
	int32_t target = 0, above;
	struct dt_classes p = {.targets = &target, .share = &share, .loss = DT_CLASS_LOSS_BCE, .scale = 1};

	for (int t = 0; t < TYPES; t++) {
		score_case(DT_CLASS_LOSS_MSE, compute_types[t]);
		score_case(DT_CLASS_LOSS_BCE, compute_types[t]);
	}
	assert_int_equal(dev->ops->class_loss(dev, loss, &above, DT_NONE, dt_t2(l, DT_F32, 1, 2), &p),
			 -EINVAL); /* two logits */
	p.share = NULL;
	assert_int_equal(dev->ops->class_loss(dev, loss, &above, DT_NONE, dt_t2(l, DT_F32, 1, 1), &p),
			 -EINVAL);
}

/* Equal logits: the class of lower number comes first. A target that is no class is refused. */
static void test_ties(void **state)
{
	float l[] = {1, 2, 2, 0}, loss[1];
	int32_t target = 2, above = 0;
	const struct dt_classes p = {.targets = &target, .scale = 1};

	assert_int_equal(dev->ops->class_loss(dev, loss, &above, DT_NONE, dt_t2(l, DT_F32, 1, 4), &p), 0);
	assert_int_equal(above, 1);
	l[0] = NAN;
	assert_int_equal(dev->ops->class_loss(dev, loss, &above, DT_NONE, dt_t2(l, DT_F32, 1, 4), &p), 0);
	assert_true(isnan(loss[0]));
	target = 4;
	assert_int_equal(dev->ops->class_loss(dev, loss, &above, DT_NONE, dt_t2(l, DT_F32, 1, 4), &p),
			 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes), cmocka_unit_test(test_pixels), cmocka_unit_test(test_loss),
		cmocka_unit_test(test_scores), cmocka_unit_test(test_ties),
	};
	int rc;

	dev = open_device(2);
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	dt_dev_close(dev);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
