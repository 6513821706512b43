/*
 * Small networks for teaching: an MLP on an image's pixels, and two convolutions with a batch norm each.
 * config's blocks lists the widths of their layers.
 */
#include "model/block/image.h"
#include "model/family/family.h"

#include <stdio.h>

static void build_mlp(struct dt_builder *b)
{
	int64_t width[DT_STAGES_MAX] = {0};
	int n = dt_config_blocks(b->c, width);
	struct dt_plane x;
	char prefix[24];

	dt_unit(b, -1);
	x = dt_block_flatten(b, dt_block_pixels(b));
	for (int i = 0; i < n; i++) {
		dt_unit(b, i);
		snprintf(prefix, sizeof(prefix), "fc%d", i + 1);
		x = dt_block_dense(b, x, prefix, width[i]);
	}
	dt_unit(b, (int)b->c->layers);
	dt_block_classify(b, x, true);
}

static void build_cnn(struct dt_builder *b)
{
	int64_t width[DT_STAGES_MAX] = {0};
	int n = dt_config_blocks(b->c, width);
	struct dt_plane x;
	char name[24];

	dt_unit(b, -1);
	x = dt_block_pixels(b);
	for (int i = 0; i < n; i++) {
		dt_unit(b, i);
		snprintf(name, sizeof(name), "conv%d.weight", i + 1);
		x = dt_block_conv(b, x, name, "conv", width[i], 3, 1);
		snprintf(name, sizeof(name), "bn%d", i + 1);
		x = dt_block_batch_norm(b, x, name, "bn", -1, true);
		x = dt_block_pool(b, x, true, 2, 2, 0);
	}
	dt_unit(b, (int)b->c->layers);
	dt_block_classify(b, dt_block_flatten(b, x), true);
}

const struct dt_family dt_family_mlp = {
	.type = "mlp",
	.prefix = "",
	.images = true,
	.build = build_mlp,
};

/*
 * An MLP on an agent's observation, given as one pixel with a channel for each element. The learner
 * interprets its outputs: logits of actions and a value, or action values.
 */
const struct dt_family dt_family_policy = {
	.type = "policy",
	.prefix = "",
	.images = true,
	.build = build_mlp,
};

const struct dt_family dt_family_cnn = {
	.type = "cnn",
	.prefix = "",
	.images = true,
	.build = build_cnn,
};
/* SPDX-License-Identifier: Apache-2.0 */
