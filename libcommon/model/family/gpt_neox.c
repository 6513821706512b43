/*
 * GPT-NeoX (Black et al. 2022) and Pythia (Biderman et al. 2023): LayerNorm, biases, the first part of each
 * head rotated, and attention and MLP that read the same residual stream, each behind its own norm. Files
 * have q, k and v of one head after those of another in one tensor; GGUF files all of q, of k and of v.
 */
#include "model/family/family.h"

#include <string.h>

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	double part = 0.25;
	int rc;

	/* Defaults of the class. */
	c->norm = DT_NORM_LAYER;
	c->norm_eps = 1e-5;
	c->pos = DT_POS_ROPE;
	c->act = DT_ACT_GELU_ERF;
	c->mlp_bias = c->parallel_residual = true;
	c->qkv_bias = true;
	c->hidden = 6144;
	c->layers = 44;
	c->heads = 64;
	c->ffn = 24576;
	c->max_seq = 2048;
	c->bos = 0;
	c->eos = 2;
	if ((rc = dt_hf_size(o, "hidden_size", false, &c->hidden, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_hidden_layers", false, &c->layers, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_attention_heads", false, &c->heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "intermediate_size", false, &c->ffn, err)) < 0 ||
	    (rc = dt_hf_size(o, "max_position_embeddings", false, &c->max_seq, err)) < 0 ||
	    (rc = dt_json_real(o, "layer_norm_eps", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0 ||
	    (rc = dt_json_bool(o, "use_parallel_residual", false, &c->parallel_residual, err)) < 0 ||
	    (rc = dt_json_bool(o, "attention_bias", false, &c->qkv_bias, err)) < 0 ||
	    (rc = dt_json_real(o, "rotary_emb_base", false, &c->rope_theta, err)) < 0 ||
	    (rc = dt_json_real(o, "rotary_pct", false, &part, err)) < 0 ||
	    (rc = dt_hf_even_heads(c, err)) < 0)
		return rc;
	c->out_bias = c->qkv_bias;
	c->kv_heads = c->heads;
	rc = dt_hf_rope_part(o, part, c, err);
	return rc < 0 ? rc : dt_hf_rope(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:b, s:f, s:f, s:o}", "hidden_size",
			 (json_int_t)c->hidden, "intermediate_size", (json_int_t)c->ffn, "num_hidden_layers",
			 (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads,
			 "max_position_embeddings", (json_int_t)c->max_seq, "layer_norm_eps", c->norm_eps,
			 "hidden_act", dt_hf_act_name(c->act), "attention_bias", c->qkv_bias,
			 "use_parallel_residual", c->parallel_residual, "rotary_pct", dt_hf_part(c),
			 "rotary_emb_base", dt_rope_base(c), "rope_scaling", dt_hf_rope_scaling(c));
}

/* Files state a kind of GELU only if it is not the exact one. */
static int read_act(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	const char *s;
	size_t n;
	json_t *o;
	int rc = dt_gguf_str(k->g, dt_gguf_key(k, "hidden_activation"), false, &s, &n, err);

	if (rc <= 0)
		return rc;
	o = json_pack("{s:s%}", k->key, s, n);
	rc = dt_hf_act(o, k->key, &c->act, err);
	json_decref(o);
	return rc;
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->norm = DT_NORM_LAYER;
	c->act = DT_ACT_GELU_ERF;
	if ((rc = read_act(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "attention.layer_norm_epsilon", true, &c->norm_eps, err)) < 0 ||
	    (rc = dt_gguf_bool(k->g, dt_gguf_key(k, "use_parallel_residual"), &c->parallel_residual, err)) <
		    0)
		return rc;
	rc = dt_gguf_attention(k, c, err);
	c->rope_dim = dt_rope_dim(c);
	return rc;
}

static bool is_buffer(const struct dt_config *c, const char *name)
{
	const char *last = strstr(name, ".attention.");

	return !strncmp(name, "layers.", 7) && last &&
	       (!strcmp(last, ".attention.bias") || !strcmp(last, ".attention.masked_bias"));
}

static const struct dt_tensor_name hf[] = {
	{DT_W_EMBED, "embed_in.weight"},
	{DT_W_ATTN_NORM, "layers.%d.input_layernorm.weight"},
	{DT_W_ATTN_NORM_B, "layers.%d.input_layernorm.bias"},
	{DT_W_Q, "layers.%d.attention.query_key_value.weight", DT_JOINED_HEADS},
	{DT_W_K, "layers.%d.attention.query_key_value.weight", DT_JOINED_HEADS},
	{DT_W_V, "layers.%d.attention.query_key_value.weight", DT_JOINED_HEADS},
	{DT_W_Q_B, "layers.%d.attention.query_key_value.bias", DT_JOINED_HEADS},
	{DT_W_K_B, "layers.%d.attention.query_key_value.bias", DT_JOINED_HEADS},
	{DT_W_V_B, "layers.%d.attention.query_key_value.bias", DT_JOINED_HEADS},
	{DT_W_O, "layers.%d.attention.dense.weight"},
	{DT_W_O_B, "layers.%d.attention.dense.bias"},
	{DT_W_MLP_NORM, "layers.%d.post_attention_layernorm.weight"},
	{DT_W_MLP_NORM_B, "layers.%d.post_attention_layernorm.bias"},
	{DT_W_UP, "layers.%d.mlp.dense_h_to_4h.weight"},
	{DT_W_UP_B, "layers.%d.mlp.dense_h_to_4h.bias"},
	{DT_W_DOWN, "layers.%d.mlp.dense_4h_to_h.weight"},
	{DT_W_DOWN_B, "layers.%d.mlp.dense_4h_to_h.bias"},
	{DT_W_FINAL_NORM, "final_layer_norm.weight"},
	{DT_W_FINAL_NORM_B, "final_layer_norm.bias"},
	{DT_W_HEAD, "lm_head.weight"},
	{0},
};

const struct dt_family dt_family_gpt_neox = {
	.type = "gpt_neox",
	.class = "GPTNeoXForCausalLM",
	.arch = "gptneox",
	.prefix = "gpt_neox.",
	.head = "embed_out.weight",
	.hf_vocab = 50432,
	.gguf_parallel = true,
	.hf = {hf},
	.gguf = {dt_names_gguf_qkv, dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.is_buffer = is_buffer,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
