/*
 * Models whose layers have Mamba-2's mixer or attention, with an MLP behind either: Bamba (IBM 2024, with
 * Princeton, CMU and UIUC), which rotates half of each attention head, and the keys that others took over
 * from it.
 */
#include "model/family/family.h"

#include <string.h>

int dt_hf_mixers(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *d = json_object_get(o, "mamba_d_head");
	int64_t expand = 2;
	int rc;

	/* Defaults of the class. */
	c->ssm_heads = 128;
	c->ssm_groups = 1;
	c->ssm_state = 256;
	c->ssm_kernel = 4;
	if ((rc = dt_hf_size(o, "mamba_n_heads", false, &c->ssm_heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "mamba_n_groups", false, &c->ssm_groups, err)) < 0 ||
	    (rc = dt_hf_size(o, "mamba_d_state", false, &c->ssm_state, err)) < 0 ||
	    (rc = dt_hf_size(o, "mamba_d_conv", false, &c->ssm_kernel, err)) < 0 ||
	    (rc = dt_hf_size(o, "mamba_expand", false, &expand, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "mamba_proj_bias", true, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "mamba_conv_bias", false, err)) < 0 || (rc = dt_hf_step_limit(o, err)) < 0)
		return rc;
	c->ssm_head_dim = c->hidden * expand / c->ssm_heads;
	if (d && !json_is_null(d) && (!json_is_string(d) || strcmp(json_string_value(d), "auto")) &&
	    (rc = dt_hf_size(o, "mamba_d_head", false, &c->ssm_head_dim, err)) < 0)
		return rc;
	if (c->hidden * expand != c->ssm_heads * c->ssm_head_dim)
		return dt_err_set(err, -EINVAL,
				  "'hidden_size' %lld times 'mamba_expand' %lld is not 'mamba_n_heads' %lld "
				  "times 'mamba_d_head' %lld",
				  (long long)c->hidden, (long long)expand, (long long)c->ssm_heads,
				  (long long)c->ssm_head_dim);
	return c->act == DT_ACT_SILU ? 0
				     : dt_err_set(err, -ENOTSUP,
						  "'hidden_act' of Mamba-2 other than silu is not supported");
}

void dt_hf_write_mixers(const struct dt_config *c, json_t *o)
{
	json_t *own = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "mamba_n_heads",
				(json_int_t)c->ssm_heads, "mamba_d_head", (json_int_t)c->ssm_head_dim,
				"mamba_n_groups", (json_int_t)c->ssm_groups, "mamba_d_state",
				(json_int_t)c->ssm_state, "mamba_d_conv", (json_int_t)c->ssm_kernel,
				"mamba_expand", (json_int_t)(c->ssm_heads * c->ssm_head_dim / c->hidden),
				"mamba_proj_bias", 0, "mamba_conv_bias", 1);

	json_object_update(o, own);
	json_decref(own);
}

static int read_list(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *list = json_object_get(o, "attn_layer_indices"), *v;
	size_t i;

	if (!list || json_is_null(list))
		return 0;
	if (!json_is_array(list))
		return dt_err_set(err, -EINVAL, "'attn_layer_indices' is not a list");
	json_array_foreach(list, i, v)
	{
		const json_int_t l = json_is_integer(v) ? json_integer_value(v) : -1;

		if (l < 0 || l >= c->layers || l >= DT_LISTED_LAYERS)
			return dt_err_set(
				err, -EINVAL,
				"'attn_layer_indices' has an entry that is no number of a layer "
				"below %lld",
				(long long)(c->layers < DT_LISTED_LAYERS ? c->layers : DT_LISTED_LAYERS));
		c->attn_layers[l / 64] |= UINT64_C(1) << l % 64;
	}
	return 0;
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	/* Defaults of the class. */
	c->norm_eps = 1e-5;
	c->heads = 32;
	c->kv_heads = 8;
	c->max_seq = 262144;
	c->bos = 1;
	c->eos = 2;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_json_bool(o, "mlp_bias", false, &c->mlp_bias, err)) < 0 ||
	    (rc = dt_hf_mixers(o, c, err)) < 0 || (rc = read_list(o, c, err)) < 0)
		return rc;
	if (!dt_config_attends(c)) {
		c->pos = DT_POS_NONE;
		c->rope_theta = 0;
		return 0;
	}
	c->rope_dim = c->head_dim / 2; /* whatever the file says of it */
	return dt_hf_rope(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c), *list = json_array();

	for (int64_t l = 0; l < c->layers; l++)
		if (!dt_layer_is_ssm(c, l))
			json_array_append_new(list, json_integer((json_int_t)l));
	json_object_set_new(o, "attn_layer_indices", list);
	dt_hf_write_mixers(c, o);
	return o;
}

static const struct dt_tensor_name hf[] = {
	DT_NAMES_SSM("layers.%d.mamba."),
	{DT_W_MLP_NORM, "layers.%d.pre_ff_layernorm.weight"},
	{DT_W_GATE, "layers.%d.feed_forward.gate_proj.weight"},
	{DT_W_UP, "layers.%d.feed_forward.up_proj.weight"},
	{DT_W_DOWN, "layers.%d.feed_forward.down_proj.weight"},
	{DT_W_GATE_B, "layers.%d.feed_forward.gate_proj.bias"},
	{DT_W_UP_B, "layers.%d.feed_forward.up_proj.bias"},
	{DT_W_DOWN_B, "layers.%d.feed_forward.down_proj.bias"},
	{DT_W_FINAL_NORM, "final_layernorm.weight"},
	{0},
};

const struct dt_family dt_family_bamba = {
	.type = "bamba",
	.class = "BambaForCausalLM",
	.prefix = "model.",
	.hf_vocab = 128000,
	.hf = {hf, dt_names_llama},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
