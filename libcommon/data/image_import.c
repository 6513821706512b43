#include "data/class_list.h"
#include "data/image_item.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64

struct batch {
	struct image_item item[BATCH];
	int n;
};

struct import {
	struct dt_image_import *im;
	struct dt_images_writer *w[2]; /* training set, evaluation set */
	struct class_list classes;
	struct batch batch[2], *now, *before; /* before is written while now is decoded */
};

static void count(struct dt_image_import *im, const struct image_item *it)
{
	im->grey += it->facts.grey && im->channels == 3;
	im->cmyk += it->facts.cmyk;
	im->deep += it->facts.deep;
	im->alpha += it->facts.alpha;
	im->turned += it->facts.orientation > 1 && im->orientation;
}

static void bad_image(struct dt_image_import *im, const struct image_item *it, const char *why)
{
	im->bad++;
	if (im->told)
		im->told(im->ctx, true, it->name, why);
}

/* Number of a class's n images for evaluation. */
static int64_t eval_of(const struct dt_image_import *im, int64_t n)
{
	return (int64_t)floor((double)n * im->eval_percent / 100);
}

/* Adds an image to a set. Only errors that are not the image's own end the import. */
static int store(struct import *p, struct image_item *it, struct dt_err *err)
{
	int to, rc = it->rc;
	int64_t k;

	if (it->unread) {
		*err = it->err;
		return rc;
	}
	if (rc == -ENOMEM || rc == -ENOTSUP) {
		*err = it->err;
		return dt_err_prefix(err, "'%s'", it->name);
	}
	if (rc < 0) {
		bad_image(p->im, it, it->err.msg);
		return 0;
	}
	count(p->im, it);
	k = p->classes.images[it->label]++;
	to = eval_of(p->im, k + 1) > eval_of(p->im, k);
	rc = dt_images_append(p->w[to], &it->image, it->bytes, it->n, it->label, err);
	if (rc < 0)
		return dt_err_prefix(err, "'%s'", it->name);
	p->im->images[to]++;
	return 0;
}

static int store_batch(struct import *p, struct batch *b, struct dt_err *err)
{
	int rc = 0;

	for (int i = 0; i < b->n; i++) {
		if (rc == 0)
			rc = store(p, &b->item[i], err);
		image_item_clear(&b->item[i]);
	}
	b->n = 0;
	if (p->im->progress)
		p->im->progress(p->im->ctx, (uint64_t)(p->im->images[0] + p->im->images[1]));
	return rc;
}

/* Decodes the batch that has been filled, while one thread writes the batch before it. */
static int flush(struct import *p, struct dt_err *err)
{
	struct batch *full = p->now;
	int rc = 0;

	/* for raw pixels a copy is faster than waking threads */
#pragma omp parallel if (!full->item[0].raw)
	{
		struct dt_image decoded = {0};

#pragma omp single nowait
		rc = store_batch(p, p->before, err);
#pragma omp for schedule(dynamic, 1)
		for (int i = 0; i < full->n; i++)
			image_item_take(p->im, &full->item[i], &decoded);
		dt_image_release(&decoded);
	}
	p->now = p->before;
	p->before = full;
	return rc;
}

static int take_image(void *ctx, const struct dt_image_item *from, struct dt_err *err)
{
	struct import *p = ctx;
	struct image_item *it = &p->now->item[p->now->n];
	int label = from->label, rc = class_list_take(&p->classes, from->cls, &label, err);

	if (rc < 0)
		return dt_err_prefix(err, "'%s'", from->name);
	it->name = strdup(from->name);
	it->bytes = from->bytes ? malloc(from->n ? from->n : 1) : NULL;
	if (!it->name || (from->bytes && !it->bytes)) {
		image_item_clear(it);
		return dt_err_sys(err, -ENOMEM, "cannot read '%s'", from->name);
	}
	if (from->bytes)
		memcpy(it->bytes, from->bytes, from->n);
	it->n = from->n;
	it->raw = from->raw;
	it->channels = from->channels;
	it->height = from->height;
	it->width = from->width;
	it->label = label;
	return ++p->now->n == BATCH ? flush(p, err) : 0;
}

static int take_class(void *ctx, const char *name, struct dt_err *err)
{
	struct import *p = ctx;
	bool named = p->im->format == DT_FROM_FOLDER || p->im->format == DT_FROM_TAR;

	/* names in a file beside the data are only names: a given list of classes takes precedence */
	return p->classes.fixed && !named ? 0 : class_list_name(&p->classes, name, err);
}

static void take_passed(void *ctx, const char *name, const char *why)
{
	struct import *p = ctx;

	p->im->passed++;
	if (p->im->told)
		p->im->told(p->im->ctx, false, name, why);
}

static int read_one(struct import *p, const char *const *path, struct dt_err *err)
{
	struct dt_image_sink to = {p, take_image, take_class, take_passed};

	switch (p->im->format) {
	case DT_FROM_IDX:
		return dt_image_from_idx(path, &to, err);
	case DT_FROM_CIFAR10:
	case DT_FROM_CIFAR100:
		return dt_image_from_cifar(*path, p->im->format == DT_FROM_CIFAR100, &to, err);
	case DT_FROM_FOLDER:
		return dt_image_from_folder(*path, &to, err);
	default:
		return dt_image_from_tar(*path, p->im->match, &to, err);
	}
}

/* Finds classes without images in a set: how many, and the first. */
static void find_empty(struct import *p)
{
	const struct class_list *c = &p->classes;
	struct dt_image_import *im = p->im;

	for (int i = 0; i < c->n; i++) {
		int64_t eval = eval_of(im, c->images[i]), of[2] = {c->images[i] - eval, eval};

		for (int k = 0; k < 2; k++)
			if (!of[k] && !im->empty_classes[k]++)
				snprintf(im->empty[k], sizeof(im->empty[k]), "%s", c->name[i]);
	}
}

/* Writes class names and labels in their final order, and finds classes without images. */
static int put_classes(struct import *p, struct dt_err *err)
{
	struct class_list *c = &p->classes;
	int *map, rc = class_list_finish(c, p->im->format == DT_FROM_FOLDER || p->im->format == DT_FROM_TAR,
					 &map, err);

	if (rc < 0)
		return rc;
	p->im->classes = c->n;
	find_empty(p);
	for (int k = 0; k < 2 && c->n && p->w[k] && rc == 0; k++)
		rc = dt_images_set_classes(p->w[k], c->n, (const char *const *)c->name, map, err);
	free(map);
	return rc;
}

/* -EINVAL: the inputs hold no image that can be used. */
static int none(const struct dt_image_import *im, int n, const char *const *paths, struct dt_err *err)
{
	if (im->bad)
		return dt_err_set(err, -EINVAL, "none of %lld images can be used", (long long)im->bad);
	if (n > 1)
		return dt_err_set(err, -EINVAL, "there are no images in '%s' and the other inputs", paths[0]);
	return dt_err_set(err, -EINVAL, "there are no images in '%s'", paths[0]);
}

static int run(struct import *p, int n, const char *const *paths, struct dt_err *err)
{
	struct dt_image_import *im = p->im;
	int each = im->format == DT_FROM_IDX ? 2 : 1, rc = 0;

	if (n % each)
		return dt_err_set(err, -EINVAL, "IDX files must be given in pairs, images and labels, not %d",
				  n);
	if (im->names)
		rc = class_list_read(&p->classes, im->names, err);
	for (int i = 0; i < n && rc == 0; i += each)
		rc = read_one(p, paths + i, err);
	if (rc == 0)
		rc = flush(p, err);
	if (rc == 0)
		rc = store_batch(p, p->before, err);
	if (rc == 0 && im->bad && !im->skip_bad) {
		rc = dt_err_set(err, -EBADMSG, "%lld of %lld images cannot be used: nothing is written",
				(long long)im->bad, (long long)(im->bad + im->images[0] + im->images[1]));
		dt_err_hint(err, "use --skip-bad to skip them");
	}
	if (rc == 0 && im->images[0] + im->images[1] == 0)
		rc = none(im, n, paths, err);
	return rc == 0 ? put_classes(p, err) : rc;
}

static int create(struct import *p, const char *const out[2], struct dt_err *err)
{
	const struct dt_image_import *im = p->im;
	struct dt_images_create how = {.channels = im->channels,
				       .jpeg = im->store == DT_STORE_JPEG,
				       .orientation = im->store == DT_STORE_JPEG && im->orientation,
				       .source = im->source,
				       .shards = im->shards};
	int rc = dt_images_create(out[0], &how, &p->w[0], err);

	how.shards = 1;
	return rc == 0 && im->eval_percent > 0 ? dt_images_create(out[1], &how, &p->w[1], err) : rc;
}

/* The evaluation set first: whoever sees train.h5 finds eval.h5 too. */
static int finish(struct import *p, struct dt_err *err)
{
	int rc = 0;

	for (int k = 1; k >= 0 && rc == 0; k--) {
		struct dt_images_writer *w = p->w[k];

		p->w[k] = NULL;
		rc = w ? dt_images_finish(w, err) : 0;
	}
	return rc;
}

static void release(struct import *p)
{
	for (int i = 0; i < 2 * BATCH; i++) {
		struct image_item *it = &p->batch[i / BATCH].item[i % BATCH];

		image_item_clear(it);
		dt_image_release(&it->image);
	}
	dt_images_abandon(p->w[0]);
	dt_images_abandon(p->w[1]);
	class_list_free(&p->classes);
	free(p);
}

int dt_image_import(struct dt_image_import *im, int n, const char *const *paths, const char *const out[2],
		    struct dt_err *err)
{
	struct import *p = calloc(1, sizeof(*p));
	int rc = p ? 0 : dt_err_sys(err, -ENOMEM, "cannot write '%s'", out[0]);

	if (rc < 0)
		return rc;
	p->im = im;
	p->now = &p->batch[0];
	p->before = &p->batch[1];
	if (im->format == DT_FROM_AUTO)
		rc = dt_image_format_of(paths[0], &im->format, err);
	if (rc == 0) {
		im->channels = im->channels ? im->channels : im->format == DT_FROM_IDX ? 1 : 3;
		if (!im->store)
			im->store =
				im->crop[0] || im->format <= DT_FROM_CIFAR100 ? DT_STORE_RAW : DT_STORE_JPEG;
		rc = create(p, out, err);
	}
	if (rc == 0)
		rc = run(p, n, paths, err);
	if (rc == 0)
		rc = finish(p, err);
	release(p);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
