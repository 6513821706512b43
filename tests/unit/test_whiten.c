/*
 * Whitening filters by what they are for: patches of the images that they were made of have outputs of
 * variance lambda / (lambda + eps) that do not go together. Eigenvectors against their definition.
 */
#include "data/whiten.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

/* m v = value v, values fall, vectors have length 1 and right angles. */
static void check_eigen(int n, uint64_t seed, bool equal)
{
	const struct dt_rng r = dt_rng_make(seed, DT_RNG_INIT, 0);
	double *m = calloc((size_t)(4 * n * n + n), sizeof(*m)), *copy = m + n * n, *v = copy + n * n,
	       *value = v + n * n, largest = 0;

	for (int i = 0; i < n; i++)
		for (int j = 0; j <= i; j++)
			m[i * n + j] = m[j * n + i] =
				equal ? i == j : 2 * dt_rng_uniform(&r, (uint64_t)(i * n + j)) - 1;
	for (int i = 0; i < n * n; i++) {
		copy[i] = m[i];
		largest = fmax(largest, fabs(m[i]));
	}
	dt_eigen_symmetric(m, n, value, v);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			double product = 0, dot = 0;

			for (int k = 0; k < n; k++) {
				product += copy[j * n + k] * v[i * n + k];
				dot += v[i * n + k] * v[j * n + k];
			}
			assert_true(fabs(product - value[i] * v[i * n + j]) < 1e-12 * n * largest);
			assert_true(fabs(dot - (i == j)) < 1e-12 * n);
			assert_true(j <= i || value[i] >= value[j]);
		}
	free(m);
}

static void eigen(void **state)
{
	static const int sizes[] = {1, 2, 3, 12, 27, 48};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		check_eigen(sizes[i], i, false);
		check_eigen(sizes[i], i, true);
	}
}

enum { IMAGES = 60, SIDE = 9, KERNEL = 2 };

/* Noise over a slope, so that neighbours and channels go together. */
static void draw(struct dt_image *x, int channels, int i, const struct dt_rng *r)
{
	for (int c = 0; c < channels; c++)
		for (int p = 0; p < SIDE * SIDE; p++) {
			const double u = dt_rng_uniform(r, (uint64_t)((i * 3 + c) * SIDE * SIDE + p)),
				     slope = dt_rng_uniform(r, (uint64_t)(100000 + i));

			x->pixel[c * SIDE * SIDE + p] = (uint8_t)(100 + 12 * (p % SIDE) * slope + 50 * u);
		}
}

static void write_set(const char *path, int channels)
{
	static const char *const names[] = {"one"};
	const struct dt_images_create how = {.channels = channels, .classes = 1, .class_name = names};
	const struct dt_rng r = dt_rng_make(5, DT_RNG_INIT, 1);
	uint8_t pixel[3 * SIDE * SIDE];
	struct dt_image x = {.channels = channels, .height = SIDE, .width = SIDE, .pixel = pixel};
	struct dt_images_writer *w;
	struct dt_err err = {0};

	assert_int_equal(dt_images_create(path, &how, &w, &err), 0);
	for (int i = 0; i < IMAGES; i++) {
		draw(&x, channels, i, &r);
		assert_int_equal(dt_images_append(w, &x, NULL, 0, 0, &err), 0);
	}
	assert_int_equal(dt_images_finish(w, &err), 0);
}

/* sum[i, j] += outputs i and j of every patch of y, for `n` filters of n numbers. */
static void add_outputs(const float *y, int n, const float *filter, double *sum)
{
	double out[3 * KERNEL * KERNEL];

	for (int p = 0; p < (SIDE - 1) * (SIDE - 1); p++) {
		for (int i = 0; i < n; i++) {
			out[i] = 0;
			for (int k = 0; k < n; k++) {
				const int row = p / (SIDE - 1) + k / KERNEL % KERNEL,
					  col = p % (SIDE - 1) + k % KERNEL;

				out[i] += (double)filter[i * n + k] *
					  (double)y[(k / (KERNEL * KERNEL) * SIDE + row) * SIDE + col];
			}
		}
		for (int i = 0; i < n; i++)
			for (int j = 0; j < n; j++)
				sum[i * n + j] += out[i] * out[j] / ((SIDE - 1) * (SIDE - 1) * IMAGES);
	}
}

static void whitened(int channels)
{
	const int n = channels * KERNEL * KERNEL;
	char path[] = "/tmp/dt-whiten-XXXXXX";
	struct dt_augment a = dt_augment_default(SIDE, SIDE);
	struct dt_image image = {0}, tmp = {0};
	float filter[2 * 12 * 12], y[3 * SIDE * SIDE];
	double sum[12 * 12] = {0};
	struct dt_images_info info;
	struct dt_err err = {0};
	struct dt_images *d;

	assert_true(close(mkstemp(path)) == 0);
	write_set(path, channels);
	assert_int_equal(dt_images_open(path, &d, &err), 0);
	dt_images_info(d, &info);
	for (int c = 0; c < channels; c++) {
		a.mean[c] = info.mean[c];
		a.deviation[c] = info.deviation[c];
	}
	assert_int_equal(dt_whiten_filters(d, &a, KERNEL, filter, &err), 0);
	for (int i = 0; i < IMAGES; i++) {
		assert_int_equal(dt_images_read(d, i, &image, &err), 0);
		assert_int_equal(dt_augment_apply(&a, 0, 0, &image, &tmp, y, &err), 0);
		add_outputs(y, n, filter, sum);
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < n; j++) {
			double length = 0, lambda;

			for (int k = 0; k < n; k++)
				length += (double)filter[i * n + k] * (double)filter[i * n + k];
			lambda = 1 / length - DT_WHITEN_EPS; /* a filter is v / sqrt(lambda + eps) */
			if (!(fabs(sum[i * n + j] - (i == j ? lambda * length : 0)) < 1e-4))
				fail_msg("outputs %d and %d: %g", i, j, sum[i * n + j]);
			assert_true(filter[(n + i) * n + j] == -filter[i * n + j]);
		}
	dt_image_release(&image);
	dt_image_release(&tmp);
	dt_images_close(d);
	unlink(path);
}

static void filters(void **state)
{
	whitened(3);
	whitened(1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(eigen), cmocka_unit_test(filters)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
