/*
 * The network of airbench94 (Jordan 2024, "94% on CIFAR-10 in 3.29 seconds on a single GPU",
 * arXiv:2404.00498): 2 x 2 whitening filters, then a group for each width in config's blocks. A group is
 * convolution, pooling that halves the sides, batch norm, GELU, then convolution, batch norm, GELU. Norms
 * train only their bias: weights stay 1.
 *
 * The published network multiplies its logits by 1/9. Here fc.weight includes that factor: it starts 9 times
 * smaller, and trains like the published one at 1/81 of the learning rate (--lr-scale 'fc.*:0.0123').
 */
#include "model/block/image.h"
#include "model/family/family.h"

#include <math.h>
#include <stdio.h>

#define LOGITS_OVER 9
#define WINDOW	    2 /* side of the whitening filters */

/* The convolution PREFIXconvNUMBER, whose first channels are initialised to copy its input's. */
static struct dt_plane conv(struct dt_builder *b, struct dt_plane x, const char *prefix, int number,
			    int64_t width)
{
	const int64_t fan_in = x.channels * 9;
	struct dt_param *p;
	char name[56];

	snprintf(name, sizeof(name), "%sconv%d.weight", prefix, number);
	x = dt_block_conv(b, x, name, "conv", width, 3, 1);
	p = b->failed ? NULL : &b->g->params.p[b->g->params.n - 1];
	if (p) {
		p->init = DT_INIT_DIRAC;
		p->init_std = 1 / sqrt((double)fan_in); /* bound of PyTorch's uniform initialisation */
	}
	return x;
}

static struct dt_plane norm_gelu(struct dt_builder *b, struct dt_plane x, const char *prefix, int number)
{
	char name[56];

	snprintf(name, sizeof(name), "%snorm%d", prefix, number);
	x = dt_block_batch_norm(b, x, name, "norm", -1, false);
	if (!b->failed)
		b->g->params.p[b->g->params.n - 2].frozen = true;
	return dt_block_act(b, x, DT_ACT_GELU_ERF);
}

static void build(struct dt_builder *b)
{
	int64_t width[DT_STAGES_MAX] = {0};
	const int n = dt_config_blocks(b->c, width);
	struct dt_plane x;
	char prefix[24];

	dt_unit(b, -1);
	x = dt_block_act(b, dt_block_whiten(b, dt_block_pixels(b), "whiten", WINDOW), DT_ACT_GELU_ERF);
	for (int i = 0; i < n; i++) {
		dt_unit(b, i);
		snprintf(prefix, sizeof(prefix), "layer%d.", i + 1);
		x = conv(b, x, prefix, 1, width[i]);
		x = dt_block_pool(b, x, true, 2, 2, 0);
		x = norm_gelu(b, x, prefix, 1);
		x = conv(b, x, prefix, 2, width[i]);
		x = norm_gelu(b, x, prefix, 2);
	}
	dt_unit(b, (int)b->c->layers);
	x = dt_block_flatten(b, dt_block_pool(b, x, true, x.height, x.height, 0));
	dt_block_classify(b, x, false);
	if (!b->failed)
		b->g->params.p[b->g->params.n - 1].init_std /= LOGITS_OVER;
}

const struct dt_family dt_family_airbench = {
	.type = "airbench",
	.prefix = "",
	.images = true,
	.build = build,
};
/* SPDX-License-Identifier: Apache-2.0 */
