/*
 * DeepSeek-V2 and V3 (2024): latent attention, and shared experts beside the routed ones; V3 with the module
 * for multi-token prediction (block/mtp.c).
 */
#include "model/family/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* YaRN also scales the attention scores here (mscale_all_dim; DeepSeek's modelling code). */
static int read_rope(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool adjacent = true;
	const json_t *s;
	const char *type;
	double all = 0;
	int rc = dt_json_bool(o, "rope_interleave", false, &adjacent, err);

	c->rope_pairing = adjacent ? DT_ROPE_ADJACENT : DT_ROPE_HALF;
	if (rc < 0 || (rc = dt_hf_rope(o, c, err)) < 0 || c->rope_scaling != DT_ROPE_SCALING_YARN)
		return rc;
	if ((rc = dt_hf_rope_base(o, c, &s, &type, err)) < 0 ||
	    (rc = dt_json_real(s, "mscale_all_dim", false, &all, err)) < 0)
		return rc;
	c->score_mscale = all > 0 ? dt_rope_yarn_mscale(c->rope_factor, all) : 0;
	return 0;
}

/* Which groups of experts count. */
static int read_router(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const char *method = json_string_value(json_object_get(o, "topk_method"));
	int64_t step = 1;
	int rc;

	if ((rc = dt_hf_router(o, c->router_sigmoid ? 1 : 2, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "moe_layer_freq", false, &step, err)) < 0)
		return rc;
	if (step != 1)
		return dt_err_set(err, -EINVAL, "experts in only some of the layers are not supported");
	/* the default of V2's class is greedy */
	if (method ? !strcmp(method, "greedy") : !c->router_sigmoid)
		c->router_groups = c->router_groups_used = 0;
	return 0;
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int64_t nope = 128;
	int rc;

	/* Defaults of both classes; an explicit null means none. */
	if (!json_object_get(o, "q_lora_rank"))
		c->q_rank = 1536;
	c->rope_dim = 64;
	c->v_dim = 128;
	c->kv_heads = DT_HF_AS_HEADS;
	c->head_dim = nope + c->rope_dim; /* not hidden / heads; set again below */
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_refuse(o, "attention_bias", true, err)) < 0 ||
	    (rc = read_rope(o, c, err)) < 0 || (rc = read_router(o, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "kv_lora_rank", true, &c->kv_rank, err)) < 0 ||
	    (rc = dt_hf_size(o, "q_lora_rank", false, &c->q_rank, err)) < 0 ||
	    (rc = dt_hf_size(o, "qk_nope_head_dim", false, &nope, err)) < 0 ||
	    (rc = dt_hf_size(o, "qk_rope_head_dim", false, &c->rope_dim, err)) < 0 ||
	    (rc = dt_hf_size(o, "v_head_dim", false, &c->v_dim, err)) < 0)
		return rc;
	c->head_dim = nope + c->rope_dim;
	c->kv_heads = c->heads;
	return 0;
}

/*
 * Router weights are not normalised, by the class's default. norm_topk_prob true normalises them before
 * routed_scaling_factor, as in vLLM; transformers ignores the key in V2, and obeys it in V3.
 */
static int v2_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	c->router_unscaled = true;
	return from_hf(o, c, err);
}

static int v3_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	c->router_bias = c->router_sigmoid = true;
	/* Defaults of the class. */
	c->dense_layers = 3;
	c->router_scale = 2.5;
	if (!json_object_get(o, "n_group"))
		c->router_groups = 8;
	if (!json_object_get(o, "topk_group"))
		c->router_groups_used = 4;
	return from_hf(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c), *scaling = json_object_get(o, "rope_scaling");
	const char *method = c->router_bias	    ? "noaux_tc"
			     : c->router_groups > 1 ? "group_limited_greedy"
						    : "greedy";

	dt_hf_write_router(c, o);
	json_object_update_new(o, json_pack("{s:I, s:o, s:I, s:I, s:I, s:s, s:s, s:b}", "kv_lora_rank",
					    (json_int_t)c->kv_rank, "q_lora_rank",
					    c->q_rank ? json_integer(c->q_rank) : json_null(),
					    "qk_nope_head_dim", (json_int_t)(c->head_dim - c->rope_dim),
					    "qk_rope_head_dim", (json_int_t)c->rope_dim, "v_head_dim",
					    (json_int_t)c->v_dim, "topk_method", method, "scoring_func",
					    c->router_sigmoid ? "sigmoid" : "softmax", "rope_interleave",
					    c->rope_pairing == DT_ROPE_ADJACENT));
	json_object_set_new(o, "head_dim",
			    json_integer(c->rope_dim)); /* the class uses this key for the rotated part */
	if (c->mtp_layers)
		json_object_set_new(o, "num_nextn_predict_layers", json_integer(c->mtp_layers));
	if (json_is_object(scaling) && c->score_mscale > 1)
		json_object_set_new(scaling, "mscale_all_dim",
				    json_real((c->score_mscale - 1) / (0.1 * log(c->rope_factor))));
	return o;
}

static const struct dt_tensor_name hf[] = {
	{DT_W_Q_A, "layers.%d.self_attn.q_a_proj.weight"},
	{DT_W_Q_A_NORM, "layers.%d.self_attn.q_a_layernorm.weight"},
	{DT_W_Q_UP, "layers.%d.self_attn.q_b_proj.weight"},
	{DT_W_KV_A, "layers.%d.self_attn.kv_a_proj_with_mqa.weight"},
	{DT_W_KV_A_NORM, "layers.%d.self_attn.kv_a_layernorm.weight"},
	{DT_W_KV_B, "layers.%d.self_attn.kv_b_proj.weight"},
	{0},
};

static const struct dt_tensor_name gguf[] = {
	{DT_W_Q_A, "blk.%d.attn_q_a.weight"},
	{DT_W_Q_A_NORM, "blk.%d.attn_q_a_norm.weight"},
	{DT_W_Q_UP, "blk.%d.attn_q_b.weight"},
	{DT_W_KV_A, "blk.%d.attn_kv_a_mqa.weight"},
	{DT_W_KV_A_NORM, "blk.%d.attn_kv_a_norm.weight"},
	{DT_W_KV_B, "blk.%d.attn_kv_b.weight"},
	{0},
};

/* GGUF files of both families say deepseek2; V3's have router biases and sigmoid scores. */
static int router_from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int64_t gating = 1;
	int rc = dt_gguf_router(k, c, &gating, err);

	if (rc < 0)
		return rc;
	if (gating > 2 || c->router_bias != c->router_sigmoid)
		return dt_err_set(
			err, -ENOTSUP,
			"architecture 'deepseek2' with expert_gating_func %lld and %s biases of the "
			"router is neither DeepSeek-V2 nor V3",
			(long long)gating, c->router_bias ? "with" : "without");
	if (c->router_sigmoid)
		snprintf(c->family, sizeof(c->family), "%s", dt_family_deepseek_v3.type);
	return 0;
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	double stretch = 0;
	int rc;

	if (dt_gguf_find_tensor(k->g, "blk.0.attn_k_b.weight"))
		return dt_err_set(
			err, -ENOTSUP,
			"'blk.0.attn_k_b.weight': files that cut attn_kv_b in two are not supported");
	c->rope_pairing = DT_ROPE_ADJACENT;
	if ((rc = dt_gguf_leave_modules(k, c, err)) < 0 || (rc = router_from_gguf(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.kv_lora_rank", true, &c->kv_rank, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.q_lora_rank", false, &c->q_rank, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.value_length", true, &c->v_dim, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "rope.dimension_count", true, &c->rope_dim, err)) < 0 ||
	    (rc = dt_gguf_decoder(k, c, err)) < 0)
		return rc;
	if (c->rope_scaling != DT_ROPE_SCALING_YARN)
		return 0;
	/* mscale is assumed to equal mscale_all_dim, so that cos and sin are not scaled. */
	rc = dt_gguf_key_real(k, "rope.scaling.yarn_log_multiplier", false, &stretch, err);
	if (rc < 0 || !(stretch > 0))
		return rc < 0 ? rc : 0;
	c->rope_mscale = 1;
	/* the file's value includes a factor 0.1 */
	c->score_mscale = dt_rope_yarn_mscale(c->rope_factor, 10 * stretch);
	return 0;
}

/* Common to both. */
#define BOTH                                                                                                 \
	.arch = "deepseek2", .gguf_adjacent = true, .gguf_expert_width = true, .prefix = "model.",           \
	.hf = {hf, dt_names_shared, dt_names_experts, dt_names_mtp, dt_names_llama},                         \
	.gguf = {gguf, dt_names_gguf_shared, dt_names_gguf_mtp, dt_names_gguf}, .to_hf = to_hf,              \
	.build = dt_build_decoder

const struct dt_family dt_family_deepseek_v2 = {
	.type = "deepseek_v2",
	.class = "DeepseekV2ForCausalLM",
	.from_hf = v2_from_hf,
	.from_gguf = from_gguf,
	BOTH,
};

const struct dt_family dt_family_deepseek_v3 = {
	.type = "deepseek_v3",
	.class = "DeepseekV3ForCausalLM",
	.mtp = true,
	.from_hf = v3_from_hf,
	BOTH,
};
/* SPDX-License-Identifier: Apache-2.0 */
