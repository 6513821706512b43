/*
 * Vision transformer (Dosovitskiy et al., An Image is Worth 16x16 Words, 2021) as in transformers' ViT:
 * patches of an image are tokens behind a class token, with learned positions; pre-norm layers attend without
 * a causal mask, and the class token's last row is classified.
 */
#include "model/block/image.h"
#include "model/family/family.h"

#include <string.h>

static const char *const norm1[] = {"norm1", "resid", "norm1.mean", "norm1.rstd"};
static const char *const norm2[] = {"norm2", "resid2", "norm2.mean", "norm2.rstd"};
static const char *const last[] = {"norm", NULL, "mean", "rstd"};

static void build(struct dt_builder *b)
{
	const struct dt_config *c = b->c;
	int x, h, delta = -1;
	struct dt_plane row;

	dt_unit(b, -1);
	x = dt_block_tokens(b, dt_block_patches(b, dt_block_pixels(b)));
	for (int l = 0; l < c->layers; l++) {
		dt_unit(b, l);
		h = dt_block_add_norm(b, &x, delta, DT_W_ATTN_NORM, "attn_norm", norm1);
		delta = dt_block_attention(b, h);
		h = dt_block_add_norm(b, &x, delta, DT_W_MLP_NORM, "mlp_norm", norm2);
		delta = dt_block_mlp(b, h);
	}
	dt_unit(b, (int)c->layers);
	row = dt_block_class_row(b, dt_block_add(b, x, delta, "add", "resid"));
	row.v = dt_block_add_norm(b, &row.v, -1, DT_W_FINAL_NORM, "norm", last);
	dt_block_classify(b, row, true);
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *names = json_object_get(o, "id2label");
	int rc;

	c->norm = DT_NORM_LAYER;
	c->norm_eps = 1e-12;
	c->pos = DT_POS_LEARNED;
	c->act = DT_ACT_GELU_ERF;
	c->qkv_bias = c->out_bias = c->mlp_bias = true;
	c->hidden = 768;
	c->ffn = 3072;
	c->layers = c->heads = 12;
	c->image_size = 224;
	c->patch = 16;
	c->channels = 3;
	if (json_is_object(names))
		c->vocab = (int64_t)json_object_size(names);
	if ((rc = dt_hf_size(o, "num_labels", false, &c->vocab, err)) < 0 ||
	    (rc = dt_hf_size(o, "hidden_size", false, &c->hidden, err)) < 0 ||
	    (rc = dt_hf_size(o, "intermediate_size", false, &c->ffn, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_hidden_layers", false, &c->layers, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_attention_heads", false, &c->heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "image_size", false, &c->image_size, err)) < 0 ||
	    (rc = dt_hf_size(o, "patch_size", false, &c->patch, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_channels", false, &c->channels, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_json_real(o, "layer_norm_eps", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_json_bool(o, "qkv_bias", false, &c->qkv_bias, err)) < 0)
		return rc;
	dt_config_complete_image(c);
	return 0;
}

static json_t *to_hf(const struct dt_config *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:f, s:b}", "num_labels",
			 (json_int_t)c->vocab, "hidden_size", (json_int_t)c->hidden, "intermediate_size",
			 (json_int_t)c->ffn, "num_hidden_layers", (json_int_t)c->layers,
			 "num_attention_heads", (json_int_t)c->heads, "image_size", (json_int_t)c->image_size,
			 "patch_size", (json_int_t)c->patch, "num_channels", (json_int_t)c->channels,
			 "hidden_act", dt_hf_act_name(c->act), "layer_norm_eps", c->norm_eps, "qkv_bias",
			 c->qkv_bias);
}

#define LAYER "vit.encoder.layer.%d."
static const struct dt_tensor_name hf[] = {
	{DT_W_CONV, "vit.embeddings.patch_embeddings.projection.weight"},
	{DT_W_CONV_B, "vit.embeddings.patch_embeddings.projection.bias"},
	{DT_W_CLASS_TOKEN, "vit.embeddings.cls_token"},
	{DT_W_POS, "vit.embeddings.position_embeddings"},
	{DT_W_ATTN_NORM, LAYER "layernorm_before.weight"},
	{DT_W_ATTN_NORM_B, LAYER "layernorm_before.bias"},
	{DT_W_Q, LAYER "attention.attention.query.weight"},
	{DT_W_K, LAYER "attention.attention.key.weight"},
	{DT_W_V, LAYER "attention.attention.value.weight"},
	{DT_W_Q_B, LAYER "attention.attention.query.bias"},
	{DT_W_K_B, LAYER "attention.attention.key.bias"},
	{DT_W_V_B, LAYER "attention.attention.value.bias"},
	{DT_W_O, LAYER "attention.output.dense.weight"},
	{DT_W_O_B, LAYER "attention.output.dense.bias"},
	{DT_W_MLP_NORM, LAYER "layernorm_after.weight"},
	{DT_W_MLP_NORM_B, LAYER "layernorm_after.bias"},
	{DT_W_UP, LAYER "intermediate.dense.weight"},
	{DT_W_UP_B, LAYER "intermediate.dense.bias"},
	{DT_W_DOWN, LAYER "output.dense.weight"},
	{DT_W_DOWN_B, LAYER "output.dense.bias"},
	{DT_W_FINAL_NORM, "vit.layernorm.weight"},
	{DT_W_FINAL_NORM_B, "vit.layernorm.bias"},
	{DT_W_CLASSES, "classifier.weight"},
	{DT_W_CLASSES_B, "classifier.bias"},
	{0},
};

const struct dt_family dt_family_vit = {
	.type = "vit",
	.class = "ViTForImageClassification",
	.prefix = "",
	.hf = {hf},
	.hf_vocab = 2,
	.images = true,
	.from_hf = from_hf,
	.to_hf = to_hf,
	.build = build,
};
/* SPDX-License-Identifier: Apache-2.0 */
