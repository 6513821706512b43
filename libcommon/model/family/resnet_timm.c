/*
 * ResNets in timm's and torchvision's files. timm's config.json names an architecture, its classes and, in
 * pretrained_cfg, the size and channels of images. Without one (torchvision's state_dict in a safetensors
 * file) all but the image size is inferred from the tensors: the number of blocks, a bottleneck by its third
 * convolution, the stem by the kernel of the first convolution.
 */
#include "model/family/family.h"
#include "model/names.h"
#include "model/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct known {
	const char *name, *blocks;
	bool bottleneck;
	int64_t features;
} known[] = {{"resnet18", "2-2-2-2", false, 512},
	     {"resnet34", "3-4-6-3", false, 512},
	     {"resnet50", "3-4-6-3", true, 2048},
	     {"resnet101", "3-4-23-3", true, 2048}};
#define NKNOWN (sizeof(known) / sizeof(known[0]))

static void plain(struct dt_config *c)
{
	memset(c, 0, sizeof(*c));
	snprintf(c->family, sizeof(c->family), "resnet");
	c->norm_eps = 1e-5;
	c->channels = 3;
	c->vocab = 1000;
	c->image_size = 224;
}

int dt_resnet_from_timm(const json_t *o, struct dt_config *ret, struct dt_err *err)
{
	const json_t *pre = json_object_get(o, "pretrained_cfg"), *size;
	const char *name = json_string_value(json_object_get(o, "architecture"));
	struct dt_config c;
	size_t i = 0;
	int rc;

	while (i < NKNOWN && strcmp(known[i].name, name))
		i++;
	if (i == NKNOWN)
		return dt_err_set(err, -EINVAL,
				  "timm's architecture '%.60s' is not supported; known: resnet18, resnet34, "
				  "resnet50, resnet101",
				  name);
	plain(&c);
	snprintf(c.name, sizeof(c.name), "%s", name);
	snprintf(c.blocks, sizeof(c.blocks), "%s", known[i].blocks);
	c.bottleneck = known[i].bottleneck;
	pre = pre ? pre : o; /* older files have no nested object */
	size = json_object_get(pre, "input_size");
	if (json_array_size(size) == 3) {
		c.channels = json_integer_value(json_array_get(size, 0));
		c.image_size = json_integer_value(json_array_get(size, 1));
		if (json_integer_value(json_array_get(size, 2)) != c.image_size)
			return dt_err_set(err, -ENOTSUP, "images of %lld x %lld pixels are not square",
					  (long long)c.image_size,
					  (long long)json_integer_value(json_array_get(size, 2)));
	}
	if ((rc = dt_json_int(o, "num_classes", false, 1, 1 << 20, &c.vocab, err)) < 0)
		return rc;
	dt_config_complete_image(&c);
	if ((rc = dt_config_check(&c, err)) < 0)
		return rc;
	*ret = c;
	return 0;
}

json_t *dt_resnet_to_timm(const struct dt_config *c)
{
	const json_int_t side = (json_int_t)c->image_size, classes = (json_int_t)c->vocab;
	size_t i = 0;

	while (i < NKNOWN && (strcmp(known[i].blocks, c->blocks) || known[i].bottleneck != c->bottleneck))
		i++;
	if (i == NKNOWN || c->stem != DT_STEM_IMAGENET || (float)c->norm_eps != 1e-5f)
		return NULL;
	return json_pack("{s:s, s:I, s:I, s:{s:I}, s:{s:s, s:[I, I, I], s:b, s:I, s:s, s:s}}", "architecture",
			 known[i].name, "num_classes", classes, "num_features", (json_int_t)known[i].features,
			 "model_args", "in_chans", (json_int_t)c->channels, "pretrained_cfg", "architecture",
			 known[i].name, "input_size", (json_int_t)c->channels, side, side, "fixed_input_size",
			 0, "num_classes", classes, "first_conv", "conv1", "classifier", "fc");
}

/* Parses "layerS.B.REST" into S and B; returns REST. */
static const char *in_block(const char *name, int *stage, long *block)
{
	char *end;

	if (strncmp(name, "layer", 5) || name[5] < '1' || name[5] > '4' || name[6] != '.')
		return NULL;
	*stage = name[5] - '1';
	*block = strtol(name + 7, &end, 10);
	return end > name + 7 && *end == '.' && *block >= 0 && *block < 64 ? end + 1 : NULL;
}

int dt_resnet_from_tensors(const struct dt_safetensors *s, struct dt_config *ret)
{
	long blocks[4] = {0}, block;
	int64_t kernel = 0, features = 0;
	struct dt_config c;
	size_t at = 0;

	plain(&c);
	c.vocab = 0;
	for (int i = 0; i < s->n; i++) {
		const struct dt_safetensor *t = &s->t[i];
		char text[DT_NAMES_MAX];
		const char *name = dt_names_of_images(t->name, text), *rest;
		int stage;

		if (!strcmp(name, "conv1.weight") && t->ndim == 4) {
			kernel = t->shape[2];
			c.channels = t->shape[1];
		} else if (!strcmp(name, "fc.weight") && t->ndim == 2) {
			c.vocab = t->shape[0];
			features = t->shape[1];
		} else if ((rest = in_block(name, &stage, &block))) {
			blocks[stage] = block >= blocks[stage] ? block + 1 : blocks[stage];
			c.bottleneck |= !strcmp(rest, "conv3.weight");
		}
	}
	if ((kernel != 7 && kernel != 3) || !features || !blocks[0])
		return 0;
	for (int i = 0; i < 4 && blocks[i]; i++)
		at += (size_t)snprintf(c.blocks + at, sizeof(c.blocks) - at, "%s%ld", i ? "-" : "",
				       blocks[i]);
	c.stem = kernel == 7 ? DT_STEM_IMAGENET : DT_STEM_CIFAR;
	c.image_size = kernel == 7 ? 224 : 32;
	snprintf(c.name, sizeof(c.name), "resnet");
	for (size_t i = 0; i < NKNOWN; i++)
		if (!strcmp(known[i].blocks, c.blocks) && known[i].bottleneck == c.bottleneck)
			snprintf(c.name, sizeof(c.name), "%s", known[i].name);
	dt_config_complete_image(&c);
	if (dt_config_check(&c, NULL) < 0)
		return 0;
	*ret = c;
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
