/*
 * Idefics3 (Laurencon et al. 2024) and SmolVLM (Marafioti et al. 2025), as in transformers: a Llama that
 * reads text and images, and a tower of vision, SigLIP's (Zhai et al. 2023), whose pre-norm layers attend
 * without a causal mask. The two are models of their own: this file has the tower, and reads what joins
 * them.
 */
#include "model/block/tower.h"
#include "model/family/family.h"

#include <string.h>

static const char *const norm1[] = {"norm1", "resid", "norm1.mean", "norm1.rstd"};
static const char *const norm2[] = {"norm2", "resid2", "norm2.mean", "norm2.rstd"};
static const char *const last[] = {"norm", "resid", "mean", "rstd"};

static void build(struct dt_builder *b)
{
	const struct dt_config *c = b->c;
	int x, h, delta;

	dt_unit(b, -1);
	x = dt_block_patch_positions(b);
	delta = dt_block_patch_rows(b);
	for (int l = 0; l < c->layers; l++) {
		dt_unit(b, l);
		h = dt_block_add_norm(b, &x, delta, DT_W_ATTN_NORM, "attn_norm", norm1);
		delta = dt_block_attention(b, h);
		h = dt_block_add_norm(b, &x, delta, DT_W_MLP_NORM, "mlp_norm", norm2);
		delta = dt_block_mlp(b, h);
	}
	dt_unit(b, (int)c->layers);
	dt_block_connector(b, dt_block_add_norm(b, &x, delta, DT_W_FINAL_NORM, "norm", last));
}

/* The keys of the classes Idefics3Config and Idefics3VisionConfig, with their defaults. */
static int beside_text(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *v = json_object_get(o, "vision_config");
	struct dt_tower t = {.hidden = 1152,
			     .ffn = 3072,
			     .layers = 12,
			     .heads = 16,
			     .patch = 32,
			     .channels = 3,
			     .side = 224,
			     .join = 2,
			     .out = c->hidden,
			     .act = DT_ACT_GELU_TANH,
			     .norm_eps = 1e-6,
			     .token = 128257};
	int rc;

	if (v && !json_is_object(v))
		return dt_err_set(err, -EINVAL, "'vision_config' is not an object");
	c->tied = false;
	if ((rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0 ||
	    (rc = dt_hf_size(o, "image_token_id", false, &t.token, err)) < 0 ||
	    (rc = dt_hf_size(o, "scale_factor", false, &t.join, err)) < 0 ||
	    (rc = dt_hf_size(v, "hidden_size", false, &t.hidden, err)) < 0 ||
	    (rc = dt_hf_size(v, "intermediate_size", false, &t.ffn, err)) < 0 ||
	    (rc = dt_hf_size(v, "num_hidden_layers", false, &t.layers, err)) < 0 ||
	    (rc = dt_hf_size(v, "num_attention_heads", false, &t.heads, err)) < 0 ||
	    (rc = dt_hf_size(v, "patch_size", false, &t.patch, err)) < 0 ||
	    (rc = dt_hf_size(v, "num_channels", false, &t.channels, err)) < 0 ||
	    (rc = dt_hf_size(v, "image_size", false, &t.side, err)) < 0 ||
	    (rc = dt_hf_act(v, "hidden_act", &t.act, err)) < 0 ||
	    (rc = dt_json_real(v, "layer_norm_eps", false, &t.norm_eps, err)) < 0)
		return rc;
	c->tower = t;
	return 0;
}

#define VISION "vision_model."
#define LAYER  VISION "encoder.layers.%d."
static const struct dt_tensor_name hf[] = {
	{DT_W_EMBED, VISION "embeddings.position_embedding.weight"},
	{DT_W_CONV, VISION "embeddings.patch_embedding.weight"},
	{DT_W_CONV_B, VISION "embeddings.patch_embedding.bias"},
	{DT_W_ATTN_NORM, LAYER "layer_norm1.weight"},
	{DT_W_ATTN_NORM_B, LAYER "layer_norm1.bias"},
	{DT_W_Q, LAYER "self_attn.q_proj.weight"},
	{DT_W_K, LAYER "self_attn.k_proj.weight"},
	{DT_W_V, LAYER "self_attn.v_proj.weight"},
	{DT_W_Q_B, LAYER "self_attn.q_proj.bias"},
	{DT_W_K_B, LAYER "self_attn.k_proj.bias"},
	{DT_W_V_B, LAYER "self_attn.v_proj.bias"},
	{DT_W_O, LAYER "self_attn.out_proj.weight"},
	{DT_W_O_B, LAYER "self_attn.out_proj.bias"},
	{DT_W_MLP_NORM, LAYER "layer_norm2.weight"},
	{DT_W_MLP_NORM_B, LAYER "layer_norm2.bias"},
	{DT_W_UP, LAYER "mlp.fc1.weight"},
	{DT_W_UP_B, LAYER "mlp.fc1.bias"},
	{DT_W_DOWN, LAYER "mlp.fc2.weight"},
	{DT_W_DOWN_B, LAYER "mlp.fc2.bias"},
	{DT_W_FINAL_NORM, VISION "post_layernorm.weight"},
	{DT_W_FINAL_NORM_B, VISION "post_layernorm.bias"},
	{DT_W_CONNECTOR, "connector.modality_projection.proj.weight"},
	{0},
};

/* Tensors of the decoder. */
static bool is_buffer(const struct dt_config *c, const char *name)
{
	return strncmp(name, VISION, strlen(VISION)) && strncmp(name, "connector.", 10);
}

const struct dt_family dt_family_idefics3 = {
	.type = "siglip_tower",
	.outer = {"idefics3", "smolvlm"},
	.beside_text = beside_text,
	.prefix = "model.",
	.hf = {hf},
	.is_buffer = is_buffer,
	.build = build,
};

/* SPDX-License-Identifier: Apache-2.0 */
