/* Qwen3 (Yang et al. 2025): norms on each head of q and k; also its mixture of experts. */
#include "model/family/family.h"

/* all: a window is one of all layers. */
static int read_decoder(const json_t *o, bool all, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->qk_norm = true;
	if (!json_object_get(o, "sliding_window"))
		c->window = 4096; /* the classes' default; an explicit null means none */
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_hf_rope(o, c, err)) < 0)
		return rc;
	return dt_hf_window(o, c, false, all, err);
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	c->head_dim = 128;
	return read_decoder(o, false, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	if (c->window)
		dt_hf_write_window(c, o);
	return o;
}

/*
 * transformers 4 writes num_experts, transformers 5 num_local_experts. Unlike that of dense models, the class
 * has no default for head_dim, and windows in all layers, whatever max_window_layers says.
 */
static int moe_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *dense = json_object_get(o, "mlp_only_layers");
	bool scaled = false, old = json_object_get(o, "num_experts");
	int64_t step = 1;
	int rc;

	if ((rc = read_decoder(o, true, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_local_experts", !old, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts", false, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", true, &c->experts_used, err)) < 0 ||
	    (rc = dt_hf_size(o, "moe_intermediate_size", true, &c->expert_ffn, err)) < 0 ||
	    (rc = dt_json_bool(o, "norm_topk_prob", false, &scaled, err)) < 0 ||
	    (rc = dt_hf_size(o, "decoder_sparse_step", false, &step, err)) < 0)
		return rc;
	if (step != 1 || json_array_size(dense) > 0)
		return dt_err_set(err, -EINVAL, "experts in only some of the layers are not supported");
	c->router_unscaled = !scaled;
	return 0;
}

static json_t *moe_to_hf(const struct dt_config *c)
{
	json_t *o = to_hf(c);

	json_object_set_new(o, "num_experts", json_integer(c->experts));
	json_object_set_new(o, "num_experts_per_tok", json_integer(c->experts_used));
	json_object_set_new(o, "moe_intermediate_size", json_integer(c->expert_ffn));
	json_object_set_new(o, "norm_topk_prob", json_boolean(!c->router_unscaled));
	return o;
}

static int moe_from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	if ((rc = dt_gguf_experts(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "expert_feed_forward_length", true, &c->expert_ffn, err)) < 0)
		return rc;
	return dt_gguf_decoder(k, c, err);
}

const struct dt_family dt_family_qwen3 = {
	.type = "qwen3",
	.class = "Qwen3ForCausalLM",
	.arch = "qwen3",
	.prefix = "model.",
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = dt_gguf_decoder,
	.build = dt_build_decoder,
};

const struct dt_family dt_family_qwen3_moe = {
	.type = "qwen3_moe",
	.class = "Qwen3MoeForCausalLM",
	.arch = "qwen3moe",
	.prefix = "model.",
	.gguf_expert_width = true,
	.hf = {dt_names_experts, dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = moe_from_hf,
	.to_hf = moe_to_hf,
	.from_gguf = moe_from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
