/* Scaling against a plain loop over the same weights, at sizes below, at and between whole vectors. */
#include "data/image.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SIDE 96

static unsigned next(unsigned *state)
{
	*state = *state * 1103515245u + 12345u;
	return *state >> 16 & 0x7fff;
}

static int below(unsigned *state, int n)
{
	return (int)(next(state) % (unsigned)n);
}

/* Result i of n inputs scaled to `out` results; inputs are `step` bytes apart. */
static uint8_t one(const uint8_t *x, size_t step, int n, int out, int i)
{
	double scale = (double)n / out, radius = scale < 1 ? 1 : scale, centre = (i + 0.5) * scale,
	       v[2 * SIDE + 3], sum = 0;
	int first = (int)(centre - radius + 0.5), last = (int)(centre + radius + 0.5), got = 1 << 21;

	first = first < 0 ? 0 : first;
	last = last > n ? n : last;
	for (int j = first; j < last; j++) {
		double d = fabs((j - centre + 0.5) * (1 / radius));

		sum += v[j - first] = d < 1 ? 1 - d : 0;
	}
	for (int j = first; j < last; j++)
		got += x[(size_t)j * step] * (int)floor(0.5 + v[j - first] / sum * (1 << 22));
	got >>= 22;
	return (uint8_t)(got < 0 ? 0 : got > 255 ? 255 : got);
}

/* A plane of x: first along rows, then along columns. */
static void plain(const uint8_t *x, int stride, struct dt_image_box b, int height, int width, uint8_t *y)
{
	static uint8_t rows[SIDE * SIDE];

	for (int r = 0; r < b.height; r++)
		for (int c = 0; c < width; c++)
			rows[r * width + c] = one(x + (b.top + r) * stride + b.left, 1, b.width, width, c);
	for (int r = 0; r < height; r++)
		for (int c = 0; c < width; c++)
			y[r * width + c] = one(rows + c, (size_t)width, b.height, height, r);
}

static struct dt_image_box some_box(unsigned *state, int height, int width)
{
	struct dt_image_box b = {.height = 1 + below(state, height), .width = 1 + below(state, width)};

	b.top = below(state, height - b.height + 1);
	b.left = below(state, width - b.width + 1);
	return b;
}

static void equals_a_plain_loop(void **unused)
{
	static uint8_t want[SIDE * SIDE];
	unsigned state = 1;

	(void)unused;
	for (int k = 0; k < 600; k++) {
		const int most = k % 3 ? SIDE : 12, height = 1 + below(&state, most),
			  width = 1 + below(&state, k % 2 ? SIDE : most);
		struct dt_image x = {0}, y = {0};
		struct dt_image_box box, part;
		struct dt_err err = {0};

		assert_int_equal(dt_image_resize(&x, k % 5 ? 3 : 1, 1 + below(&state, most),
						 1 + below(&state, SIDE), &err),
				 0);
		for (int i = 0; i < x.channels * x.height * x.width; i++)
			x.pixel[i] = (uint8_t)(next(&state) % 3 ? next(&state) : 255);
		box = some_box(&state, x.height, x.width);
		part = k % 4 ? some_box(&state, height, width) : (struct dt_image_box){0, 0, height, width};
		assert_int_equal(dt_image_scale_part(&x, box, height, width, part, &y, &err), 0);
		assert_int_equal(y.height * y.width, part.height * part.width);
		for (int c = 0; c < x.channels; c++) {
			plain(x.pixel + c * x.height * x.width, x.width, box, height, width, want);
			for (int r = 0; r < part.height; r++)
				assert_memory_equal(y.pixel + (c * part.height + r) * part.width,
						    want + (part.top + r) * width + part.left,
						    (size_t)part.width);
		}
		dt_image_release(&x);
		dt_image_release(&y);
	}
}

static void refuses_parts_outside(void **unused)
{
	struct dt_image x = {0}, y = {0};
	struct dt_err err = {0};
	const struct dt_image_box all = {0, 0, 4, 4};

	(void)unused;
	assert_int_equal(dt_image_resize(&x, 1, 4, 4, &err), 0);
	assert_int_equal(dt_image_scale_part(&x, all, 8, 8, (struct dt_image_box){0, 1, 8, 8}, &y, &err),
			 -EINVAL);
	assert_int_equal(
		dt_image_scale_part(&x, all, 1 << 20, 8, (struct dt_image_box){0, 0, 8, 8}, &y, &err),
		-EBADMSG);
	dt_image_release(&x);
	dt_image_release(&y);
}

/* Rows of all widths about the 16 pixels that are taken at a time. */
static void splits_pixels_into_planes(void **unused)
{
	uint8_t file[32 + 3 * 2 * 70];

	(void)unused;
	for (int width = 1; width <= 70; width++) {
		const int head = sprintf((char *)file, "P6\n%d 2\n255\n", width), n = 3 * 2 * width;
		struct dt_image x = {0};
		struct dt_err err = {0};

		for (int i = 0; i < n; i++)
			file[head + i] = (uint8_t)(i * 37 + width);
		assert_int_equal(dt_image_decode(file, (size_t)(head + n), 3, false, &x, NULL, &err), 0);
		for (int i = 0; i < n; i++)
			assert_int_equal(x.pixel[i % 3 * 2 * width + i / 3], file[head + i]);
		dt_image_release(&x);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equals_a_plain_loop),
		cmocka_unit_test(refuses_parts_outside),
		cmocka_unit_test(splits_pixels_into_planes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
