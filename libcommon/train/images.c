#include "train/images.h"

#include "ckpt/source.h"
#include "data/whiten.h"
#include "plan/rounds.h"
#include "train/trainer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NEW_HEAD "--new-head gives the model a last layer of its own for this data"

static struct image_source *source_of(struct trainer *t)
{
	return &t->source.images;
}

/* Whether weights are initialized, not loaded: the model can then follow the data. */
static bool is_new(const struct trainer *t)
{
	return !t->init;
}

/*
 * The size of a sample: the option's, else the data's, else (if its images differ) the model's. Positions of
 * an image transformer belong to a size: with weights it keeps its own.
 */
static int64_t side(const struct trainer *t, const struct dt_images_info *i)
{
	if (t->run.image.size)
		return t->run.image.size;
	if (!is_new(t) && t->config.patch)
		return t->config.image_size;
	return i->height && i->height == i->width ? i->height : t->config.image_size;
}

/* -EINVAL unless the data's classes are those of the list, name by name. A NULL name: not known. */
static int check_classes(struct trainer *t, const json_t *list, const char *path, struct dt_err *err)
{
	const int n = (int)json_array_size(list);
	const char **name = calloc((size_t)n + 1, sizeof(*name));
	int rc;

	if (!name)
		return dt_err_sys(err, -ENOMEM, "cannot compare classes");
	for (int i = 0; i < n; i++) {
		name[i] = json_string_value(json_array_get(list, (size_t)i));
		if (!name[i])
			name[i] = "";
	}
	rc = n ? dt_images_check_classes(source_of(t)->data, n, name, path, err) : 0;
	free(name);
	return rc;
}

/* Checks the data's classes against the class names that came with the weights. */
static int same_classes(struct trainer *t, struct dt_err *err)
{
	int rc = is_new(t) || t->run.image.new_head
			 ? 0
			 : check_classes(t, json_object_get(dt_source_images(t->init), "classes"),
					 t->run.model, err);

	if (rc < 0)
		dt_err_hint(err, NEW_HEAD);
	return rc;
}

static int follow_data(struct trainer *t, struct dt_err *err)
{
	const struct dt_images_info *i = &source_of(t)->info;
	struct dt_config *c = &t->config;
	int rc;

	if (!is_new(t) && i->channels != c->channels)
		return dt_err_set(err, -EINVAL, "'%s' takes images of %lld channels, those of '%s' have %d",
				  t->run.model, (long long)c->channels, t->run.data.train, i->channels);
	if (!is_new(t) && i->classes != c->vocab && !t->run.image.new_head) {
		dt_err_set(err, -EINVAL, "'%s' has %lld classes, '%s' has %d", t->run.model,
			   (long long)c->vocab, t->run.data.train, i->classes);
		dt_err_hint(err, NEW_HEAD);
		return -EINVAL;
	}
	rc = same_classes(t, err);
	if (rc < 0)
		return rc;
	c->vocab = i->classes;
	c->channels = i->channels;
	c->image_size = side(t, i);
	return dt_config_check(c, err);
}

int images_open(struct trainer *t, struct dt_err *err)
{
	struct image_source *s = source_of(t);
	int rc = dt_images_open(t->run.data.train, &s->data, err);

	if (rc < 0)
		return rc;
	dt_images_info(s->data, &s->info);
	rc = follow_data(t, err);
	if (rc < 0 || !t->run.data.eval)
		return rc;
	rc = dt_images_open(t->run.data.eval, &s->eval, err);
	if (rc < 0)
		return rc;
	dt_images_info(s->eval, &s->eval_info);
	if (s->eval_info.channels != s->info.channels)
		return dt_err_set(err, -EINVAL, "images of '%s' have %d channels, those of '%s' %d",
				  t->run.data.eval, s->eval_info.channels, t->run.data.train,
				  s->info.channels);
	return dt_images_check_classes(s->eval, s->info.classes, s->info.class_name, t->run.data.train, err);
}

/* Parses --crop: none, pad:N, pad:N:reflect, resized, resized:LOW. */
static int parse_crop(const char *s, struct dt_augment *a, struct dt_err *err)
{
	double least = 0.08;
	int pad = 0, n = 0;

	if (!strcmp(s, "none"))
		return 0;
	if (!strcmp(s, "resized") || (sscanf(s, "resized:%lf%n", &least, &n) == 1 && !s[n])) {
		a->crop = DT_CROP_RESIZED;
		a->scale[0] = least;
		if (least > 0 && least <= 1)
			return 0;
	} else if (sscanf(s, "pad:%d%n", &pad, &n) == 1 && (!s[n] || !strcmp(s + n, ":reflect"))) {
		a->crop = DT_CROP_PAD;
		a->reflect = s[n];
		a->pad = pad;
		if (pad >= 1 && pad <= 64)
			return 0;
	}
	return dt_err_set(
		err, -EINVAL,
		"--crop '%.40s' is not none, pad:PIXELS, pad:PIXELS:reflect, resized or resized:LEAST", s);
}

/* Reads "mean" and "deviation" of o, one number per channel; false: o does not have them. */
static bool read_pixels(const struct trainer *t, const json_t *o, struct dt_augment *a)
{
	const json_t *mean = json_object_get(o, "mean"), *deviation = json_object_get(o, "deviation");
	const size_t n = (size_t)t->source.images.info.channels;

	if (json_array_size(mean) != n || json_array_size(deviation) != n)
		return false;
	for (size_t c = 0; c < n; c++) {
		a->mean[c] = (float)json_number_value(json_array_get(mean, c));
		a->deviation[c] = (float)json_number_value(json_array_get(deviation, c));
	}
	return true;
}

static int normalisation(struct trainer *t, struct dt_augment *a, struct dt_err *err)
{
	const struct dt_images_info *i = &source_of(t)->info;
	const char *by = t->run.image.normalize ? t->run.image.normalize : "auto";

	if (!strcmp(by, "auto") && !is_new(t) && read_pixels(t, dt_source_images(t->init), a)) {
		dt_log_msg(&t->root_log, "pixels are normalised as those of '%s' were", t->run.model);
		return 0;
	}
	if (!strcmp(by, "auto") || !strcmp(by, "data")) {
		memcpy(a->mean, i->mean, (size_t)i->channels * sizeof(*a->mean));
		memcpy(a->deviation, i->deviation, (size_t)i->channels * sizeof(*a->deviation));
		return 0;
	}
	if (dt_augment_constants(by, a->mean, a->deviation) < 0) {
		t->status = DT_EXIT_USAGE;
		return dt_err_set(err, -EINVAL,
				  "--normalize '%.40s' is not auto, data, cifar10, cifar100, mnist, "
				  "fashion-mnist or imagenet",
				  by);
	}
	return 0;
}

static int augmentation(struct trainer *t, struct dt_augment *a, struct dt_err *err)
{
	const struct dt_run_image *o = &t->run.image;
	int rc;

	*a = dt_augment_default((int)t->config.image_size, (int)t->config.image_size);
	if ((rc = normalisation(t, a, err)) < 0)
		return rc;
	if ((rc = parse_crop(o->crop ? o->crop : "none", a, err)) < 0) {
		t->status = DT_EXIT_USAGE;
		return rc;
	}
	a->flip = o->flip;
	a->alternate = o->flip_alternate ? source_of(t)->info.images : 0;
	a->cutout = (int)o->cutout;
	a->mixup = o->mixup;
	a->cutmix = o->cutmix;
	return 0;
}

/*
 * Sets the loader's requests: in evaluation a microbatch; in training this rank's part of a round, constant
 * unless rounds differ in size. With a growing batch, rounds may have any size.
 */
static void requests(struct trainer *t, bool train, struct dt_image_loader_options *o)
{
	const int64_t rounds = t->run.accumulation;
	const int me = dt_layout_coords(&t->run.layout, t->info.rank).dp; /* the mesh does not exist yet */
	int64_t first, end;

	o->count = (int)t->run.microbatch;
	o->every = t->run.microbatch * t->run.layout.dp;
	if (!train || t->run.ramp.tokens)
		return;
	/* The last round is one of the largest. */
	o->every = t->run.global_batch - dt_rounds_first(t->run.global_batch, rounds, rounds - 1);
	shares_images(t, rounds - 1, &first, &end);
	if (!t->shares.automatic) /* with automatic shares the part may grow */
		o->count = t->shares.part[me] > 0 ? (int)t->shares.part[me] : 1;
}

void images_expect(struct trainer *t, int64_t count)
{
	dt_image_loader_expect(t->source.images.loader, count > 0 ? (int)count : 1);
}

static int start(struct trainer *t, const struct dt_images *data, const struct dt_images_info *info,
		 struct dt_augment *a, bool train, struct dt_image_loader **ret, struct dt_err *err)
{
	struct dt_image_loader_options o = {.data = data,
					    .seed = t->run.data.seed,
					    .shuffle = train,
					    .end = train ? 0 : info->images,
					    .workers = (int)t->run.image.workers,
					    .ahead = 2};
	int rc;

	requests(t, train, &o);

	dt_augment_whole(a, info->height, info->width);
	o.augment = *a;
	if ((rc = dt_augment_check(a, err)) < 0 ||
	    (rc = dt_augment_fits(a, info->min_height, info->min_width, err)) < 0)
		return rc;
	return dt_image_loader_open(&o, ret, err);
}

int images_start(struct trainer *t, struct dt_err *err)
{
	struct image_source *s = source_of(t);
	struct dt_augment a, *plain = &s->plain;
	int rc = augmentation(t, &a, err);

	if (rc < 0)
		return rc;
	*plain = dt_augment_default(a.height, a.width);
	memcpy(plain->mean, a.mean, sizeof(a.mean));
	memcpy(plain->deviation, a.deviation, sizeof(a.deviation));
	rc = start(t, s->data, &s->info, &a, true, &s->loader, err);
	if (rc == 0 && t->shares.automatic && !t->run.ramp.tokens)
		images_expect(t, t->shares.part[dt_layout_coords(&t->run.layout, t->info.rank).dp]);
	if (rc == 0 && s->eval)
		rc = start(t, s->eval, &s->eval_info, plain, false, &s->eval_loader, err);
	return rc;
}

void images_close(struct trainer *t)
{
	struct image_source *s = source_of(t);

	if (s->loader)
		dt_image_loader_close(s->loader);
	if (s->eval_loader)
		dt_image_loader_close(s->eval_loader);
	if (s->data)
		dt_images_close(s->data);
	if (s->eval)
		dt_images_close(s->eval);
	free(s->whiten);
	memset(s, 0, sizeof(*s));
}

int64_t images_rows(const struct trainer *t, int64_t n, int64_t end)
{
	const int64_t left = end > n ? end - n : 0;

	return left < t->run.microbatch ? left : t->run.microbatch;
}

int images_next(struct trainer *t, bool eval, const struct dt_flight *f, int64_t n, int64_t end,
		struct dt_err *err)
{
	const int64_t count = images_rows(t, n, end),
		      pixels = t->config.channels * t->config.image_size * t->config.image_size;
	struct image_source *s = source_of(t);
	struct dt_image_batch b;
	int rc = count ? dt_image_loader_get(eval ? s->eval_loader : s->loader, n, (int)count, &b, err) : 0;

	if (rc < 0 || !count)
		return rc;
	memcpy(f->host_pixels, b.pixels, (size_t)(count * pixels) * sizeof(*b.pixels));
	memcpy(f->host_share, b.share, (size_t)count * sizeof(*b.share));
	memcpy(f->host_targets, b.label, (size_t)count * sizeof(*b.label));
	memcpy(f->host_others, b.label2, (size_t)count * sizeof(*b.label2));
	return dt_flight_upload(f, &t->exec, err);
}

int images_whiten(struct trainer *t, int kernel, const float **ret, struct dt_err *err)
{
	struct image_source *s = source_of(t);
	const size_t n = (size_t)(s->info.channels * kernel * kernel);
	struct dt_augment a = s->plain;
	int rc = 0;

	if (!s->whiten) {
		s->whiten = calloc(2 * n * n, sizeof(*s->whiten));
		if (!s->whiten)
			return dt_err_sys(err, -ENOMEM, "whitening filters");
		dt_augment_whole(&a, s->info.height, s->info.width);
		rc = dt_whiten_filters(s->data, &a, kernel, s->whiten, err);
	}
	*ret = s->whiten;
	return rc;
}

int64_t images_eval_samples(const struct trainer *t)
{
	return t->source.images.eval_info.images;
}

json_t *images_classes(const struct trainer *t)
{
	const struct dt_images_info *i = &t->source.images.info;
	json_t *list = json_array();

	for (int k = 0; k < i->classes; k++)
		json_array_append_new(list, json_string(i->class_name[k]));
	return list;
}

json_t *images_pixels(const struct trainer *t)
{
	const struct dt_augment *a = &t->source.images.plain;
	json_t *mean = json_array(), *deviation = json_array();

	for (int c = 0; c < t->source.images.info.channels; c++) {
		json_array_append_new(mean, json_real((double)a->mean[c]));
		json_array_append_new(deviation, json_real((double)a->deviation[c]));
	}
	return json_pack("{s:o, s:o}", "mean", mean, "deviation", deviation);
}

int images_load_meta(struct trainer *t, const json_t *meta, const char *path, struct dt_err *err)
{
	struct image_source *s = source_of(t);
	struct dt_augment a = s->plain;
	int rc = check_classes(t, json_object_get(meta, "classes"), path, err);

	if (rc < 0 || !read_pixels(t, json_object_get(meta, "pixels"), &a))
		return rc;
	if ((rc = dt_augment_check(&a, err)) < 0)
		return dt_err_prefix(err, "'%s'", path);
	if (!memcmp(a.mean, s->plain.mean, sizeof(a.mean)) &&
	    !memcmp(a.deviation, s->plain.deviation, sizeof(a.deviation)))
		return 0; /* unchanged, as after a rollback: loaders are running */
	s->plain = a;
	dt_image_loader_normalise(s->loader, a.mean, a.deviation);
	if (s->eval_loader)
		dt_image_loader_normalise(s->eval_loader, a.mean, a.deviation);
	return 0;
}

void images_metrics(struct trainer *t, json_t *line)
{
	struct image_source *s = source_of(t);
	struct dt_image_loader_stats now;

	dt_image_loader_stats(s->loader, &now);
	json_object_set_new(line, "decoded_images_per_s", json_real(now.images_per_s));
	json_object_set_new(line, "data_wait_s", json_real(now.waited_s - s->before.waited_s));
	s->before = now;
}
/* SPDX-License-Identifier: Apache-2.0 */
