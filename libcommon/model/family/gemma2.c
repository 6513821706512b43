/*
 * Gemma 2 (2024): every second layer has a sliding window; tanh softcaps on scores and logits; norms by 1 +
 * weight, also after attention and MLP.
 */
#include "model/family/family.h"

void dt_gemma_defaults(struct dt_config *c)
{
	c->bos = 2;
	c->eos = 1;
	c->heads = 8;
	c->kv_heads = 4;
	c->head_dim = 256;
	c->act = DT_ACT_GELU_TANH;
	c->tied = true;
	c->window = 4096;
	c->score_dim = 256;
	c->post_norms = c->embed_scaled = c->norm_plus_one = true;
}

json_t *dt_gemma_to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_set_new(
		o, "hidden_activation",
		json_string(c->act == DT_ACT_GELU_TANH ? "gelu_pytorch_tanh" : dt_hf_act_name(c->act)));
	json_object_del(o, "hidden_act");
	json_object_set_new(o, "query_pre_attn_scalar",
			    json_integer(c->score_dim ? c->score_dim : c->head_dim));
	return o;
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	/* Defaults of the class. */
	dt_gemma_defaults(c);
	c->max_seq = 8192;
	c->global_every = 2;
	c->score_cap = 50;
	c->logit_cap = 30;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_hf_rope(o, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "query_pre_attn_scalar", false, &c->score_dim, err)) < 0 ||
	    (rc = dt_hf_cap(o, "attn_logit_softcapping", &c->score_cap, err)) < 0 ||
	    (rc = dt_hf_cap(o, "final_logit_softcapping", &c->logit_cap, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "use_bidirectional_attention", true, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_activation", &c->act, err)) < 0 ||
	    (rc = dt_hf_size(o, "sliding_window", false, &c->window, err)) < 0)
		return rc;
	if (c->score_dim == c->head_dim)
		c->score_dim = 0;
	return dt_hf_period(o, c, err);
}

static json_t *cap_or_null(double cap)
{
	return cap > 0 ? json_real(cap) : json_null();
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_gemma_to_hf(c);

	json_object_set_new(o, "attn_logit_softcapping", cap_or_null(c->score_cap));
	json_object_set_new(o, "final_logit_softcapping", cap_or_null(c->logit_cap));
	dt_hf_write_period(c, o);
	return o;
}

/*
 * GGUF files may omit the period of full-attention layers; readers then assume it. They assume that only the
 * largest model scales scores by its hidden size.
 */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->global_every = 2;
	c->act = DT_ACT_GELU_TANH;
	c->embed_scaled = c->post_norms = true;
	c->score_cap = 50;
	c->logit_cap = 30;
	if ((rc = dt_gguf_decoder(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.sliding_window_pattern", false, &c->global_every, err)) <
		    0 ||
	    (rc = dt_gguf_key_real(k, "attn_logit_softcapping", false, &c->score_cap, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "final_logit_softcapping", false, &c->logit_cap, err)) < 0)
		return rc;
	if (c->layers == 46 && c->hidden / c->heads != c->head_dim)
		c->score_dim = c->hidden / c->heads;
	return 0;
}

static const struct dt_tensor_name hf[] = {
	{DT_W_MLP_NORM, "layers.%d.pre_feedforward_layernorm.weight"},
	{0},
};

const struct dt_family dt_family_gemma2 = {
	.type = "gemma2",
	.class = "Gemma2ForCausalLM",
	.arch = "gemma2",
	.prefix = "model.",
	.hf_vocab = 256000,
	.hf_plus_one = true,
	.hf = {hf, dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
