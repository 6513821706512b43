/*
 * Class names of encoders, and class names, mean and deviation of image classifiers: from dt's manifests,
 * from timm's config.json, and from config.json and preprocessor_config.json of transformers.
 */
#include "ckpt/source_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Whether list has n elements, all strings or all numbers. */
static bool has(const json_t *list, int64_t n, bool texts)
{
	const json_t *v;
	size_t i;

	if ((int64_t)json_array_size(list) != n)
		return false;
	json_array_foreach(list, i, v) if (texts ? !json_is_string(v) : !json_is_number(v)) return false;
	return true;
}

/* The values of {"0": name, "1": name, ...} in order; NULL if it has others. */
static json_t *labels(const json_t *by_number)
{
	const size_t n = json_object_size(by_number);
	json_t *list = json_array();
	char key[24];

	for (size_t i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "%zu", i);
		json_array_append(list, json_object_get(by_number, key));
	}
	if (json_array_size(list) == n && n)
		return list;
	json_decref(list);
	return NULL;
}

static json_t *repeated(double v, int64_t n)
{
	json_t *list = json_array();

	for (int64_t i = 0; i < n; i++)
		json_array_append_new(list, json_real(v));
	return list;
}

/* Whether these are the names that transformers gives classes without names. */
static bool unnamed(const json_t *names)
{
	return !strcmp(json_string_value(json_array_get(names, 0)), "LABEL_0");
}

int src_labels_hf(struct dt_source *s, const json_t *config, struct dt_err *err)
{
	json_t *classes = labels(json_object_get(config, "id2label")), *o = json_object();
	int rc;

	if (classes)
		json_object_set_new(o, "classes", classes);
	rc = src_images(s, o, err);
	json_decref(o);
	return rc;
}

int src_images_hf(struct dt_source *s, const json_t *config, const char *folder, struct dt_err *err)
{
	json_t *o = json_object(), *read = NULL, *classes = labels(json_object_get(config, "id2label"));
	char path[PATH_MAX];
	int rc = 0;

	if ((size_t)snprintf(path, sizeof(path), "%s/preprocessor_config.json", folder) < sizeof(path) &&
	    access(path, F_OK) == 0)
		rc = dt_json_load(path, SRC_TEXT_MAX, &read, err);
	if (classes)
		json_object_set_new(o, "classes", classes);
	if (json_is_false(json_object_get(read, "do_normalize"))) {
		json_object_set_new(o, "mean", repeated(0, s->config.channels));
		json_object_set_new(o, "std", repeated(1, s->config.channels));
	} else {
		json_object_set(o, "mean", json_object_get(read, "image_mean"));
		json_object_set(o, "std", json_object_get(read, "image_std"));
	}
	if (rc == 0)
		rc = src_images(s, o, err);
	json_decref(read);
	json_decref(o);
	return rc;
}

int src_images(struct dt_source *s, const json_t *o, struct dt_err *err)
{
	const json_t *own = json_object_get(o, "pixels"), *timm = json_object_get(o, "pretrained_cfg"),
		     *from = own    ? own
			     : timm ? timm
				    : o;
	const bool text = !dt_config_is_image(&s->config);
	json_t *names = json_object_get(o, timm ? "label_names" : "classes"), *mean, *deviation;

	if (!dt_config_is_image(&s->config) && !dt_config_has_labels(&s->config))
		return 0;
	s->images = json_object();
	if (!s->images)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	if (has(names, text ? s->config.labels : s->config.vocab, true) && !(text && unnamed(names)))
		json_object_set(s->images, "classes", names);
	if (text)
		return 0;
	mean = json_object_get(from, "mean");
	deviation = json_object_get(from, own ? "deviation" : "std");
	if (has(mean, s->config.channels, false) && has(deviation, s->config.channels, false)) {
		json_object_set(s->images, "mean", mean);
		json_object_set(s->images, "deviation", deviation);
	}
	return 0;
}

const json_t *dt_source_images(const struct dt_source *s)
{
	return s->mean ? dt_source_images(s->mean[0]) : s->images;
}

const struct dt_vision *dt_source_vision(const struct dt_source *s)
{
	return &s->vision;
}
/* SPDX-License-Identifier: Apache-2.0 */
