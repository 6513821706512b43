/*
 * OLMoE (Muennighoff et al. 2024): norms of q and k over the whole projection, and experts in every layer.
 * Router weights are the softmax over all experts, not renormalised to sum to 1.
 */
#include "model/family/family.h"

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool scaled = false;
	int rc;

	/* Defaults of the class. */
	c->norm_eps = 1e-5;
	c->max_seq = 4096;
	c->eos = 50279;
	c->kv_heads = DT_HF_AS_HEADS;
	c->qk_norm = c->qk_norm_whole = true;
	c->experts = 64;
	c->experts_used = 8;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_hf_rope(o, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts", false, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_local_experts", false, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", false, &c->experts_used, err)) < 0 ||
	    (rc = dt_json_bool(o, "norm_topk_prob", false, &scaled, err)) < 0)
		return rc;
	if (json_is_number(json_object_get(o, "clip_qkv")))
		return dt_err_set(err, -EINVAL, "clipping q, k and v ('clip_qkv') is not supported");
	c->expert_ffn = c->ffn;
	c->router_unscaled = !scaled;
	return 0;
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	/* The class's default may be outside the vocabulary. */
	json_object_set_new(o, "pad_token_id", json_null());
	json_object_set_new(o, "num_experts", json_integer(c->experts));
	json_object_set_new(o, "num_experts_per_tok", json_integer(c->experts_used));
	json_object_set_new(o, "norm_topk_prob", json_boolean(!c->router_unscaled));
	return o;
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->qk_norm = c->qk_norm_whole = c->router_unscaled = true;
	if ((rc = dt_gguf_experts(k, c, err)) < 0 || (rc = dt_gguf_decoder(k, c, err)) < 0)
		return rc;
	c->expert_ffn = c->ffn;
	return 0;
}

const struct dt_family dt_family_olmoe = {
	.type = "olmoe",
	.class = "OlmoeForCausalLM",
	.arch = "olmoe",
	.prefix = "model.",
	.hf_vocab = 50304,
	.hf = {dt_names_experts, dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
