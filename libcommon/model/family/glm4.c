/*
 * GLM-4 (Z.ai 2025): norms also after attention and MLP, and half of each head is rotated; GLM-4.5 (2025), a
 * mixture of experts with DeepSeek-V3's router and module for a further token.
 */
#include "model/family/family.h"

/* What both have; on entry c has the defaults of the class. */
static int read_decoder(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	if (c->max_seq == 0)
		c->max_seq = 131072;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 ||
	    (rc = dt_json_bool(o, "attention_bias", false, &c->qkv_bias, err)) < 0 ||
	    (rc = dt_hf_rope_part(o, 0.5, c, err)) < 0)
		return rc;
	return dt_hf_rope(o, c, err);
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	/* Defaults of the class. */
	c->heads = 32;
	c->kv_heads = 2;
	c->head_dim = 128;
	c->norm_eps = 1.5625e-7;
	c->eos = 151329;
	c->post_norms = c->qkv_bias = true;
	c->rope_pairing = DT_ROPE_ADJACENT;
	return read_decoder(o, c, err);
}

static int moe_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	/* Defaults of the class. */
	c->heads = 96;
	c->kv_heads = 8;
	c->norm_eps = 1e-5;
	c->experts = 128;
	c->experts_used = 8;
	c->expert_ffn = 1408;
	c->dense_layers = 1;
	c->router_bias = c->router_sigmoid = true;
	if ((rc = read_decoder(o, c, err)) < 0 ||
	    (rc = dt_json_bool(o, "use_qk_norm", false, &c->qk_norm, err)) < 0)
		return rc;
	return dt_hf_router(o, 1, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	dt_hf_write_rope_part(c, o);
	/* The class's default may be outside the vocabulary. */
	json_object_set_new(o, "pad_token_id", json_null());
	return o;
}

static json_t *moe_to_hf(const struct dt_config *c)
{
	json_t *o = to_hf(c);

	dt_hf_write_router(c, o);
	json_object_set_new(o, "use_qk_norm", json_boolean(c->qk_norm));
	json_object_set_new(o, "num_nextn_predict_layers", json_integer(c->mtp_layers));
	return o;
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	c->rope_pairing = DT_ROPE_ADJACENT;
	c->post_norms = true;
	return dt_gguf_decoder_part(k, c, err);
}

static int moe_from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc = dt_gguf_leave_modules(k, c, err);

	if (rc == 0)
		rc = dt_gguf_sigmoid_router(k, c, err);
	return rc < 0 ? rc : dt_gguf_decoder_part(k, c, err);
}

static const struct dt_tensor_name hf[] = {
	{DT_W_POST_ATTN_NORM, "layers.%d.post_self_attn_layernorm.weight"},
	{DT_W_POST_MLP_NORM, "layers.%d.post_mlp_layernorm.weight"},
	{DT_W_GATE, "layers.%d.mlp.gate_up_proj.weight", DT_JOINED_GATE_UP},
	{DT_W_UP, "layers.%d.mlp.gate_up_proj.weight", DT_JOINED_GATE_UP},
	{0},
};

static const struct dt_tensor_name gguf[] = {
	{DT_W_GATE, "blk.%d.ffn_up.weight", DT_JOINED_GATE_UP},
	{DT_W_UP, "blk.%d.ffn_up.weight", DT_JOINED_GATE_UP},
	{0},
};

static const struct dt_tensor_name moe_gguf[] = {
	{DT_W_MLP_NORM, "blk.%d.post_attention_norm.weight"},
	{0},
};

const struct dt_family dt_family_glm4 = {
	.type = "glm4",
	.class = "Glm4ForCausalLM",
	.arch = "glm4",
	.prefix = "model.",
	.hf_vocab = 151552,
	.gguf_adjacent = true,
	.hf = {hf, dt_names_llama},
	.gguf = {gguf, dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};

const struct dt_family dt_family_glm4_moe = {
	.type = "glm4_moe",
	.class = "Glm4MoeForCausalLM",
	.mtp = true,
	.arch = "glm4moe",
	.prefix = "model.",
	.hf_vocab = 151552,
	.gguf_expert_width = true,
	.hf = {dt_names_shared, dt_names_experts, dt_names_mtp, dt_names_llama},
	.gguf = {moe_gguf, dt_names_gguf_shared, dt_names_gguf_mtp, dt_names_gguf},
	.from_hf = moe_from_hf,
	.to_hf = moe_to_hf,
	.from_gguf = moe_from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
