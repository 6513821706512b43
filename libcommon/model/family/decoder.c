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

/* Adds a layer to the stream *x, to which *delta still has to be added. */
static void layer(struct dt_builder *b, int *x, int *delta)
{
	const struct dt_config *c = b->c;
	const bool ssm = dt_layer_is_ssm(c, b->layer);
	int h = dt_block_add_norm(b, x, *delta, DT_W_ATTN_NORM, ssm ? "mixer_norm" : "attn_norm", norm1),
	    before;

	*delta = ssm	      ? dt_block_ssm(b, h)
		 : c->kv_rank ? dt_block_latent_attention(b, h)
			      : dt_block_attention(b, h);
	if (!dt_layer_has_mlp(c, b->layer))
		return;
	if (c->post_norms)
		*delta = dt_block_norm(b, *delta, DT_W_POST_ATTN_NORM, "attn_post_norm", post1);
	before = c->parallel_residual ? *delta : -1;
	if (!c->one_norm)
		h = dt_block_add_norm(b, x, c->parallel_residual ? -1 : *delta, DT_W_MLP_NORM, "mlp_norm",
				      norm2);
	*delta = dt_layer_has_experts(c, b->layer) ? dt_block_experts(b, h) : dt_block_mlp(b, h);
	if (c->post_norms)
		*delta = dt_block_norm(b, *delta, DT_W_POST_MLP_NORM, "mlp_post_norm", post2);
	if (before >= 0)
		*delta = dt_block_add(b, before, *delta, "both", "delta");
}

/* The module for one more token, up to its last norm; h: the result of the model's. */
static int module(struct dt_builder *b, int h, int embed)
{
	int x, delta = -1;

	b->ahead = true;
	x = dt_block_mtp(b, h, embed);
	layer(b, &x, &delta);
	h = dt_block_add_norm(b, &x, delta, DT_W_MTP_NORM, "norm", last);
	b->ahead = false;
	return h;
}

/* Such a module as a model of its own: embedding, one layer, head. Its tensors keep their names. */
static void alone(struct dt_builder *b)
{
	int embed, h;

	dt_unit(b, -1);
	embed = dt_block_embed_table(b);
	dt_unit(b, 0);
	h = module(b, dt_block_given(b), embed);
	dt_unit(b, 1);
	dt_block_head(b, h, embed);
}

void dt_build_decoder(struct dt_builder *b)
{
	const struct dt_config *c = b->c;
	int x, h, delta = -1, embed, more = -1, head;

	if (c->module) {
		alone(b);
		return;
	}
	dt_unit(b, -1);
	embed = b->g->params.n;
	x = dt_block_embed(b);
	for (int l = 0; l < c->layers; l++) {
		dt_unit(b, l);
		layer(b, &x, &delta);
	}
	dt_unit(b, (int)c->layers);
	h = dt_block_add_norm(b, &x, delta, DT_W_FINAL_NORM, "norm", last);
	if (c->mtp_layers)
		more = module(b, h, embed);
	head = dt_block_head(b, h, embed);
	b->ahead = true;
	if (c->mtp_layers)
		dt_block_mtp_head(b, more, head);
	b->ahead = false;
}
/* SPDX-License-Identifier: Apache-2.0 */
