#include "data/image_loader.h"

#include "data/ahead.h"
#include "data/dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD 2

/* Buffers of one thread. */
struct worker {
	struct dt_image image, tmp;
	float *partner;
};

struct dt_image_loader {
	struct dt_image_loader_options o;
	struct dt_images_info info;
	struct dt_ahead *ahead;
	struct worker *worker;
	size_t row; /* floats of a sample */
};

/* Layout of a block: pixels, then these arrays, each aligned to 64 bytes; end: bytes of the block. */
struct layout {
	size_t label, label2, share, image, end;
};

static size_t align(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

static struct layout layout_of(const struct dt_image_loader_options *o, size_t row)
{
	size_t n = (size_t)o->count, at = align(n * row * sizeof(float)), each = align(n * sizeof(int32_t));

	return (struct layout){.label = at,
			       .label2 = at + each,
			       .share = at + 2 * each,
			       .image = at + 3 * each,
			       .end = at + 3 * each + align(n * sizeof(int64_t))};
}

static struct dt_image_batch parts(const struct dt_image_loader_options *o, size_t row, const void *block)
{
	struct layout at = layout_of(o, row);
	const char *p = block;

	return (struct dt_image_batch){.pixels = block,
				       .label = (const int32_t *)(p + at.label),
				       .label2 = (const int32_t *)(p + at.label2),
				       .share = (const float *)(p + at.share),
				       .image = (const int64_t *)(p + at.image)};
}

static bool past(const struct dt_image_loader *l, int64_t n)
{
	return l->o.end && n >= l->o.end;
}

static int64_t image_at(const struct dt_image_loader *l, int64_t n)
{
	return dt_sample_at(l->o.seed, l->o.shuffle, n, l->info.images);
}

/* Makes sample n, unmixed, in y. */
static int make_one(struct dt_image_loader *l, struct worker *w, int64_t n, float *y, struct dt_err *err)
{
	int64_t i = image_at(l, n);
	int rc = dt_images_read(l->o.data, i, &w->image, err);

	if (rc == 0) {
		rc = dt_augment_apply(&l->o.augment, l->o.seed, n, &w->image, &w->tmp, y, err);
		if (rc < 0)
			dt_err_prefix(err, "image %lld", (long long)i);
	}
	return rc;
}

static bool mixes(const struct dt_image_loader *l)
{
	return l->o.augment.mixup > 0 || l->o.augment.cutmix > 0;
}

/* Writes the labels of sample n; *ret_mix says how it is mixed. */
static void put_labels(const struct dt_image_loader *l, int64_t n, int at, void *block,
		       struct dt_augment_mix *ret_mix)
{
	struct dt_image_batch b = parts(&l->o, l->row, block);
	bool none = past(l, n);
	int label = none ? -1 : dt_images_label(l->o.data, image_at(l, n)), label2 = label;
	struct dt_augment_mix m = {.share = 1};

	if (!none && mixes(l) && !past(l, n ^ 1)) {
		m = dt_augment_mix(&l->o.augment, l->o.seed, n);
		label2 = dt_images_label(l->o.data, image_at(l, n ^ 1));
	}
	((int32_t *)b.label)[at] = label;
	((int32_t *)b.label2)[at] = label2;
	((float *)b.share)[at] = m.share;
	((int64_t *)b.image)[at] = none ? -1 : image_at(l, n);
	*ret_mix = m;
}

/* Mixes sample n, whose pixels are in y, with its partner; partner NULL: its pixels are made here. */
static int mix_one(struct dt_image_loader *l, struct worker *w, int64_t n, struct dt_augment_mix m,
		   const float *partner, float *y, struct dt_err *err)
{
	int rc = 0;

	if (m.share == 1)
		return 0;
	if (!partner) {
		rc = make_one(l, w, n ^ 1, w->partner, err);
		partner = w->partner;
	}
	if (rc == 0)
		dt_augment_blend(&l->o.augment, m, l->info.channels, y, partner, y);
	return rc;
}

/*
 * Makes samples of a block. Each pair of partners is decoded once; if a request splits a pair, the missing
 * one is decoded too.
 */
static int make(void *ctx, int worker, int64_t n, int at, int count, void *block, struct dt_err *err)
{
	struct dt_image_loader *l = ctx;
	struct worker *w = &l->worker[worker];
	float *y = (float *)block + (size_t)at * l->row;
	struct dt_augment_mix mix[2];
	int rc = 0, step;

	for (int k = 0; k < count && rc == 0; k += step, y += (size_t)step * l->row) {
		bool pair = mixes(l) && (n + k) % 2 == 0 && k + 1 < count;

		step = pair ? 2 : 1;
		for (int j = 0; j < step && rc == 0; j++) {
			float *row = y + (size_t)j * l->row;

			put_labels(l, n + k + j, at + k + j, block, &mix[j]);
			if (past(l, n + k + j))
				memset(row, 0, l->row * sizeof(*row));
			else
				rc = make_one(l, w, n + k + j, row, err);
		}
		if (rc == 0 && pair)
			memcpy(w->partner, y, l->row * sizeof(*y));
		if (rc == 0)
			rc = mix_one(l, w, n + k, mix[0], pair ? y + l->row : NULL, y, err);
		if (rc == 0 && pair)
			rc = mix_one(l, w, n + k + 1, mix[1], w->partner, y + l->row, err);
	}
	return rc;
}

static int check(const struct dt_image_loader_options *o, const struct dt_images_info *info,
		 struct dt_err *err)
{
	int rc = dt_augment_check(&o->augment, err);

	if (rc == 0 && o->count < 1)
		rc = dt_err_set(err, -EINVAL, "a request of %d samples is invalid", o->count);
	if (rc == 0)
		rc = dt_augment_fits(&o->augment, info->min_height, info->min_width, err);
	if (rc == 0 && o->augment.crop == DT_CROP_NONE)
		rc = dt_augment_fits(&o->augment, info->max_height, info->max_width, err);
	return rc;
}

static size_t row_of(const struct dt_image_loader_options *o, const struct dt_images_info *info)
{
	return (size_t)info->channels * (size_t)o->augment.height * (size_t)o->augment.width;
}

static int blocks_of(const struct dt_image_loader_options *o)
{
	return o->workers ? (o->ahead ? o->ahead : AHEAD) : 0;
}

int dt_image_loader_open(const struct dt_image_loader_options *o, struct dt_image_loader **ret,
			 struct dt_err *err)
{
	struct dt_image_loader *l = calloc(1, sizeof(*l));
	struct dt_ahead_options a;
	int rc;

	if (!l)
		return dt_err_sys(err, -ENOMEM, "cannot make a loader of images");
	l->o = *o;
	dt_images_info(o->data, &l->info);
	rc = check(o, &l->info, err);
	if (rc < 0) {
		free(l);
		return rc;
	}
	l->row = row_of(o, &l->info);
	l->worker = calloc((size_t)o->workers + 1, sizeof(*l->worker));
	for (int i = 0; l->worker && i <= o->workers && rc == 0; i++) {
		l->worker[i].partner = malloc(l->row * sizeof(float));
		rc = l->worker[i].partner ? 0 : -ENOMEM;
	}
	if (!l->worker || rc < 0) {
		dt_image_loader_close(l);
		return dt_err_sys(err, -ENOMEM, "cannot make a loader of images");
	}
	a = (struct dt_ahead_options){.make = make,
				      .ctx = l,
				      .count = o->count,
				      .grain = 2,
				      .block_bytes = layout_of(o, l->row).end,
				      .every = o->every ? o->every : o->count,
				      .end = o->end,
				      .workers = o->workers,
				      .ahead = blocks_of(o)};
	rc = dt_ahead_open(&a, &l->ahead, err);
	if (rc < 0) {
		dt_image_loader_close(l);
		return rc;
	}
	*ret = l;
	return 0;
}

void dt_image_loader_close(struct dt_image_loader *l)
{
	if (!l)
		return;
	dt_ahead_close(l->ahead);
	for (int i = 0; l->worker && i <= l->o.workers; i++) {
		dt_image_release(&l->worker[i].image);
		dt_image_release(&l->worker[i].tmp);
		free(l->worker[i].partner);
	}
	free(l->worker);
	free(l);
}

void dt_image_loader_normalise(struct dt_image_loader *l, const float mean[3], const float deviation[3])
{
	memcpy(l->o.augment.mean, mean, sizeof(l->o.augment.mean));
	memcpy(l->o.augment.deviation, deviation, sizeof(l->o.augment.deviation));
}

int dt_image_loader_get(struct dt_image_loader *l, int64_t n, int count, struct dt_image_batch *ret,
			struct dt_err *err)
{
	const void *block;
	int rc;

	if (count < 1 || count > l->o.count)
		return dt_err_set(err, -EINVAL, "a request of %d samples to a loader of at most %d", count,
				  l->o.count);
	rc = dt_ahead_get(l->ahead, n, &block, err);
	if (rc == 0)
		*ret = parts(&l->o, l->row, block);
	return rc;
}

void dt_image_loader_expect(struct dt_image_loader *l, int count)
{
	dt_ahead_expect(l->ahead, count);
}

void dt_image_loader_stats(struct dt_image_loader *l, struct dt_image_loader_stats *ret)
{
	struct dt_ahead_stats s;
	int threads = l->o.workers ? l->o.workers : 1;

	dt_ahead_stats(l->ahead, &s);
	*ret = (struct dt_image_loader_stats){
		.images = s.samples,
		.busy_s = s.busy_s,
		.waited_s = s.waited_s,
		.images_per_s = s.busy_s > 0 ? (double)s.samples * threads / s.busy_s : 0,
	};
}
/* SPDX-License-Identifier: Apache-2.0 */
