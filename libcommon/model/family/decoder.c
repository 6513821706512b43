/*
 * A decoder of pre-norm layers, as in most families; the configuration has their differences. before: what
 * attention adds to the stream, if the MLP does not see it (Wang and Komatsuzaki 2021).
 */
#include "model/family/family.h"

static const char *const norm1[] = {"norm1", "resid", "norm1.mean", "norm1.rstd"};
static const char *const norm2[] = {"norm2", "resid2", "norm2.mean", "norm2.rstd"};
static const char *const post1[] = {"delta", NULL, NULL, "post1.rstd"};
static const char *const post2[] = {"delta", NULL, NULL, "post2.rstd"};
static const char *const last[] = {"norm", "resid", "mean", "rstd"};

void dt_build_decoder(struct dt_builder *b)
{
	const struct dt_config *c = b->c;
	int x, h, delta = -1, before, embed;

	dt_unit(b, -1);
	embed = b->g->params.n;
	x = dt_block_embed(b);
	for (int l = 0; l < c->layers; l++) {
		dt_unit(b, l);
		h = dt_block_add_norm(b, &x, delta, DT_W_ATTN_NORM, "attn_norm", norm1);
		delta = c->kv_rank ? dt_block_latent_attention(b, h) : dt_block_attention(b, h);
		if (c->post_norms)
			delta = dt_block_norm(b, delta, DT_W_POST_ATTN_NORM, "attn_post_norm", post1);
		before = c->parallel_residual ? delta : -1;
		if (!c->one_norm)
			h = dt_block_add_norm(b, &x, c->parallel_residual ? -1 : delta, DT_W_MLP_NORM,
					      "mlp_norm", norm2);
		delta = dt_layer_has_experts(c, l) ? dt_block_experts(b, h) : dt_block_mlp(b, h);
		if (c->post_norms)
			delta = dt_block_norm(b, delta, DT_W_POST_MLP_NORM, "mlp_post_norm", post2);
		if (before >= 0)
			delta = dt_block_add(b, before, delta, "both", "delta");
	}
	dt_unit(b, (int)c->layers);
	h = dt_block_add_norm(b, &x, delta, DT_W_FINAL_NORM, "norm", last);
	dt_block_head(b, h, embed);
}
/* SPDX-License-Identifier: Apache-2.0 */
