/*
 * ResNets (He et al. 2015) as in torchvision, with its names: a bottleneck's stride is on the 3 x 3
 * convolution ("v1.5"). The CIFAR stem is a 3 x 3 convolution without pooling. Also ResNet-9, the small
 * network of fast CIFAR-10 recipes (Page 2018): residual pairs after the first and third stage.
 */
#include "model/block/image.h"
#include "model/family/family.h"

#include <stdio.h>
#include <string.h>

static struct dt_plane conv_norm(struct dt_builder *b, struct dt_plane x, const char *prefix,
				 const char *number, int64_t out, int64_t kernel, int64_t stride,
				 int residual, bool relu)
{
	char conv[56], norm[56];

	snprintf(conv, sizeof(conv), "%sconv%s.weight", prefix, number);
	snprintf(norm, sizeof(norm), "%sbn%s", prefix, number);
	x = dt_block_conv(b, x, conv, "conv", out, kernel, stride);
	return dt_block_batch_norm(b, x, norm, "bn", residual, relu);
}

/* The shortcut of a block: x, or a projection if the shape changes. */
static int shortcut(struct dt_builder *b, struct dt_plane x, const char *prefix, int64_t out, int64_t stride)
{
	char conv[56], norm[56];

	if (stride == 1 && x.channels == out)
		return x.v;
	snprintf(conv, sizeof(conv), "%sdownsample.0.weight", prefix);
	snprintf(norm, sizeof(norm), "%sdownsample.1", prefix);
	x = dt_block_conv(b, x, conv, "conv_down", out, 1, stride);
	return dt_block_batch_norm(b, x, norm, "bn_down", -1, false).v;
}

static struct dt_plane block(struct dt_builder *b, struct dt_plane x, int stage, int number, int64_t width)
{
	const int64_t out = b->c->bottleneck ? 4 * width : width, stride = stage > 1 && number == 0 ? 2 : 1;
	const int last = b->g->params.n;
	struct dt_plane y = x;
	char prefix[24];
	int from;

	snprintf(prefix, sizeof(prefix), "layer%d.%d.", stage, number);
	from = shortcut(b, x, prefix, out, stride);
	if (b->c->bottleneck) {
		y = conv_norm(b, y, prefix, "1", width, 1, 1, -1, true);
		y = conv_norm(b, y, prefix, "2", width, 3, stride, -1, true);
		y = conv_norm(b, y, prefix, "3", out, 1, 1, from, true);
	} else {
		y = conv_norm(b, y, prefix, "1", width, 3, stride, -1, true);
		y = conv_norm(b, y, prefix, "2", width, 3, 1, from, true);
	}
	/* the block starts as its shortcut: the last norm's weight is 0 (Goyal et al. 2017) */
	if (b->c->zero_init_residual && !b->failed && b->g->params.n > last)
		b->g->params.p[b->g->params.n - 2].init = DT_INIT_ZEROS;
	return y;
}

static void build_resnet(struct dt_builder *b)
{
	const struct dt_config *c = b->c;
	int64_t blocks[DT_STAGES_MAX] = {0}, width = 64;
	int stages = dt_config_blocks(c, blocks), unit = 0;
	struct dt_plane x;

	dt_unit(b, -1);
	x = dt_block_pixels(b);
	if (c->stem == DT_STEM_IMAGENET) {
		x = conv_norm(b, x, "", "1", width, 7, 2, -1, true);
		x = dt_block_pool(b, x, true, 3, 2, 1);
	} else {
		x = conv_norm(b, x, "", "1", width, 3, 1, -1, true);
	}
	for (int s = 0; s < stages; s++, width *= 2)
		for (int i = 0; i < blocks[s]; i++) {
			dt_unit(b, unit++);
			x = block(b, x, s + 1, i, width);
		}
	dt_unit(b, (int)c->layers);
	dt_block_classify(b, dt_block_pool(b, x, false, x.height, x.height, 0), true);
}

/* x + two convolutions of x, each with a ReLU. */
static struct dt_plane residual(struct dt_builder *b, struct dt_plane x, const char *prefix)
{
	struct dt_plane y = conv_norm(b, x, prefix, "1", x.channels, 3, 1, -1, true);

	y = conv_norm(b, y, prefix, "2", x.channels, 3, 1, -1, true);
	y.v = dt_block_add(b, x.v, y.v, "add", "sum");
	return y;
}

static void build_resnet9(struct dt_builder *b)
{
	int64_t width = 64;
	struct dt_plane x;
	char prefix[24];

	dt_unit(b, -1);
	x = conv_norm(b, dt_block_pixels(b), "prep.", "", width, 3, 1, -1, true);
	for (int s = 0; s < 3; s++) {
		dt_unit(b, s);
		width *= 2;
		snprintf(prefix, sizeof(prefix), "layer%d.", s + 1);
		x = conv_norm(b, x, prefix, "", width, 3, 1, -1, true);
		x = dt_block_pool(b, x, true, 2, 2, 0);
		snprintf(prefix, sizeof(prefix), "layer%d.residual.", s + 1);
		if (s != 1)
			x = residual(b, x, prefix);
	}
	dt_unit(b, (int)b->c->layers);
	dt_block_classify(b, dt_block_flatten(b, dt_block_pool(b, x, true, x.height, x.height, 0)), true);
}

const struct dt_family dt_family_resnet = {
	.type = "resnet",
	.prefix = "",
	.images = true,
	.from_timm = dt_resnet_from_timm,
	.to_timm = dt_resnet_to_timm,
	.build = build_resnet,
};

const struct dt_family dt_family_resnet9 = {
	.type = "resnet9",
	.prefix = "",
	.images = true,
	.build = build_resnet9,
};
/* SPDX-License-Identifier: Apache-2.0 */
