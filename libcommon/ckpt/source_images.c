/* Class names, mean and deviation of image classifiers, from dt's manifests and timm's config.json. */
#include "ckpt/source_internal.h"

#include <errno.h>

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

int src_images(struct dt_source *s, const json_t *o, struct dt_err *err)
{
	const json_t *own = json_object_get(o, "pixels"), *timm = json_object_get(o, "pretrained_cfg"),
		     *from = own    ? own
			     : timm ? timm
				    : o;
	json_t *names = json_object_get(o, timm ? "label_names" : "classes"), *mean, *deviation;

	if (!dt_config_is_image(&s->config))
		return 0;
	s->images = json_object();
	if (!s->images)
		return dt_err_sys(err, -ENOMEM, "cannot open '%s'", s->path);
	if (has(names, s->config.vocab, true))
		json_object_set(s->images, "classes", names);
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
/* SPDX-License-Identifier: Apache-2.0 */
