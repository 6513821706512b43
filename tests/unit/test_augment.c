/*
 * Decoding and scaling against Pillow, evaluation against torchvision (tests/data/golden_images.py); what is
 * drawn against plain loops and the moments of its distribution.
 */
#include "data/augment.h"

#include "base/rng.h"
#include "data/dataset.h"
#include "golden.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct golden g;

static int setup(void **state)
{
	golden_open(&g, "images");
	return 0;
}

static int teardown(void **state)
{
	golden_close(&g);
	return 0;
}

static const char *key(const char *group, const char *name, const char *what)
{
	static char s[4][128];
	static int i;

	i = (i + 1) % 4;
	snprintf(s[i], sizeof(s[i]), "%s/%s/%s", group, name, what);
	return s[i];
}

static void load(const char *name, struct dt_image *x)
{
	int64_t shape[4], n;
	int32_t *v = golden_i32(&g, name, &n);

	assert_int_equal(golden_shape(&g, name, shape), 3);
	assert_int_equal(dt_image_resize(x, (int)shape[0], (int)shape[1], (int)shape[2], NULL), 0);
	for (int64_t i = 0; i < n; i++)
		x->pixel[i] = (uint8_t)v[i];
	free(v);
}

static void same(const char *name, const struct dt_image *got, const struct dt_image *want)
{
	if (got->channels != want->channels || got->height != want->height || got->width != want->width)
		fail_msg("%s: %d x %d x %d, not %d x %d x %d", name, got->channels, got->height, got->width,
			 want->channels, want->height, want->width);
	for (int i = 0; i < got->channels * got->height * got->width; i++)
		if (got->pixel[i] != want->pixel[i])
			fail_msg("%s: value %d is %d, not %d", name, i, got->pixel[i], want->pixel[i]);
}

static const char *const files[] = {
	"jpeg",
	"jpeg-444-progressive",
	"jpeg-as-grey",
	"jpeg-grey",
	"jpeg-grey-as-colour",
	"jpeg-cmyk",
	"jpeg-exif-1",
	"jpeg-exif-2",
	"jpeg-exif-3",
	"jpeg-exif-4",
	"jpeg-exif-5",
	"jpeg-exif-6",
	"jpeg-exif-7",
	"jpeg-exif-8",
	"png",
	"png-grey",
	"png-palette",
	"png-alpha",
	"png-bits",
	"png-16",
	"png-16-grey",
	"ppm",
	"pgm",
};

static uint8_t *load_file(const char *name, size_t *ret_n)
{
	int64_t n;
	int32_t *v = golden_i32(&g, key("decode", name, "bytes"), &n);
	uint8_t *b = malloc((size_t)n);

	for (int64_t i = 0; i < n; i++)
		b[i] = (uint8_t)v[i];
	free(v);
	*ret_n = (size_t)n;
	return b;
}

static void decoded(void **state)
{
	for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
		struct dt_image got = {0}, want = {0};
		struct dt_image_facts facts;
		struct dt_err err = {0};
		char group[64];
		size_t n;
		uint8_t *b = load_file(files[k], &n);

		snprintf(group, sizeof(group), "decode/%s", files[k]);
		if (dt_image_reads(dt_image_kind(b, n))) {
			if (dt_image_decode(b, n, (int)golden_int(&g, group, "channels"),
					    golden_int(&g, group, "orient"), &got, &facts, &err) < 0)
				fail_msg("%s: %s", files[k], err.msg);
			load(key("decode", files[k], "pixels"), &want);
			same(files[k], &got, &want);
			assert_int_equal(facts.deep, strstr(files[k], "16") != NULL);
			assert_int_equal(facts.cmyk, strstr(files[k], "cmyk") != NULL);
			assert_int_equal(facts.alpha, strstr(files[k], "alpha") != NULL);
			if (strstr(files[k], "exif"))
				assert_int_equal(facts.orientation, files[k][10] - '0');
		} else {
			assert_int_equal(dt_image_decode(b, n, 3, false, &got, NULL, &err), -ENOTSUP);
		}
		dt_image_release(&got);
		dt_image_release(&want);
		free(b);
	}
}

/*
 * Every file cut at every length is refused or, where only its end mark is missing, decoded: never a crash.
 */
static void truncated(void **state)
{
	for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
		struct dt_image x = {0};
		size_t n;
		uint8_t *b = load_file(files[k], &n);

		if (dt_image_reads(dt_image_kind(b, n)))
			for (size_t cut = 0; cut + 20 < n; cut += 1 + n / 200) {
				struct dt_err err = {0};

				assert_int_equal(dt_image_decode(b, cut, 3, true, &x, NULL, &err), -EBADMSG);
				assert_true(*err.msg);
			}
		dt_image_release(&x);
		free(b);
	}
}

static void scaled(void **state)
{
	static const char *const names[] = {"down", "up", "mixed", "one", "same", "far"};

	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		struct dt_image x = {0}, want = {0}, got = {0};
		struct dt_err err = {0};
		int32_t *b = golden_i32(&g, key("scale", names[k], "box"), NULL);

		load(key("scale", names[k], "pixels"), &x);
		load(key("scale", names[k], "out"), &want);
		if (dt_image_scale(&x, (struct dt_image_box){b[0], b[1], b[2], b[3]}, want.height, want.width,
				   &got, &err) < 0)
			fail_msg("%s: %s", names[k], err.msg);
		same(names[k], &got, &want);
		free(b);
		dt_image_release(&x);
		dt_image_release(&want);
		dt_image_release(&got);
	}
}

static void filtered(void **state)
{
	static const char *const names[] = {"down", "up", "far", "wide", "same"};

	for (int k = 0; k < 10; k++) {
		const enum dt_image_filter f = k % 2 ? DT_IMAGE_LANCZOS : DT_IMAGE_BICUBIC;
		struct dt_image x = {0}, want = {0}, got = {0};
		struct dt_err err = {0};
		char name[24];

		snprintf(name, sizeof(name), "%s-%d", names[k / 2], (int)f);
		load(key("filter", name, "pixels"), &x);
		load(key("filter", name, "out"), &want);
		if (dt_image_scale_by(&x, f, want.height, want.width, &got, &err) < 0)
			fail_msg("%s: %s", name, err.msg);
		same(name, &got, &want);
		dt_image_release(&x);
		dt_image_release(&want);
		dt_image_release(&got);
	}
}

static void evaluated(void **state)
{
	struct dt_augment a = dt_augment_default(16, 16);
	struct dt_image x = {0}, tmp = {0};
	struct dt_err err = {0};
	float y[3 * 16 * 16], *want = golden_f32(&g, "evaluate/out", NULL);

	a.crop = DT_CROP_CENTRE;
	a.resize = 20;
	assert_int_equal(dt_augment_constants("imagenet", a.mean, a.deviation), 0);
	load("evaluate/pixels", &x);
	if (dt_augment_apply(&a, 1, 2, &x, &tmp, y, &err) < 0)
		fail_msg("%s", err.msg);
	golden_assert_close("evaluate", y, want, 768, 1, 1e-6);
	free(want);
	dt_image_release(&x);
	dt_image_release(&tmp);
}

/* Value (c, r, k) of the padded image, by the definition. */
static float padded(const struct dt_image *x, int c, int r, int k, bool reflect)
{
	if (reflect) {
		r = abs(r);
		k = abs(k);
		r = r >= x->height ? 2 * (x->height - 1) - r : r;
		k = k >= x->width ? 2 * (x->width - 1) - k : k;
	}
	if (r < 0 || k < 0 || r >= x->height || k >= x->width)
		return 0;
	return (float)x->pixel[(c * x->height + r) * x->width + k];
}

/* Padding, crop, flip, cutout and normalisation of 200 samples against plain loops over what is drawn. */
static void cropped(void **state)
{
	struct dt_augment a = dt_augment_default(10, 12);
	struct dt_image x = {0}, tmp = {0};
	struct dt_err err = {0};
	float y[3 * 10 * 12];
	int flips = 0, tops = 0;

	load("scale/up/pixels", &x); /* 11 x 9 */
	a.crop = DT_CROP_PAD;
	a.pad = 4;
	a.flip = true;
	a.cutout = 4;
	for (int c = 0; c < 3; c++) {
		a.mean[c] = 0.3f + 0.1f * (float)c;
		a.deviation[c] = 0.25f;
	}
	for (int n = 0; n < 200; n++) {
		struct dt_augment_draw d;

		a.reflect = n % 2;
		d = dt_augment_draw(&a, 7, n, x.height, x.width);
		assert_int_equal(dt_augment_apply(&a, 7, n, &x, &tmp, y, &err), 0);
		assert_in_range(d.box.top, 0, 11 + 8 - 10);
		assert_in_range(d.box.left, 0, 9 + 8 - 12);
		flips += d.flip;
		tops += d.box.top;
		for (int i = 0; i < 360; i++) {
			int c = i / 120, r = i / 12 % 10, k = i % 12;
			bool hole = r >= d.hole.top && r < d.hole.top + d.hole.height && k >= d.hole.left &&
				    k < d.hole.left + d.hole.width;
			float v = padded(&x, c, d.box.top + r - 4, d.box.left + (d.flip ? 11 - k : k) - 4,
					 a.reflect),
			      want = hole ? 0 : (v / 255 - a.mean[c]) / a.deviation[c];

			if (fabsf(y[i] - want) > 2e-6f)
				fail_msg("sample %d, value %d: %g, not %g", n, i, (double)y[i], (double)want);
		}
	}
	assert_in_range(flips, 70, 130);
	assert_in_range(tops, 200 * 3.8, 200 * 5.2);
	dt_image_release(&x);
	dt_image_release(&tmp);
}

/* Of each epoch every image once: half of them mirrored in the first, each the other way in the next. */
static void alternate(void **state)
{
	enum { IMAGES = 400, EPOCHS = 5 };
	struct dt_augment a = dt_augment_default(8, 8);
	bool first[IMAGES] = {0};
	int flips = 0;

	a.flip = true;
	a.alternate = IMAGES;
	for (int64_t n = 0; n < IMAGES * EPOCHS; n++) {
		const int64_t image = dt_sample_at(11, true, n, IMAGES), epoch = n / IMAGES;
		const bool flip = dt_augment_draw(&a, 11, n, 8, 8).flip;

		if (!epoch)
			first[image] = flip;
		flips += !epoch && flip;
		if (flip != (first[image] ^ (epoch % 2)))
			fail_msg("image %lld of epoch %lld: mirrored %d, in the first %d", (long long)image,
				 (long long)epoch, flip, first[image]);
	}
	assert_in_range(flips, IMAGES / 2 - 40, IMAGES / 2 + 40);
}

/* Areas evenly in [0.08, 1] where they fit, ratios in [3/4, 4/3] in their logarithm, places evenly. */
static void resized(void **state)
{
	struct dt_augment a = dt_augment_default(8, 8);
	double area = 0, ratio = 0, middle = 0;
	int n = 20000;

	a.crop = DT_CROP_RESIZED;
	a.scale[1] = 0.5;
	for (int i = 0; i < n; i++) {
		struct dt_image_box b = dt_augment_draw(&a, 3, i, 300, 300).box;

		assert_true(b.top >= 0 && b.left >= 0 && b.top + b.height <= 300 && b.left + b.width <= 300);
		assert_true((double)b.width / b.height > 0.74 && (double)b.width / b.height < 1.35);
		area += (double)b.height * b.width / 90000 / n;
		ratio += log((double)b.width / b.height) / n;
		middle += (b.top + b.height / 2.0) / 300 / n;
	}
	assert_true(fabs(area - 0.29) < 0.005);
	assert_true(fabs(ratio) < 0.005);
	assert_true(fabs(middle - 0.5) < 0.005);
	/* no part of a long image is as tall as it would have to be: the middle, of the widest ratio */
	a.scale[0] = a.scale[1] = 1;
	for (int i = 0; i < 100; i++) {
		struct dt_image_box b = dt_augment_draw(&a, 3, i, 10, 100).box;

		assert_int_equal(b.height, 10);
		assert_int_equal(b.width, 13);
		assert_int_equal(b.left, 43);
	}
}

/*
 * Mean 1/2 and variance 1 / (4 (2 alpha + 1)) of Beta(alpha, alpha); cutmix's share is what the box leaves.
 */
static void mixed(void **state)
{
	static const double alphas[] = {0.1, 0.2, 1, 4};
	int n = 40000;

	for (int k = 0; k < 4; k++) {
		struct dt_augment a = dt_augment_default(32, 24);
		double sum = 0, squares = 0;

		a.mixup = alphas[k];
		for (int i = 0; i < n; i++) {
			struct dt_augment_mix m = dt_augment_mix(&a, 11, i);

			assert_true(m.share >= 0 && m.share <= 1 && !m.box.height);
			sum += (double)m.share / n;
			squares += ((double)m.share - 0.5) * ((double)m.share - 0.5) / n;
		}
		if (fabs(sum - 0.5) > 0.008 || fabs(squares * 4 * (2 * alphas[k] + 1) - 1) > 0.03)
			fail_msg("alpha %g: mean %g, variance %g", alphas[k], sum, squares);
		a.mixup = 0;
		a.cutmix = alphas[k];
		for (int i = 0; i < n; i++) {
			struct dt_augment_mix m = dt_augment_mix(&a, 11, i);

			assert_true(m.box.top >= 0 && m.box.left >= 0 && m.box.top + m.box.height <= 32 &&
				    m.box.left + m.box.width <= 24);
			assert_true(fabs((double)m.share - (1 - m.box.height * m.box.width / 768.)) < 1e-6);
		}
	}
}

static void blended(void **state)
{
	struct dt_augment a = dt_augment_default(3, 4);
	struct dt_augment_mix m = {.share = 0.25f};
	float x[24], y[24], out[24];

	for (int i = 0; i < 24; i++) {
		x[i] = (float)i;
		y[i] = (float)(100 - i);
	}
	dt_augment_blend(&a, m, 2, x, y, out);
	for (int i = 0; i < 24; i++)
		assert_true(fabsf(out[i] - (0.25f * x[i] + 0.75f * y[i])) < 1e-5f);
	m.box = (struct dt_image_box){1, 2, 2, 2};
	dt_augment_blend(&a, m, 2, x, y, out);
	for (int i = 0; i < 24; i++) {
		bool in = i / 4 % 3 >= 1 && i % 4 >= 2;

		assert_true(out[i] == (in ? y : x)[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decoded),   cmocka_unit_test(truncated), cmocka_unit_test(scaled),
		cmocka_unit_test(evaluated), cmocka_unit_test(cropped),	  cmocka_unit_test(resized),
		cmocka_unit_test(mixed),     cmocka_unit_test(blended),	  cmocka_unit_test(alternate),
		cmocka_unit_test(filtered),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
/* SPDX-License-Identifier: Apache-2.0 */
