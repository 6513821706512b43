/*
 * gpt-oss (OpenAI 2025): experts in every layer, whose gates are clamped (kernels/activation.h); biases
 * everywhere; a window in every second layer, from the first; attention sinks.
 */
#include "model/family/family.h"

static void defaults(struct dt_config *c)
{
	c->act = DT_ACT_SILU_CLAMPED;
	c->attn_sinks = c->expert_bias = c->qkv_bias = c->out_bias = true;
	c->global_every = 2;
}

/* The constants of the clamped activation, which newer files state. */
static int read_clamp(const json_t *o, struct dt_err *err)
{
	double alpha = (double)DT_ACT_ALPHA, limit = (double)DT_ACT_LIMIT;
	int rc;

	if ((rc = dt_json_real(o, "swiglu_alpha", false, &alpha, err)) < 0 ||
	    (rc = dt_json_real(o, "swiglu_limit", false, &limit, err)) < 0)
		return rc;
	if ((float)alpha != DT_ACT_ALPHA || (float)limit != DT_ACT_LIMIT)
		return dt_err_set(
			err, -ENOTSUP,
			"'swiglu_alpha' of %g and 'swiglu_limit' of %g are not supported, only 1.702 "
			"and 7",
			alpha, limit);
	return 0;
}

static void default_rope(struct dt_config *c)
{
	c->rope_scaling = DT_ROPE_SCALING_YARN;
	c->rope_factor = 32;
	c->rope_beta_fast = 32;
	c->rope_beta_slow = 1;
	c->rope_original_seq = 4096;
	c->rope_untruncated = true;
	c->rope_mscale = dt_rope_yarn_mscale(c->rope_factor, 1);
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *scaling = json_object_get(o, "rope_scaling"),
		     *rope = json_object_get(o, "rope_parameters");
	int rc;

	/* Defaults of the class. */
	c->hidden = c->ffn = 2880;
	c->layers = 36;
	c->heads = 64;
	c->kv_heads = 8;
	c->head_dim = 64;
	c->max_seq = 131072;
	c->norm_eps = 1e-5;
	c->rope_theta = 150000;
	c->experts = 128;
	c->experts_used = 4;
	c->window = 128;
	if ((rc = dt_hf_decoder(o, c, err)) < 0)
		return rc;
	if (c->act != DT_ACT_SILU)
		return dt_err_set(err, -ENOTSUP, "'hidden_act' other than silu is not supported here");
	defaults(c);
	if ((rc = dt_hf_refuse(o, "attention_bias", false, err)) < 0 || (rc = dt_hf_rope(o, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_local_experts", false, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", false, &c->experts_used, err)) < 0 ||
	    (rc = dt_hf_size(o, "sliding_window", false, &c->window, err)) < 0 ||
	    (rc = read_clamp(o, err)) < 0)
		return rc;
	if (!scaling && !rope)
		default_rope(c);
	c->expert_ffn = c->ffn;
	return dt_hf_period(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_set_new(o, "num_local_experts", json_integer(c->experts));
	json_object_set_new(o, "num_experts_per_tok", json_integer(c->experts_used));
	json_object_set_new(o, "swiglu_limit", json_real((double)DT_ACT_LIMIT));
	dt_hf_write_period(c, o);
	return o;
}

/* GGUF files cannot say that YaRN's blend does not end at whole pairs, and omit the period of the window. */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	defaults(c);
	if ((rc = dt_gguf_experts(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "expert_feed_forward_length", true, &c->expert_ffn, err)) < 0 ||
	    (rc = dt_gguf_decoder(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.sliding_window_pattern", false, &c->global_every, err)) < 0)
		return rc;
	c->rope_untruncated = c->rope_scaling == DT_ROPE_SCALING_YARN;
	return 0;
}

static const struct dt_tensor_name hf[] = {
	{DT_W_SINKS, "layers.%d.self_attn.sinks"},
	{DT_W_ROUTER, "layers.%d.mlp.router.weight"},
	{DT_W_ROUTER_SCORE_B, "layers.%d.mlp.router.bias"},
	{DT_W_EXPERT_GATE, "layers.%d.mlp.experts.gate_up_proj", DT_JOINED_IN_TURNS, true, true},
	{DT_W_EXPERT_UP, "layers.%d.mlp.experts.gate_up_proj", DT_JOINED_IN_TURNS, true, true},
	{DT_W_EXPERT_GATE_B, "layers.%d.mlp.experts.gate_up_proj_bias", DT_JOINED_IN_TURNS, false, true},
	{DT_W_EXPERT_UP_B, "layers.%d.mlp.experts.gate_up_proj_bias", DT_JOINED_IN_TURNS, false, true},
	{DT_W_EXPERT_DOWN, "layers.%d.mlp.experts.down_proj", DT_JOINED_NONE, true, true},
	{DT_W_EXPERT_DOWN_B, "layers.%d.mlp.experts.down_proj_bias", DT_JOINED_NONE, false, true},
	{0},
};

static const struct dt_tensor_name gguf[] = {
	{DT_W_SINKS, "blk.%d.attn_sinks.weight"},
	{DT_W_MLP_NORM, "blk.%d.post_attention_norm.weight"},
	{DT_W_ROUTER_SCORE_B, "blk.%d.ffn_gate_inp.bias"},
	{DT_W_EXPERT_GATE_B, "blk.%d.ffn_gate_exps.bias"},
	{DT_W_EXPERT_UP_B, "blk.%d.ffn_up_exps.bias"},
	{DT_W_EXPERT_DOWN_B, "blk.%d.ffn_down_exps.bias"},
	{0},
};

const struct dt_family dt_family_gpt_oss = {
	.type = "gpt_oss",
	.class = "GptOssForCausalLM",
	.arch = "gpt-oss",
	.prefix = "model.",
	.hf_vocab = 201088,
	.gguf_expert_width = true,
	.hf = {hf, dt_names_llama},
	.gguf = {gguf, dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
