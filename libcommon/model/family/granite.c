/*
 * Granite 3 and 4 (IBM 2024, 2025): Llama with factors of embeddings, scores, residuals and logits
 * (config.h); mixtures of experts with the same factors, without and with a shared expert; and both with
 * Mamba-2's mixer in place of attention in most layers.
 */
#include "model/family/family.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Factors of 1, and a factor of scores by the width of heads, are not stored. */
static void without_idle(struct dt_config *c)
{
	double *const v[] = {&c->embed_factor, &c->residual_factor, &c->logit_divisor};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		if (*v[i] == 1)
			*v[i] = 0;
	if (fabs(c->score_factor * sqrt((double)c->head_dim) - 1) < 1e-7)
		c->score_factor = 0;
}

static int read_factors(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const struct {
		const char *key;
		double *v;
	} keys[] = {{"embedding_multiplier", &c->embed_factor},
		    {"attention_multiplier", &c->score_factor},
		    {"residual_multiplier", &c->residual_factor},
		    {"logits_scaling", &c->logit_divisor}};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		int rc;

		*keys[i].v = 1;
		rc = dt_json_real(o, keys[i].key, false, keys[i].v, err);
		if (rc < 0)
			return rc;
		if (!(*keys[i].v > 0))
			return dt_err_set(err, -ENOTSUP, "'%s' of %g is not supported", keys[i].key,
					  *keys[i].v);
	}
	without_idle(c);
	return 0;
}

/* What all have but positions. */
static int read_sizes(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	/* Defaults of the class. */
	c->max_seq = 2048;
	c->heads = 32;
	c->kv_heads = DT_HF_AS_HEADS;
	c->bos = 1;
	c->eos = 2;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0)
		return rc;
	return read_factors(o, c, err);
}

static int read_decoder(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc = read_sizes(o, c, err);

	return rc < 0 ? rc : dt_hf_rope(o, c, err);
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc = read_decoder(o, c, err);

	return rc < 0 ? rc : dt_json_bool(o, "mlp_bias", false, &c->mlp_bias, err);
}

static int moe_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->experts = 8;
	c->experts_used = 2;
	if ((rc = read_decoder(o, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_local_experts", false, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", false, &c->experts_used, err)) < 0)
		return rc;
	c->expert_ffn = c->ffn;
	return 0;
}

static int shared_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc = moe_from_hf(o, c, err);

	return rc < 0 ? rc
		      : dt_json_int(o, "shared_intermediate_size", false, 0, DT_HF_MOST, &c->shared_ffn, err);
}

/* Layers have attention, or a mixer, under two names each; without the key all have a mixer. */
static int read_types(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	static const char *const names[] = {"mamba", "linear_attention", "attention", "full_attention"};
	const json_t *list = json_object_get(o, "layer_types"), *v;
	int64_t attend = 0;
	size_t i;

	if (!list || json_is_null(list))
		return dt_hf_mixers(o, c, err);
	if (json_array_size(list) != (size_t)c->layers)
		return dt_err_set(err, -EINVAL, "'layer_types' does not list every layer");
	json_array_foreach(list, i, v)
	{
		const char *s = json_is_string(v) ? json_string_value(v) : "";
		int k = 0;

		while (k < 4 && strcmp(s, names[k]))
			k++;
		if (k == 4 || (k >= 2 && i >= DT_LISTED_LAYERS))
			return dt_err_set(err, -ENOTSUP,
					  "'layer_types' of '%.40s' for layer %zu is not supported", s, i);
		attend += k >= 2;
		c->attn_layers[i / 64 % (DT_LISTED_LAYERS / 64)] |= (uint64_t)(k >= 2) << i % 64;
	}
	if (attend < c->layers)
		return dt_hf_mixers(o, c, err);
	memset(c->attn_layers, 0, sizeof(c->attn_layers));
	return 0;
}

static int hybrid_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const char *positions = NULL;
	int64_t shared = 1024;
	int rc;

	c->experts = 8;
	c->experts_used = 2;
	if ((rc = read_sizes(o, c, err)) < 0 ||
	    (rc = dt_json_int(o, "num_local_experts", false, 0, DT_HF_MOST, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "shared_intermediate_size", false, &shared, err)) < 0 ||
	    (rc = dt_json_str(o, "position_embedding_type", false, &positions, err)) < 0 ||
	    (rc = read_types(o, c, err)) < 0)
		return rc;
	if (!c->experts) { /* the shared expert is the MLP */
		c->experts_used = 0;
		c->ffn = shared;
	} else if ((rc = dt_hf_size(o, "num_experts_per_tok", false, &c->experts_used, err)) < 0) {
		return rc;
	} else {
		c->expert_ffn = c->ffn;
		c->shared_ffn = shared;
	}
	if (positions && !strcmp(positions, "rope") && dt_config_attends(c))
		return dt_hf_rope(o, c, err);
	c->pos = DT_POS_NONE; /* "nope" or null */
	c->rope_theta = 0;
	return 0;
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_set_new(o, "embedding_multiplier", json_real(dt_factor(c->embed_factor)));
	json_object_set_new(o, "attention_multiplier", json_real(dt_score_scale(c)));
	json_object_set_new(o, "residual_multiplier", json_real(dt_factor(c->residual_factor)));
	json_object_set_new(o, "logits_scaling", json_real(dt_factor(c->logit_divisor)));
	return o;
}

static json_t *moe_to_hf(const struct dt_config *c)
{
	json_t *o = to_hf(c);

	json_object_set_new(o, "num_local_experts", json_integer(c->experts));
	json_object_set_new(o, "num_experts_per_tok", json_integer(c->experts_used));
	if (c->shared_ffn)
		json_object_set_new(o, "shared_intermediate_size", json_integer(c->shared_ffn));
	return o;
}

static json_t *hybrid_to_hf(const struct dt_config *c)
{
	json_t *o = moe_to_hf(c), *types = json_array();
	/* where no layer has a mixer, readers want sizes that are possible all the same */
	struct dt_config m = {.hidden = c->hidden,
			      .ssm_heads = 1,
			      .ssm_head_dim = c->hidden,
			      .ssm_groups = 1,
			      .ssm_state = 1,
			      .ssm_kernel = 1};

	for (int64_t l = 0; l < c->layers; l++)
		json_array_append_new(types, json_string(dt_layer_is_ssm(c, l) ? "mamba" : "attention"));
	json_object_set_new(o, "layer_types", types);
	json_object_set_new(o, "shared_intermediate_size", json_integer(c->experts ? c->shared_ffn : c->ffn));
	json_object_set_new(o, "position_embedding_type",
			    json_string(c->pos == DT_POS_ROPE ? "rope" : "nope"));
	if (c->pos != DT_POS_ROPE)
		json_object_set_new(o, "rope_theta", json_real(10000));
	dt_hf_write_mixers(c->ssm_heads ? c : &m, o);
	return o;
}

/* Readers assume a factor of scores by the width of heads, and others of 1. */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	bool rotated = true;
	int rc;

	c->rope_pairing = DT_ROPE_ADJACENT;
	if ((rc = dt_gguf_key_real(k, "attention.scale", false, &c->score_factor, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "embedding_scale", false, &c->embed_factor, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "residual_scale", false, &c->residual_factor, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "logit_scale", true, &c->logit_divisor, err)) < 0 ||
	    (rc = dt_gguf_bool(k->g, dt_gguf_key(k, "rope.scaling.finetuned"), &rotated, err)) < 0)
		return rc;
	if (!rotated) /* in this architecture the key says whether there are positions */
		return dt_err_set(err, -ENOTSUP, "key '%s' of false is not supported", k->key);
	if ((rc = dt_gguf_decoder(k, c, err)) < 0)
		return rc;
	without_idle(c);
	return 0;
}

/* Both families with experts have this architecture. */
static int moe_from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	if ((rc = from_gguf(k, c, err)) < 0 || (rc = dt_gguf_experts(k, c, err)) < 0 ||
	    (rc = dt_gguf_int(k->g, dt_gguf_key(k, "expert_shared_feed_forward_length"), false, 0, DT_HF_MOST,
			      &c->shared_ffn, err)) < 0)
		return rc;
	c->expert_ffn = c->ffn;
	if (c->shared_ffn)
		snprintf(c->family, sizeof(c->family), "%s", dt_family_granitemoeshared.type);
	return 0;
}

static const struct dt_tensor_name moe_hf[] = {
	{DT_W_ROUTER, "layers.%d.block_sparse_moe.router.layer.weight"},
	{DT_W_EXPERT_GATE, "layers.%d.block_sparse_moe.input_linear.weight", DT_JOINED_EXPERTS,
	 .stacked = true},
	{DT_W_EXPERT_UP, "layers.%d.block_sparse_moe.input_linear.weight", DT_JOINED_EXPERTS,
	 .stacked = true},
	{DT_W_EXPERT_DOWN, "layers.%d.block_sparse_moe.output_linear.weight", .stacked = true},
	{DT_W_SHARED_GATE, "layers.%d.shared_mlp.input_linear.weight", DT_JOINED_GATE_UP},
	{DT_W_SHARED_UP, "layers.%d.shared_mlp.input_linear.weight", DT_JOINED_GATE_UP},
	{DT_W_SHARED_DOWN, "layers.%d.shared_mlp.output_linear.weight"},
	{0},
};

static const struct dt_tensor_name hybrid_hf[] = {
	DT_NAMES_SSM("layers.%d.mamba."),
	{DT_W_GATE, "layers.%d.shared_mlp.input_linear.weight", DT_JOINED_GATE_UP},
	{DT_W_UP, "layers.%d.shared_mlp.input_linear.weight", DT_JOINED_GATE_UP},
	{DT_W_DOWN, "layers.%d.shared_mlp.output_linear.weight"},
	{0},
};

#define MOE                                                                                                  \
	.arch = "granitemoe", .prefix = "model.", .hf_vocab = 32000, .gguf_adjacent = true,                  \
	.gguf_factors = true, .gguf_shared_width = true, .hf = {moe_hf, dt_names_llama},                     \
	.gguf = {dt_names_gguf_shared, dt_names_gguf}, .to_hf = moe_to_hf, .from_gguf = moe_from_gguf,       \
	.build = dt_build_decoder

const struct dt_family dt_family_granitemoe = {
	.type = "granitemoe",
	.class = "GraniteMoeForCausalLM",
	.from_hf = moe_from_hf,
	MOE,
};

const struct dt_family dt_family_granitemoeshared = {
	.type = "granitemoeshared",
	.class = "GraniteMoeSharedForCausalLM",
	.from_hf = shared_from_hf,
	MOE,
};

const struct dt_family dt_family_granitemoehybrid = {
	.type = "granitemoehybrid",
	.class = "GraniteMoeHybridForCausalLM",
	.prefix = "model.",
	.hf_vocab = 32000,
	.hf = {hybrid_hf, moe_hf, dt_names_llama},
	.from_hf = hybrid_from_hf,
	.to_hf = hybrid_to_hf,
	.build = dt_build_decoder,
};

const struct dt_family dt_family_granite = {
	.type = "granite",
	.class = "GraniteForCausalLM",
	.arch = "granite",
	.prefix = "model.",
	.hf_vocab = 32000,
	.gguf_adjacent = true,
	.gguf_factors = true,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
