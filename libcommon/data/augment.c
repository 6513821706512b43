#include "data/augment.h"

#include "base/rng.h"
#include "data/dataset.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Random draws of sample n: numbers n * DRAWS .. of the stream, each at a fixed offset. */
#define DRAWS 64
enum { AT_TOP, AT_LEFT, AT_FLIP, AT_HOLE_TOP, AT_HOLE_LEFT, AT_CROP };
#define ATTEMPTS 10 /* tries of a random area and ratio; four draws each */

static const struct {
	const char *name;
	float mean[3], deviation[3];
} constants[] = {
	{"cifar10", {0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}},
	{"cifar100", {0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}},
	{"mnist", {0.1307f, 0.1307f, 0.1307f}, {0.3081f, 0.3081f, 0.3081f}},
	{"fashion-mnist", {0.28604f, 0.28604f, 0.28604f}, {0.35302f, 0.35302f, 0.35302f}},
	{"imagenet", {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
};

struct dt_augment dt_augment_default(int height, int width)
{
	return (struct dt_augment){.height = height,
				   .width = width,
				   .scale = {0.08, 1},
				   .ratio = {3. / 4, 4. / 3},
				   .deviation = {1, 1, 1}};
}

int dt_augment_constants(const char *name, float mean[3], float deviation[3])
{
	for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++)
		if (!strcmp(name, constants[i].name)) {
			memcpy(mean, constants[i].mean, sizeof(constants[i].mean));
			memcpy(deviation, constants[i].deviation, sizeof(constants[i].deviation));
			return 0;
		}
	return -EINVAL;
}

void dt_augment_whole(struct dt_augment *a, int height, int width)
{
	if (a->crop != DT_CROP_NONE || (height == a->height && width == a->width))
		return;
	a->crop = DT_CROP_CENTRE;
	a->resize = height == width && height ? a->height : (int)((double)a->height / 0.875 + 0.5);
}

int dt_augment_check(const struct dt_augment *a, struct dt_err *err)
{
	if (a->height < 1 || a->width < 1 || a->height > DT_IMAGE_SIDE_MAX || a->width > DT_IMAGE_SIDE_MAX)
		return dt_err_set(err, -EINVAL, "%d x %d pixels is not a valid sample size", a->height,
				  a->width);
	if (a->pad < 0 || a->pad > 4096 || a->resize < 0 || a->resize > DT_IMAGE_SIDE_MAX || a->cutout < 0)
		return dt_err_set(err, -EINVAL, "padding %d, size %d or cutout %d is out of range", a->pad,
				  a->resize, a->cutout);
	if (!(a->scale[0] > 0 && a->scale[0] <= a->scale[1] && a->scale[1] <= 1) ||
	    !(a->ratio[0] > 0 && a->ratio[0] <= a->ratio[1]))
		return dt_err_set(err, -EINVAL,
				  "cannot draw crops with areas %g to %g and aspect ratios %g to %g",
				  a->scale[0], a->scale[1], a->ratio[0], a->ratio[1]);
	if (!(a->mixup >= 0 && a->mixup <= 100) || !(a->cutmix >= 0 && a->cutmix <= 100))
		return dt_err_set(err, -EINVAL, "mixup %g or cutmix %g is not in 0 .. 100", a->mixup,
				  a->cutmix);
	for (int c = 0; c < 3; c++)
		if (!(a->deviation[c] > 0) || !isfinite(a->mean[c]))
			return dt_err_set(err, -EINVAL,
					  "cannot normalise pixels with mean %g and deviation %g", a->mean[c],
					  a->deviation[c]);
	return 0;
}

/* The size to which DT_CROP_CENTRE scales an image: its shorter side becomes a->resize. */
static void scaled_size(const struct dt_augment *a, int height, int width, int *h, int *w)
{
	*h = !a->resize ? height : height <= width ? a->resize : (int)((int64_t)a->resize * height / width);
	*w = !a->resize ? width : width <= height ? a->resize : (int)((int64_t)a->resize * width / height);
}

int dt_augment_fits(const struct dt_augment *a, int height, int width, struct dt_err *err)
{
	int h = height, w = width;

	if (a->crop == DT_CROP_RESIZED)
		return 0;
	if (a->crop == DT_CROP_CENTRE && a->resize)
		h = w = a->resize; /* whatever the image's size */
	if (a->crop == DT_CROP_PAD) {
		if (a->reflect && (a->pad >= height || a->pad >= width))
			return dt_err_set(err, -EINVAL,
					  "an image of %d x %d is too small for a mirrored border of %d",
					  height, width, a->pad);
		h += 2 * a->pad;
		w += 2 * a->pad;
	}
	if (a->crop == DT_CROP_NONE && (h != a->height || w != a->width))
		return dt_err_set(err, -EINVAL, "an image of %d x %d does not have the sample size %d x %d",
				  h, w, a->height, a->width);
	if (h < a->height || w < a->width)
		return dt_err_set(err, -EINVAL, "an image of %d x %d is smaller than the crop of %d x %d", h,
				  w, a->height, a->width);
	return 0;
}

static int below(const struct dt_rng *r, int64_t n, int at, int bound)
{
	return (int)((uint64_t)dt_rng_u32(r, (uint64_t)n * DRAWS + (uint64_t)at) * (uint64_t)bound >> 32);
}

static double uniform(const struct dt_rng *r, int64_t n, int at)
{
	return dt_rng_uniform(r, (uint64_t)n * DRAWS + (uint64_t)at);
}

/* Like torchvision: ten attempts, then the largest centred box with an allowed ratio. */
static struct dt_image_box resized_box(const struct dt_augment *a, const struct dt_rng *r, int64_t n,
				       int height, int width)
{
	double area = (double)height * width, low = log(a->ratio[0]), high = log(a->ratio[1]);
	struct dt_image_box b = {0, 0, height, width};

	for (int k = 0; k < ATTEMPTS; k++) {
		int at = AT_CROP + 4 * k;
		double part = area * (a->scale[0] + (a->scale[1] - a->scale[0]) * uniform(r, n, at)),
		       ratio = exp(low + (high - low) * uniform(r, n, at + 1));
		double w = rint(sqrt(part * ratio)), h = rint(sqrt(part / ratio));

		if (w >= 1 && w <= width && h >= 1 && h <= height) {
			b.height = (int)h;
			b.width = (int)w;
			b.top = below(r, n, at + 2, height - b.height + 1);
			b.left = below(r, n, at + 3, width - b.width + 1);
			return b;
		}
	}
	if ((double)width / height < a->ratio[0])
		b.height = (int)rint(width / a->ratio[0]);
	else if ((double)width / height > a->ratio[1])
		b.width = (int)rint(height * a->ratio[1]);
	b.height = b.height < 1 ? 1 : b.height > height ? height : b.height;
	b.width = b.width < 1 ? 1 : b.width > width ? width : b.width;
	b.top = (height - b.height) / 2;
	b.left = (width - b.width) / 2;
	return b;
}

static struct dt_image_box clipped(int top, int left, int height, int width, const struct dt_augment *a)
{
	int bottom = top + height, right = left + width;

	top = top < 0 ? 0 : top;
	left = left < 0 ? 0 : left;
	bottom = bottom > a->height ? a->height : bottom;
	right = right > a->width ? a->width : right;
	return (struct dt_image_box){top, left, bottom > top ? bottom - top : 0,
				     right > left ? right - left : 0};
}

static bool flips(const struct dt_augment *a, const struct dt_rng *r, uint64_t seed, int64_t n)
{
	if (!a->alternate)
		return uniform(r, n, AT_FLIP) < 0.5;
	/* an image's draw is that of the sample with its number, whatever the epoch */
	return (uniform(r, dt_sample_at(seed, true, n, a->alternate), AT_FLIP) < 0.5) ^
	       (n / a->alternate & 1);
}

struct dt_augment_draw dt_augment_draw(const struct dt_augment *a, uint64_t seed, int64_t n, int height,
				       int width)
{
	struct dt_rng r = dt_rng_make(seed, DT_RNG_AUGMENT, 0);
	struct dt_augment_draw d = {.box = {0, 0, a->height, a->width}};

	if (a->crop == DT_CROP_PAD) {
		d.box.top = below(&r, n, AT_TOP, height + 2 * a->pad - a->height + 1);
		d.box.left = below(&r, n, AT_LEFT, width + 2 * a->pad - a->width + 1);
	} else if (a->crop == DT_CROP_RESIZED) {
		d.box = resized_box(a, &r, n, height, width);
	} else if (a->crop == DT_CROP_CENTRE) {
		int h, w;

		scaled_size(a, height, width, &h, &w);
		d.box.top = (int)rint((h - a->height) / 2.0);
		d.box.left = (int)rint((w - a->width) / 2.0);
	}
	d.flip = a->flip && flips(a, &r, seed, n);
	if (a->cutout)
		d.hole = clipped(below(&r, n, AT_HOLE_TOP, a->height) - a->cutout / 2,
				 below(&r, n, AT_HOLE_LEFT, a->width) - a->cutout / 2, a->cutout, a->cutout,
				 a);
	return d;
}

/* Maps position i of a padded side to the unpadded side of n; -1 in zero padding. */
static int unpadded(int i, int n, bool reflect)
{
	if (i >= 0 && i < n)
		return i;
	return !reflect ? -1 : i < 0 ? -i : 2 * n - 2 - i;
}

/*
 * Writes one row of the sample from a row of the image; NULL: a row of zeros. left may be outside the image.
 */
static void put_row(const uint8_t *from, int have, int left, const struct dt_augment *a, bool flip, int c,
		    float *y)
{
	float k = 1 / (255 * a->deviation[c]), b = -a->mean[c] / a->deviation[c];
	int w = a->width;

	if (from && left >= 0 && left + w <= have && !flip) {
		for (int i = 0; i < w; i++)
			y[i] = (float)from[left + i] * k + b;
		return;
	}
	for (int i = 0; i < w; i++) {
		int at = from ? unpadded(left + (flip ? w - 1 - i : i), have, a->reflect) : -1;

		y[i] = (at < 0 ? 0 : (float)from[at]) * k + b;
	}
}

static void put_planes(const struct dt_image *x, const struct dt_augment *a, const struct dt_augment_draw *d,
		       int top, int left, float *y)
{
	for (int c = 0; c < x->channels; c++) {
		const uint8_t *plane = x->pixel + (size_t)c * (size_t)x->height * (size_t)x->width;

		for (int r = 0; r < a->height; r++, y += a->width) {
			int at = unpadded(top + r, x->height, a->reflect);

			put_row(at < 0 ? NULL : plane + (size_t)at * (size_t)x->width, x->width, left, a,
				d->flip, c, y);
			if (r >= d->hole.top && r < d->hole.top + d->hole.height)
				memset(y + d->hole.left, 0, (size_t)d->hole.width * sizeof(*y));
		}
	}
}

int dt_augment_apply(const struct dt_augment *a, uint64_t seed, int64_t n, const struct dt_image *x,
		     struct dt_image *tmp, float *y, struct dt_err *err)
{
	struct dt_augment_draw d;
	int top, left, h, w, rc = dt_augment_fits(a, x->height, x->width, err);

	if (rc < 0)
		return rc;
	d = dt_augment_draw(a, seed, n, x->height, x->width);
	top = d.box.top;
	left = d.box.left;
	if (a->crop == DT_CROP_PAD) {
		top -= a->pad;
		left -= a->pad;
	} else if (a->crop == DT_CROP_RESIZED) {
		rc = dt_image_scale(x, d.box, a->height, a->width, tmp, err);
		x = tmp;
		top = left = 0;
	} else if (a->crop == DT_CROP_CENTRE && a->resize) {
		scaled_size(a, x->height, x->width, &h, &w);
		rc = dt_image_scale(x, (struct dt_image_box){0, 0, x->height, x->width}, h, w, tmp, err);
		x = tmp;
	}
	if (rc == 0)
		put_planes(x, a, &d, top, left, y);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
