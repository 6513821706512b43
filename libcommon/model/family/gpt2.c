/*
 * GPT-2 (Radford et al. 2019): LayerNorm, learned positions, biases everywhere. Files have q, k and v in one
 * tensor; Hugging Face's store linears transposed (Conv1D).
 */
#include "model/family/family.h"

#include <string.h>

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->norm = DT_NORM_LAYER;
	c->norm_eps = 1e-5;
	c->pos = DT_POS_LEARNED;
	c->act = DT_ACT_GELU_TANH;
	c->tied = c->qkv_bias = c->out_bias = c->mlp_bias = true;
	c->max_seq = 1024;
	c->bos = c->eos = 50256;
	if ((rc = dt_hf_size(o, "n_embd", true, &c->hidden, err)) < 0 ||
	    (rc = dt_hf_size(o, "n_layer", true, &c->layers, err)) < 0 ||
	    (rc = dt_hf_size(o, "n_head", true, &c->heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "n_ctx", false, &c->max_seq, err)) < 0 ||
	    (rc = dt_hf_size(o, "n_positions", false, &c->max_seq, err)) < 0)
		return rc;
	c->ffn = 4 * c->hidden;
	c->kv_heads = c->heads;
	if ((rc = dt_hf_size(o, "n_inner", false, &c->ffn, err)) < 0 ||
	    (rc = dt_json_real(o, "layer_norm_epsilon", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_hf_act(o, "activation_function", &c->act, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "scale_attn_weights", false, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "scale_attn_by_inverse_layer_idx", true, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "add_cross_attention", true, err)) < 0)
		return rc;
	if (c->hidden % c->heads)
		return dt_err_set(err, -EINVAL, "'n_embd' (%lld) is not a multiple of 'n_head' (%lld)",
				  (long long)c->hidden, (long long)c->heads);
	c->head_dim = c->hidden / c->heads;
	return 0;
}

static json_t *to_hf(const struct dt_config *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "n_embd", (json_int_t)c->hidden,
			 "n_inner", (json_int_t)c->ffn, "n_layer", (json_int_t)c->layers, "n_head",
			 (json_int_t)c->heads, "n_positions", (json_int_t)c->max_seq, "n_ctx",
			 (json_int_t)c->max_seq, "layer_norm_epsilon", c->norm_eps, "activation_function",
			 dt_hf_act_name(c->act));
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->norm = DT_NORM_LAYER;
	c->pos = DT_POS_LEARNED;
	c->act = DT_ACT_GELU_TANH;
	c->kv_heads = c->heads;
	c->head_dim = c->hidden / c->heads;
	rc = dt_gguf_key_real(k, "attention.layer_norm_epsilon", true, &c->norm_eps, err);
	return rc < 0 ? rc : 0;
}

static bool is_buffer(const struct dt_config *c, const char *name)
{
	const char *last = strstr(name, ".attn.");

	return !strncmp(name, "h.", 2) && last &&
	       (!strcmp(last, ".attn.bias") || !strcmp(last, ".attn.masked_bias"));
}

static const struct dt_tensor_name hf[] = {
	{DT_W_EMBED, "wte.weight"},
	{DT_W_POS, "wpe.weight"},
	{DT_W_ATTN_NORM, "h.%d.ln_1.weight"},
	{DT_W_ATTN_NORM_B, "h.%d.ln_1.bias"},
	{DT_W_Q, "h.%d.attn.c_attn.weight", DT_JOINED_QKV, true},
	{DT_W_K, "h.%d.attn.c_attn.weight", DT_JOINED_QKV, true},
	{DT_W_V, "h.%d.attn.c_attn.weight", DT_JOINED_QKV, true},
	{DT_W_Q_B, "h.%d.attn.c_attn.bias", DT_JOINED_QKV},
	{DT_W_K_B, "h.%d.attn.c_attn.bias", DT_JOINED_QKV},
	{DT_W_V_B, "h.%d.attn.c_attn.bias", DT_JOINED_QKV},
	{DT_W_O, "h.%d.attn.c_proj.weight", .transposed = true},
	{DT_W_O_B, "h.%d.attn.c_proj.bias"},
	{DT_W_MLP_NORM, "h.%d.ln_2.weight"},
	{DT_W_MLP_NORM_B, "h.%d.ln_2.bias"},
	{DT_W_UP, "h.%d.mlp.c_fc.weight", .transposed = true},
	{DT_W_UP_B, "h.%d.mlp.c_fc.bias"},
	{DT_W_DOWN, "h.%d.mlp.c_proj.weight", .transposed = true},
	{DT_W_DOWN_B, "h.%d.mlp.c_proj.bias"},
	{DT_W_FINAL_NORM, "ln_f.weight"},
	{DT_W_FINAL_NORM_B, "ln_f.bias"},
	{DT_W_HEAD, "lm_head.weight"},
	{0},
};

const struct dt_family dt_family_gpt2 = {
	.type = "gpt2",
	.class = "GPT2LMHeadModel",
	.arch = "gpt2",
	.prefix = "transformer.",
	.hf = {hf},
	.gguf = {dt_names_gguf_qkv, dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.is_buffer = is_buffer,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
