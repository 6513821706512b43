/*
 * StarCoder2 (Lozhkov et al. 2024): LayerNorms and linears with biases, a plain MLP with a tanh GELU, rotary
 * positions, and a sliding window in every layer.
 */
#include "model/family/family.h"

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool biased = true;
	int rc;

	/* Defaults of the class. */
	c->norm = DT_NORM_LAYER;
	c->norm_eps = 1e-5;
	c->pos = DT_POS_ROPE;
	c->act = DT_ACT_GELU_TANH;
	c->tied = true;
	c->hidden = 3072;
	c->ffn = 12288;
	c->layers = 30;
	c->heads = 24;
	c->kv_heads = 2;
	c->max_seq = 4096;
	c->bos = c->eos = 50256;
	if ((rc = dt_hf_size(o, "hidden_size", false, &c->hidden, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_hidden_layers", false, &c->layers, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_attention_heads", false, &c->heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_key_value_heads", false, &c->kv_heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "head_dim", false, &c->head_dim, err)) < 0 ||
	    (rc = dt_hf_size(o, "intermediate_size", false, &c->ffn, err)) < 0 ||
	    (rc = dt_hf_size(o, "max_position_embeddings", false, &c->max_seq, err)) < 0 ||
	    (rc = dt_json_real(o, "norm_epsilon", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0 ||
	    (rc = dt_json_bool(o, "use_bias", false, &biased, err)) < 0 ||
	    (!c->head_dim && (rc = dt_hf_even_heads(c, err)) < 0))
		return rc;
	c->qkv_bias = c->out_bias = c->mlp_bias = biased;
	rc = dt_hf_rope(o, c, err);
	return rc < 0 ? rc : dt_hf_window(o, c, true, true, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_del(o, "rms_norm_eps");
	json_object_set_new(o, "norm_epsilon", json_real(c->norm_eps));
	json_object_set_new(o, "use_bias", json_boolean(c->mlp_bias));
	dt_hf_write_window(c, o);
	return o;
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->norm = DT_NORM_LAYER;
	c->act = DT_ACT_GELU_TANH;
	rc = dt_gguf_key_real(k, "attention.layer_norm_epsilon", true, &c->norm_eps, err);
	return rc < 0 ? rc : dt_gguf_attention(k, c, err);
}

static const struct dt_tensor_name hf[] = {
	{DT_W_ATTN_NORM_B, "layers.%d.input_layernorm.bias"},
	{DT_W_MLP_NORM_B, "layers.%d.post_attention_layernorm.bias"},
	{DT_W_UP, "layers.%d.mlp.c_fc.weight"},
	{DT_W_UP_B, "layers.%d.mlp.c_fc.bias"},
	{DT_W_DOWN, "layers.%d.mlp.c_proj.weight"},
	{DT_W_DOWN_B, "layers.%d.mlp.c_proj.bias"},
	{DT_W_FINAL_NORM_B, "norm.bias"},
	{0},
};

const struct dt_family dt_family_starcoder2 = {
	.type = "starcoder2",
	.class = "Starcoder2ForCausalLM",
	.arch = "starcoder2",
	.prefix = "model.",
	.hf_vocab = 49152,
	.hf = {hf, dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
