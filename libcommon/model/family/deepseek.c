/*
 * DeepSeek-V2 and V3 (2024): latent attention, experts that every token goes through beside those it is
 * sent to. Counted and planned, not run. The extra module that predicts a second token is not counted.
 */
#include "model/family/family.h"

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int64_t nope = 128, shared = 0, step = 1;
	bool scaled = !c->router_unscaled;
	const json_t *scaling;
	const char *type;
	int rc;

	c->rope_dim = 64;
	c->v_dim = 128;
	c->kv_heads = DT_HF_AS_HEADS;
	c->head_dim = nope + c->rope_dim; /* not hidden / heads; made anew below */
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_hf_rope_base(o, c, &scaling, &type, err)) < 0 || /* only sizes follow from the rest */
	    (rc = dt_hf_size(o, "kv_lora_rank", true, &c->kv_rank, err)) < 0 ||
	    (rc = dt_hf_size(o, "q_lora_rank", false, &c->q_rank, err)) < 0 ||
	    (rc = dt_hf_size(o, "qk_nope_head_dim", false, &nope, err)) < 0 ||
	    (rc = dt_hf_size(o, "qk_rope_head_dim", false, &c->rope_dim, err)) < 0 ||
	    (rc = dt_hf_size(o, "v_head_dim", false, &c->v_dim, err)) < 0 ||
	    (rc = dt_hf_size(o, "n_routed_experts", true, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", true, &c->experts_used, err)) < 0 ||
	    (rc = dt_hf_size(o, "moe_intermediate_size", true, &c->expert_ffn, err)) < 0 ||
	    (rc = dt_json_int(o, "n_shared_experts", false, 0, 64, &shared, err)) < 0 ||
	    (rc = dt_json_int(o, "first_k_dense_replace", false, 0, DT_HF_MOST, &c->dense_layers, err)) < 0 ||
	    (rc = dt_json_bool(o, "norm_topk_prob", false, &scaled, err)) < 0 ||
	    (rc = dt_json_real(o, "routed_scaling_factor", false, &c->router_scale, err)) < 0 ||
	    (rc = dt_hf_size(o, "moe_layer_freq", false, &step, err)) < 0)
		return rc;
	c->router_unscaled = !scaled;
	if (step != 1)
		return dt_err_set(err, -EINVAL, "experts in only some of the layers are not supported");
	c->head_dim = nope + c->rope_dim;
	c->kv_heads = c->heads;
	c->shared_ffn = shared * c->expert_ffn;
	return 0;
}

static int v3_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	c->router_bias = true;
	return from_hf(o, c, err);
}

const struct dt_family dt_family_deepseek_v2 = {
	.type = "deepseek_v2",
	.prefix = "model.",
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.build = dt_build_decoder,
};

const struct dt_family dt_family_deepseek_v3 = {
	.type = "deepseek_v3",
	.prefix = "model.",
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = v3_from_hf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
