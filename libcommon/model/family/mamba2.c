/*
 * Mamba-2 (Dao and Gu 2024), as transformers has it: layers of one norm and one mixer (model/block/ssm.c),
 * without attention, MLP or positions. Files have all projections of a mixer in one tensor, and the three
 * convolutions in another.
 */
#include "model/family/family.h"

#include <math.h>

/* JSON has no infinity: json.h says what stands for it. */
int dt_hf_step_limit(const json_t *o, struct dt_err *err)
{
	const json_t *limit = json_object_get(o, "time_step_limit"), *top = json_array_get(limit, 1);

	if (!limit || json_is_null(limit))
		return 0;
	if (!json_is_array(limit) || json_array_size(limit) != 2 || !json_is_number(json_array_get(limit, 0)))
		return dt_err_set(err, -EINVAL, "'time_step_limit' is not a list of two numbers");
	return json_number_value(json_array_get(limit, 0)) > 0 ||
			       (json_is_number(top) && json_number_value(top) < 1e300)
		       ? dt_err_set(err, -ENOTSUP, "'time_step_limit' is not supported")
		       : 0;
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int64_t expand = 2;
	int rc;

	/* Defaults of the class. */
	c->norm = DT_NORM_RMS;
	c->norm_eps = 1e-5;
	c->pos = DT_POS_NONE;
	c->init_std = 0.1;
	c->hidden = 4096;
	c->layers = 64;
	c->heads = c->kv_heads = c->head_dim = 1;
	c->max_seq = 1 << 20; /* no length is too long */
	c->ssm_heads = 128;
	c->ssm_head_dim = 64;
	c->ssm_groups = 8;
	c->ssm_state = 128;
	c->ssm_kernel = 4;
	c->bos = 0;
	c->eos = 2;
	if ((rc = dt_hf_size(o, "hidden_size", false, &c->hidden, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_hidden_layers", false, &c->layers, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_heads", false, &c->ssm_heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "head_dim", false, &c->ssm_head_dim, err)) < 0 ||
	    (rc = dt_hf_size(o, "n_groups", false, &c->ssm_groups, err)) < 0 ||
	    (rc = dt_hf_size(o, "state_size", false, &c->ssm_state, err)) < 0 ||
	    (rc = dt_hf_size(o, "conv_kernel", false, &c->ssm_kernel, err)) < 0 ||
	    (rc = dt_hf_size(o, "expand", false, &expand, err)) < 0 ||
	    (rc = dt_json_real(o, "layer_norm_epsilon", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "use_bias", true, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "use_conv_bias", false, err)) < 0 || (rc = dt_hf_step_limit(o, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0)
		return rc;
	if (c->act != DT_ACT_SILU)
		return dt_err_set(err, -ENOTSUP, "'hidden_act' of Mamba-2 other than silu is not supported");
	if (c->hidden * expand != c->ssm_heads * c->ssm_head_dim)
		return dt_err_set(err, -EINVAL,
				  "'hidden_size' %lld times 'expand' %lld is not 'num_heads' %lld times "
				  "'head_dim' %lld",
				  (long long)c->hidden, (long long)expand, (long long)c->ssm_heads,
				  (long long)c->ssm_head_dim);
	return 0;
}

static json_t *to_hf(const struct dt_config *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:b, s:b}", "hidden_size",
			 (json_int_t)c->hidden, "num_hidden_layers", (json_int_t)c->layers, "num_heads",
			 (json_int_t)c->ssm_heads, "head_dim", (json_int_t)c->ssm_head_dim, "n_groups",
			 (json_int_t)c->ssm_groups, "state_size", (json_int_t)c->ssm_state, "conv_kernel",
			 (json_int_t)c->ssm_kernel, "expand",
			 (json_int_t)(c->ssm_heads * c->ssm_head_dim / c->hidden), "layer_norm_epsilon",
			 c->norm_eps, "hidden_act", dt_hf_act_name(c->act), "use_bias", 0, "use_conv_bias",
			 1);
}

static const struct dt_tensor_name hf[] = {
	{DT_W_EMBED, "embeddings.weight"}, {DT_W_ATTN_NORM, "layers.%d.norm.weight"},
	DT_NAMES_SSM("layers.%d.mixer."),  {DT_W_FINAL_NORM, "norm_f.weight"},
	{DT_W_HEAD, "lm_head.weight"},	   {0},
};

const struct dt_family dt_family_mamba2 = {
	.type = "mamba2",
	.class = "Mamba2ForCausalLM",
	.prefix = "backbone.",
	.hf_vocab = 32768,
	.hf = {hf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
