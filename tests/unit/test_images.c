/*
 * Data sets of images and their loader: what is written is read back, damage is refused, samples depend on
 * the seed and their number only.
 */
#include "data/image_loader.h"

#include "base/rng.h"
#include "base/tmpfile.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define N 41
static char dir[] = "/tmp/dt-images-XXXXXX";
static const char *const names[] = {"ant", "bee", "cricket", "d\xc3\xb6rr"};

static const char *at(const char *name)
{
	static char path[4][256];
	static int i;

	i = (i + 1) % 4;
	snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
	return path[i];
}

static int setup(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	return dt_remove_tree(dir, NULL);
}

static void must(int rc, const struct dt_err *err)
{
	if (rc < 0)
		fail_msg("%s", err->msg);
}

/* Image i: smooth, so that JPEG keeps it near; of 8 x 6, or with vary of several sizes. */
static void image_of(int i, int channels, bool vary, struct dt_image *x)
{
	int h = 8 + (vary ? i % 3 : 0), w = 6 + (vary ? i % 5 : 0);

	must(dt_image_resize(x, channels, h, w, NULL), NULL);
	for (int c = 0; c < channels; c++)
		for (int r = 0; r < h; r++)
			for (int k = 0; k < w; k++)
				x->pixel[(c * h + r) * w + k] = (uint8_t)(i * 3 + c * 20 + r * 4 + k);
}

static void make(const char *path, int channels, bool jpeg, int shards)
{
	struct dt_images_create how = {.channels = channels,
				       .jpeg = jpeg,
				       .classes = 4,
				       .class_name = names,
				       .source = "a test",
				       .shards = shards};
	struct dt_images_writer *w;
	struct dt_image x = {0};
	struct dt_err err = {0};

	must(dt_images_create(path, &how, &w, &err), &err);
	for (int i = 0; i < N; i++) {
		uint8_t *bytes = NULL;
		size_t n = 0;

		image_of(i, channels, jpeg, &x);
		if (jpeg)
			must(dt_image_encode_jpeg(&x, 100, &bytes, &n, &err), &err);
		must(dt_images_append(w, &x, bytes, n, i * 7 % 4, &err), &err);
		free(bytes);
	}
	must(dt_images_finish(w, &err), &err);
	dt_image_release(&x);
}

static struct dt_images *open_set(const char *path)
{
	struct dt_images *d;
	struct dt_err err = {0};

	must(dt_images_open(path, &d, &err), &err);
	return d;
}

static void same_image(const struct dt_images *d, int i, int channels, bool jpeg)
{
	struct dt_image x = {0}, want = {0};
	struct dt_err err = {0};

	image_of(i, channels, jpeg, &want);
	must(dt_images_read(d, i, &x, &err), &err);
	assert_int_equal(x.height, want.height);
	assert_int_equal(x.width, want.width);
	assert_int_equal(x.channels, channels);
	for (int k = 0; k < channels * x.height * x.width; k++)
		if (abs(x.pixel[k] - want.pixel[k]) > (jpeg ? 4 : 0))
			fail_msg("image %d, value %d: %d, not %d", i, k, x.pixel[k], want.pixel[k]);
	assert_int_equal(dt_images_label(d, i), i * 7 % 4);
	dt_image_release(&x);
	dt_image_release(&want);
}

static void read_back(void **state)
{
	for (int shards = 1; shards <= 3; shards += 2)
		for (int jpeg = 0; jpeg < 2; jpeg++)
			for (int channels = 1; channels <= 3; channels += 2) {
				struct dt_images_info info;
				struct dt_err err = {0};
				struct dt_images *d;

				if (jpeg && !dt_image_reads(DT_IMAGE_JPEG))
					continue;
				make(at("D.h5"), channels, jpeg, shards);
				d = open_set(at("D.h5"));
				dt_images_info(d, &info);
				assert_int_equal(info.images, N);
				assert_int_equal(info.shards, shards);
				assert_int_equal(info.classes, 4);
				assert_string_equal(info.class_name[3], names[3]);
				assert_int_equal(info.height, jpeg ? 0 : 8);
				assert_int_equal(info.max_width, jpeg ? 10 : 6);
				for (int i = 0; i < N; i++)
					same_image(d, i, channels, jpeg);
				must(dt_images_verify(d, &err), &err);
				assert_int_equal(dt_images_is(at("D.h5"), &err), 1);
				dt_images_close(d);
			}
}

/* Mean and deviation against a plain sum. */
static void sums(void **state)
{
	struct dt_images_info info;
	struct dt_image x = {0};
	struct dt_images *d;
	double sum = 0, squares = 0, mean;

	make(at("D.h5"), 3, false, 2);
	d = open_set(at("D.h5"));
	dt_images_info(d, &info);
	for (int i = 0; i < N; i++) {
		image_of(i, 3, false, &x);
		for (int k = 48; k < 96; k++) {
			sum += x.pixel[k] / 255.;
			squares += x.pixel[k] / 255. * x.pixel[k] / 255.;
		}
	}
	mean = sum / (48 * N);
	assert_true(fabs(mean - (double)info.mean[1]) < 1e-6);
	assert_true(fabs(sqrt(squares / (48 * N) - mean * mean) - (double)info.deviation[1]) < 1e-6);
	dt_image_release(&x);
	dt_images_close(d);
}

/* Writes n bytes, by places from where the file has the bytes what. */
static void overwrite(const char *path, const void *what, size_t what_n, const void *bytes, size_t n, int by)
{
	static char whole[1 << 18];
	int fd = open(path, O_RDWR);
	ssize_t size = pread(fd, whole, sizeof(whole), 0);
	char *found = size > 0 ? memmem(whole, (size_t)size, what, what_n) : NULL;

	assert_non_null(found);
	assert_int_equal(pwrite(fd, bytes, n, found - whole + by), (ssize_t)n);
	close(fd);
}

static void refused(void **state)
{
	static const char *const others[] = {"ant", "bee", "wasp", "d\xc3\xb6rr"};
	static const char *const numbers[] = {"0", "1", "2", "3"}; /* of a set that was built without names */
	struct dt_images *d;
	struct dt_err err = {0};
	char shard[256];
	struct dt_image x = {0};

	make(at("D.h5"), 3, false, 3);
	d = open_set(at("D.h5"));
	assert_int_equal(dt_images_check_classes(d, 4, names, "the checkpoint", &err), 0);
	assert_int_equal(dt_images_check_classes(d, 4, others, "the checkpoint", &err), -EINVAL);
	assert_non_null(strstr(err.msg, "wasp"));
	assert_int_equal(dt_images_check_classes(d, 4, numbers, "the checkpoint", &err), 0);
	assert_int_equal(dt_images_check_classes(d, 3, numbers, "the checkpoint", &err), -EINVAL);
	assert_int_equal(dt_images_check_classes(d, 3, names, "the checkpoint", &err), -EINVAL);
	dt_images_close(d);
	snprintf(shard, sizeof(shard), "%s/D-00001-of-00003.h5", dir);
	/* a changed pixel is found by verify, a shorter file when it is opened */
	image_of(20, 3, false, &x);
	x.pixel[5] ^= 1;
	overwrite(shard, x.pixel + 6, 8 * 6 * 3 - 6, x.pixel + 5, 1, -1);
	d = open_set(at("D.h5"));
	assert_int_equal(dt_images_verify(d, &err), -EBADMSG);
	dt_images_close(d);
	dt_image_release(&x);
	make(at("D.h5"), 3, false, 3);
	assert_int_equal(truncate(shard, 1500), 0);
	assert_int_equal(dt_images_open(at("D.h5"), &d, &err), -EBADMSG);
	unlink(shard);
	assert_int_equal(dt_images_open(at("D.h5"), &d, &err), -ENOENT);
	assert_int_equal(dt_images_open(at("none.h5"), &d, &err), -ENOENT);
}

/* A set whose facts do not fit one another is refused, whatever they are. */
static void contradictions(void **state)
{
	static const struct {
		const char *name;
		int64_t v;
	} facts[] = {{"images", 0},	 {"images", N + 1},  {"images", INT64_MAX}, {"channels", 2},
		     {"channels", 1},	 {"height", 0},	     {"height", 9},	    {"width", 65535},
		     {"pixels", 1},	 {"pixels", 0},	     {"version", 2},	    {"max_width", 0},
		     {"min_height", -1}, {"orientation", 2}, {"crc32", -1}};

	for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
		struct dt_images *d;
		struct dt_err err = {0};
		hid_t f, a;

		make(at("D.h5"), 3, false, 1);
		f = H5Fopen(at("D.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
		a = H5Aopen(f, facts[i].name, H5P_DEFAULT);
		assert_true(H5Awrite(a, H5T_NATIVE_INT64, &facts[i].v) >= 0);
		H5Aclose(a);
		H5Fclose(f);
		if (dt_images_open(at("D.h5"), &d, &err) != -EBADMSG)
			fail_msg("%s %lld was taken", facts[i].name, (long long)facts[i].v);
		assert_non_null(strstr(err.msg, "D.h5"));
	}
}

/* Labels, offsets and datasets likewise. */
static void lists(void **state)
{
	static const char *const gone[] = {"labels", "classes", "data", "pixel_sum", "offsets"};
	static const int32_t labels[N] = {[7] = 4};
	static int64_t offsets[N + 1];

	for (int i = 0; i < 7; i++) {
		struct dt_images *d;
		struct dt_err err = {0};
		bool jpeg = dt_image_reads(DT_IMAGE_JPEG);
		hid_t f, s;

		if (i >= 4 && i != 5 && !jpeg)
			continue;
		make(at("D.h5"), 3, i >= 4 && i != 5, 1);
		f = H5Fopen(at("D.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
		if (i < 5) {
			H5Ldelete(f, gone[i], H5P_DEFAULT);
		} else {
			s = H5Dopen2(f, i == 5 ? "labels" : "offsets", H5P_DEFAULT);
			for (int k = 0; k <= N; k++)
				offsets[k] = k == 9 ? 1000000 : k * 10;
			H5Dwrite(s, i == 5 ? H5T_NATIVE_INT32 : H5T_NATIVE_INT64, H5S_ALL, H5S_ALL,
				 H5P_DEFAULT, i == 5 ? (const void *)labels : offsets);
			H5Dclose(s);
		}
		H5Fclose(f);
		assert_int_equal(dt_images_open(at("D.h5"), &d, &err), -EBADMSG);
	}
}

static void writer_refuses(void **state)
{
	struct dt_images_create how = {.channels = 3, .classes = 4, .class_name = names};
	struct dt_images_writer *w;
	struct dt_image x = {0};
	struct dt_err err = {0};

	must(dt_images_create(at("W.h5"), &how, &w, &err), &err);
	image_of(0, 3, false, &x);
	assert_int_equal(dt_images_append(w, &x, NULL, 0, 4, &err), -EINVAL);
	assert_int_equal(dt_images_append(w, &x, NULL, 0, -1, &err), -EINVAL);
	must(dt_images_append(w, &x, NULL, 0, 0, &err), &err);
	image_of(1, 3, true, &x);
	assert_int_equal(dt_images_append(w, &x, NULL, 0, 0, &err), -EINVAL);
	image_of(0, 1, false, &x);
	assert_int_equal(dt_images_append(w, &x, NULL, 0, 0, &err), -EINVAL);
	dt_images_abandon(w);
	must(dt_images_create(at("W.h5"), &how, &w, &err), &err);
	assert_int_equal(dt_images_finish(w, &err), -EINVAL);
	assert_int_equal(access(at("W.h5"), F_OK), -1);
	dt_image_release(&x);
}

static struct dt_image_loader *loader(const struct dt_images *d, struct dt_augment a, int count,
				      int64_t every, int workers, int64_t end)
{
	struct dt_image_loader_options o = {.data = d,
					    .augment = a,
					    .seed = 5,
					    .shuffle = !end,
					    .count = count,
					    .every = every,
					    .end = end,
					    .workers = workers};
	struct dt_image_loader *l;
	struct dt_err err = {0};

	must(dt_image_loader_open(&o, &l, &err), &err);
	return l;
}

static struct dt_augment everything(void)
{
	struct dt_augment a = dt_augment_default(7, 5);

	a.crop = DT_CROP_PAD;
	a.pad = 2;
	a.reflect = true;
	a.flip = true;
	a.cutout = 2;
	a.mixup = 0.4;
	a.cutmix = 1;
	for (int c = 0; c < 3; c++) {
		a.mean[c] = 0.4f + 0.1f * (float)c;
		a.deviation[c] = 0.3f;
	}
	return a;
}

/* One of samples n .. of a loader that makes them alone, as the reference. */
struct sample {
	float x[3 * 7 * 5], share;
	int label, label2;
	int64_t image;
};

static void take(struct dt_image_loader *l, int64_t n, int count, struct sample *ret)
{
	struct dt_image_batch b;
	struct dt_err err = {0};

	must(dt_image_loader_get(l, n, count, &b, &err), &err);
	for (int i = 0; i < count; i++) {
		memcpy(ret[i].x, b.pixels + (size_t)i * 105, sizeof(ret[i].x));
		ret[i].share = b.share[i];
		ret[i].label = b.label[i];
		ret[i].label2 = b.label2[i];
		ret[i].image = b.image[i];
	}
}

static void same_samples(const struct sample *a, const struct sample *b, int n)
{
	for (int i = 0; i < n; i++) {
		assert_memory_equal(a[i].x, b[i].x, sizeof(a[i].x));
		assert_true(a[i].share == b[i].share && a[i].label == b[i].label &&
			    a[i].label2 == b[i].label2);
		assert_int_equal(a[i].image, b[i].image);
	}
}

/* Three epochs by 1, 3 and 8 threads, in requests of 1 to 8, over 1 to 3 ranks, forwards and with jumps. */
static void any_layout(void **state)
{
	static struct sample ref[3 * N + 16], x[16];
	struct dt_images *d;
	struct dt_image_loader *one;

	make(at("D.h5"), 3, false, 2);
	d = open_set(at("D.h5"));
	one = loader(d, everything(), 1, 0, 0, 0);
	for (int n = 0; n < 3 * N + 16; n++)
		take(one, n, 1, &ref[n]);
	dt_image_loader_close(one);
	for (int workers = 0; workers <= 8; workers += workers + 1)
		for (int count = 1; count <= 8; count += count == 1 ? 2 : 5)
			for (int ranks = 1; ranks <= 3; ranks++) {
				struct dt_image_loader *l =
					loader(d, everything(), count, (int64_t)count * ranks, workers, 0);

				for (int rank = 0; rank < ranks; rank++)
					for (int64_t n = rank * count; n < 3 * N;
					     n += (int64_t)count * ranks) {
						take(l, n, count, x);
						same_samples(x, ref + n, count);
						if (n % 5 == 0 && n >= count) { /* asked for again */
							take(l, n - count, count, x);
							same_samples(x, ref + n - count, count);
						}
					}
				take(l, 2, count, x);
				same_samples(x, ref + 2, count);
				dt_image_loader_close(l);
			}
	dt_images_close(d);
}

/* Every image once in an epoch; the file order and rows past the end in evaluation. */
static void epochs(void **state)
{
	struct dt_augment a = dt_augment_default(8, 6);
	struct dt_image_batch b;
	struct dt_image_loader *l;
	struct dt_images *d;
	struct dt_err err = {0};
	int seen[N] = {0};

	make(at("D.h5"), 1, false, 1);
	d = open_set(at("D.h5"));
	l = loader(d, a, 1, 0, 2, 0);
	for (int n = 0; n < 2 * N; n++) {
		must(dt_image_loader_get(l, n, 1, &b, &err), &err);
		seen[b.image[0]]++;
		assert_int_equal(b.label[0], b.image[0] * 7 % 4);
		assert_true(b.share[0] == 1 && b.label2[0] == b.label[0]);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(seen[i], 2);
	dt_image_loader_close(l);
	l = loader(d, a, 8, 0, 2, N);
	for (int n = 0; n < N; n += 8) {
		must(dt_image_loader_get(l, n, 8, &b, &err), &err);
		for (int i = 0; i < 8; i++) {
			assert_int_equal(b.image[i], n + i < N ? n + i : -1);
			assert_int_equal(b.label[i], n + i < N ? (n + i) * 7 % 4 : -1);
			assert_true(fabsf(b.pixels[i * 48] - (n + i < N ? (float)((n + i) * 3) / 255 : 0)) <
				    1e-6f);
		}
	}
	dt_image_loader_close(l);
	dt_images_close(d);
}

/* A damaged image is named; asked for again it is named again; the others are there. */
static void damaged(void **state)
{
	struct dt_augment a = dt_augment_default(6, 6);
	struct dt_images *d;
	struct dt_image_loader *l;
	struct dt_image_batch b;
	struct dt_err err = {0};
	uint8_t *bytes;
	size_t n;
	uint8_t broken[4096];

	if (!dt_image_reads(DT_IMAGE_JPEG))
		skip();
	make(at("D.h5"), 3, true, 1);
	d = open_set(at("D.h5"));
	must(dt_images_bytes(d, 20, &bytes, &n, &err), &err);
	dt_images_close(d);
	assert_true(n > 128 && n < sizeof(broken));
	memcpy(broken, bytes, n);
	memset(broken + n / 2, 0xff, n - n / 2);
	overwrite(at("D.h5"), bytes, n, broken, n, 0);
	free(bytes);
	a.crop = DT_CROP_CENTRE;
	d = open_set(at("D.h5"));
	l = loader(d, a, 4, 0, 3, N);
	for (int twice = 0; twice < 2; twice++) {
		must(dt_image_loader_get(l, 16, 4, &b, &err), &err);
		assert_int_equal(dt_image_loader_get(l, 20, 4, &b, &err), -EBADMSG);
		assert_non_null(strstr(err.msg, "image 20 "));
		must(dt_image_loader_get(l, 24, 4, &b, &err), &err);
	}
	dt_image_loader_close(l);
	dt_images_close(d);
}

static void loader_refuses(void **state)
{
	struct dt_augment a = dt_augment_default(9, 6);
	struct dt_image_loader_options o = {.count = 1};
	struct dt_image_loader *l;
	struct dt_images *d;
	struct dt_err err = {0};

	make(at("D.h5"), 3, false, 1);
	o.data = d = open_set(at("D.h5"));
	a.crop = DT_CROP_CENTRE;
	o.augment = a;
	assert_int_equal(dt_image_loader_open(&o, &l, &err), -EINVAL);
	assert_non_null(strstr(err.msg, "smaller than the crop of 9 x 6"));
	o.augment.crop = DT_CROP_PAD;
	assert_int_equal(dt_image_loader_open(&o, &l, &err), -EINVAL);
	o.augment.pad = 1;
	assert_int_equal(dt_image_loader_open(&o, &l, &err), 0);
	dt_image_loader_close(l);
	o.augment.crop = DT_CROP_NONE;
	assert_int_equal(dt_image_loader_open(&o, &l, &err), -EINVAL);
	o.augment.deviation[1] = 0;
	assert_int_equal(dt_image_loader_open(&o, &l, &err), -EINVAL);
	dt_images_close(d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(read_back, setup, teardown),
		cmocka_unit_test_setup_teardown(sums, setup, teardown),
		cmocka_unit_test_setup_teardown(refused, setup, teardown),
		cmocka_unit_test_setup_teardown(contradictions, setup, teardown),
		cmocka_unit_test_setup_teardown(lists, setup, teardown),
		cmocka_unit_test_setup_teardown(writer_refuses, setup, teardown),
		cmocka_unit_test_setup_teardown(any_layout, setup, teardown),
		cmocka_unit_test_setup_teardown(epochs, setup, teardown),
		cmocka_unit_test_setup_teardown(damaged, setup, teardown),
		cmocka_unit_test_setup_teardown(loader_refuses, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
/* SPDX-License-Identifier: Apache-2.0 */
