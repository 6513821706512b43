/*
 * Scaling as in Pillow (src/libImaging/Resample.c, facts only): weights of a triangle filter, widened by the
 * reduction, normalised in double, then in fixed point of 22 bits; first along rows, rounded to 8 bits, then
 * along columns.
 */
#include "data/image.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BITS 22

struct weights {
	int taps;   /* weights reserved for each output */
	int *first; /* [output] first input */
	int *n;	    /* [output] number of inputs */
	int32_t *w; /* weights of output i start at i * taps */
};

static void weights_release(struct weights *k)
{
	free(k->first);
	free(k->n);
	free(k->w);
}

/* Computes the weights of one output from its centre and radius in inputs, clipped to the image. */
static void weigh(struct weights *k, int i, double centre, double scale, double radius, int in, double *v)
{
	int first = (int)(centre - radius + 0.5), last = (int)(centre + radius + 0.5);
	double sum = 0, narrow = 1 / scale; /* a product as in Pillow: dividing rounds differently */

	first = first < 0 ? 0 : first;
	last = last > in ? in : last;
	k->first[i] = first;
	k->n[i] = last - first;
	for (int j = 0; j < last - first; j++) {
		double x = fabs((j + first - centre + 0.5) * narrow);

		v[j] = x < 1 ? 1 - x : 0;
		sum += v[j];
	}
	for (int j = 0; j < last - first; j++)
		k->w[(size_t)i * (size_t)k->taps + (size_t)j] =
			(int32_t)floor(0.5 + (sum != 0 ? v[j] / sum : v[j]) * (1 << BITS));
}

/* The caller releases k, also after a failure. */
static int weights_make(struct weights *k, int in, int out, struct dt_err *err)
{
	double scale = (double)in / out, widen = scale < 1 ? 1 : scale, radius = widen, *v;

	*k = (struct weights){.taps = (int)ceil(radius) * 2 + 1};
	k->first = malloc((size_t)out * sizeof(*k->first));
	k->n = malloc((size_t)out * sizeof(*k->n));
	k->w = calloc((size_t)out * (size_t)k->taps, sizeof(*k->w));
	v = malloc((size_t)k->taps * sizeof(*v));
	if (!k->first || !k->n || !k->w || !v) {
		free(v);
		return dt_err_sys(err, -ENOMEM, "cannot scale an image");
	}
	for (int i = 0; i < out; i++)
		weigh(k, i, (i + 0.5) * scale, widen, radius, in, v);
	free(v);
	return 0;
}

static uint8_t clip(int32_t v)
{
	v >>= BITS;
	return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* Scales a row to `out` pixels. */
static void scale_row(const struct weights *k, const uint8_t *x, int out, uint8_t *y)
{
	for (int i = 0; i < out; i++) {
		const int32_t *w = k->w + (size_t)i * (size_t)k->taps;
		const uint8_t *from = x + k->first[i];
		int32_t sum = 1 << (BITS - 1);

		for (int j = 0; j < k->n[i]; j++)
			sum += from[j] * w[j];
		y[i] = clip(sum);
	}
}

/* Computes row i of the result from rows of x, each width long. */
static void scale_column(const struct weights *k, int i, const uint8_t *x, int width, int32_t *sum,
			 uint8_t *y)
{
	const int32_t *w = k->w + (size_t)i * (size_t)k->taps;

	for (int c = 0; c < width; c++)
		sum[c] = 1 << (BITS - 1);
	for (int j = 0; j < k->n[i]; j++) {
		const uint8_t *from = x + (size_t)(k->first[i] + j) * (size_t)width;

		for (int c = 0; c < width; c++)
			sum[c] += from[c] * w[j];
	}
	for (int c = 0; c < width; c++)
		y[c] = clip(sum[c]);
}

/* Scales one plane: first the needed rows, then the columns. */
static void scale_plane(const struct weights *across, const struct weights *down, const uint8_t *x,
			int stride, int height, int width, uint8_t *rows, int32_t *sum, uint8_t *y)
{
	int first = down->first[0], end = down->first[height - 1] + down->n[height - 1];

	for (int r = first; r < end; r++)
		scale_row(across, x + (size_t)r * (size_t)stride, width, rows + (size_t)r * (size_t)width);
	for (int r = 0; r < height; r++)
		scale_column(down, r, rows, width, sum, y + (size_t)r * (size_t)width);
}

static void copy_box(const struct dt_image *x, struct dt_image_box b, struct dt_image *y)
{
	for (int c = 0; c < x->channels; c++)
		for (int r = 0; r < b.height; r++) {
			const uint8_t *from =
				x->pixel +
				((size_t)c * (size_t)x->height + (size_t)(b.top + r)) * (size_t)x->width +
				(size_t)b.left;
			uint8_t *to = y->pixel + ((size_t)c * (size_t)b.height + (size_t)r) * (size_t)b.width;

			__builtin_memcpy(to, from, (size_t)b.width);
		}
}

int dt_image_scale(const struct dt_image *x, struct dt_image_box b, int height, int width,
		   struct dt_image *ret, struct dt_err *err)
{
	struct weights across = {0}, down = {0};
	uint8_t *rows = NULL;
	int32_t *sum = NULL;
	int rc;

	if (b.top < 0 || b.left < 0 || b.height < 1 || b.width < 1 || b.height > x->height - b.top ||
	    b.width > x->width - b.left)
		return dt_err_set(err, -EINVAL, "a part of %dx%d at %d,%d is not in an image of %dx%d",
				  b.height, b.width, b.top, b.left, x->height, x->width);
	rc = dt_image_resize(ret, x->channels, height, width, err);
	if (rc < 0)
		return rc;
	if (b.height == height && b.width == width) {
		copy_box(x, b, ret);
		return 0;
	}
	rc = weights_make(&across, b.width, width, err);
	if (rc == 0)
		rc = weights_make(&down, b.height, height, err);
	if (rc == 0) {
		rows = malloc((size_t)b.height * (size_t)width);
		sum = malloc((size_t)width * sizeof(*sum));
		if (!rows || !sum)
			rc = dt_err_sys(err, -ENOMEM, "cannot scale an image");
	}
	for (int c = 0; c < x->channels && rc == 0; c++)
		scale_plane(&across, &down,
			    x->pixel + ((size_t)c * (size_t)x->height + (size_t)b.top) * (size_t)x->width +
				    b.left,
			    x->width, height, width, rows, sum,
			    ret->pixel + (size_t)c * (size_t)height * (size_t)width);
	free(rows);
	free(sum);
	weights_release(&across);
	weights_release(&down);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
