/* Routers of DeepSeek-V2 and of the families whose files have its keys: groups, and shared experts. */
#include "model/family/family.h"

#include <stdio.h>

int dt_hf_router(const json_t *o, int64_t shared, struct dt_config *c, struct dt_err *err)
{
	bool scaled = !c->router_unscaled;
	int rc;

	if (json_is_null(json_object_get(o, "n_shared_experts")))
		shared = 0;
	if ((rc = dt_hf_size(o, "n_routed_experts", !c->experts, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", !c->experts_used, &c->experts_used, err)) < 0 ||
	    (rc = dt_hf_size(o, "moe_intermediate_size", !c->expert_ffn, &c->expert_ffn, err)) < 0 ||
	    (rc = dt_json_int(o, "first_k_dense_replace", false, 0, DT_HF_MOST, &c->dense_layers, err)) < 0 ||
	    (rc = dt_json_bool(o, "norm_topk_prob", false, &scaled, err)) < 0 ||
	    (rc = dt_json_real(o, "routed_scaling_factor", false, &c->router_scale, err)) < 0 ||
	    (rc = dt_hf_size(o, "n_group", false, &c->router_groups, err)) < 0 ||
	    (rc = dt_hf_size(o, "topk_group", false, &c->router_groups_used, err)) < 0 ||
	    (rc = dt_json_int(o, "n_shared_experts", false, 0, 64, &shared, err)) < 0)
		return rc;
	if (c->router_groups < 2)
		c->router_groups = c->router_groups_used = 0;
	c->router_unscaled = !scaled;
	c->shared_ffn = shared * c->expert_ffn;
	return 0;
}

void dt_hf_write_router(const struct dt_config *c, json_t *o)
{
	const bool grouped = c->router_groups;

	json_object_update_new(o, json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:I, s:I}",
					    "n_routed_experts", (json_int_t)c->experts, "n_shared_experts",
					    (json_int_t)(c->expert_ffn ? c->shared_ffn / c->expert_ffn : 0),
					    "num_experts_per_tok", (json_int_t)c->experts_used,
					    "moe_intermediate_size", (json_int_t)c->expert_ffn,
					    "first_k_dense_replace", (json_int_t)c->dense_layers,
					    "norm_topk_prob", !c->router_unscaled, "routed_scaling_factor",
					    c->router_scale > 0 ? c->router_scale : 1, "n_group",
					    grouped ? (json_int_t)c->router_groups : 1, "topk_group",
					    grouped ? (json_int_t)c->router_groups_used : 1));
}

int dt_gguf_router(struct dt_gguf_keys *k, struct dt_config *c, int64_t *gating, struct dt_err *err)
{
	int64_t shared = 0;
	bool scaled = false;
	char bias[40];
	int rc;

	if ((rc = dt_gguf_experts(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "expert_feed_forward_length", true, &c->expert_ffn, err)) < 0 ||
	    (rc = dt_gguf_int(k->g, dt_gguf_key(k, "leading_dense_block_count"), false, 0, DT_HF_MOST,
			      &c->dense_layers, err)) < 0 ||
	    (rc = dt_gguf_int(k->g, dt_gguf_key(k, "expert_shared_count"), false, 0, 64, &shared, err)) < 0 ||
	    (rc = dt_gguf_int(k->g, dt_gguf_key(k, "expert_gating_func"), false, 0, 8, gating, err)) < 0 ||
	    (rc = dt_gguf_bool(k->g, dt_gguf_key(k, "expert_weights_norm"), &scaled, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "expert_weights_scale", false, &c->router_scale, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "expert_group_count", false, &c->router_groups, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "expert_group_used_count", false, &c->router_groups_used, err)) < 0)
		return rc;
	snprintf(bias, sizeof(bias), "blk.%lld.exp_probs_b.bias", (long long)c->dense_layers);
	c->router_bias = dt_gguf_find_tensor(k->g, bias);
	c->router_sigmoid = *gating == 2;
	c->router_unscaled = !scaled;
	c->shared_ffn = shared * c->expert_ffn;
	if (c->router_groups < 2)
		c->router_groups = c->router_groups_used = 0;
	return 0;
}

int dt_gguf_sigmoid_router(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int64_t gating = 2;
	int rc = dt_gguf_router(k, c, &gating, err);

	if (rc < 0 || gating == 2)
		return rc;
	return dt_err_set(err, -ENOTSUP, "architecture '%s' with expert_gating_func %lld is not supported",
			  k->arch, (long long)gating);
}
/* SPDX-License-Identifier: Apache-2.0 */
