/*
 * Helpers to read config.json. Files omit keys equal to the class's default, so a family first sets the
 * defaults of its class. A feature that would change the result and is not supported is refused by name: a
 * wrong model that runs is worse than an error.
 */
#include "model/family/family.h"

#include <stdio.h>
#include <string.h>

int dt_hf_size(const json_t *o, const char *key, bool required, int64_t *ret, struct dt_err *err)
{
	return dt_json_int(o, key, required, 1, DT_HF_MOST, ret, err);
}

int dt_hf_act(const json_t *o, const char *key, int *ret, struct dt_err *err)
{
	static const struct {
		const char *name;
		int act;
	} acts[] = {
		{"gelu_new", DT_ACT_GELU_TANH},	 {"gelu_pytorch_tanh", DT_ACT_GELU_TANH},
		{"gelu_fast", DT_ACT_GELU_TANH}, {"gelu", DT_ACT_GELU_ERF},
		{"silu", DT_ACT_SILU},		 {"swish", DT_ACT_SILU},
		{"relu", DT_ACT_RELU},
	};
	const char *s = NULL;
	int rc = dt_json_str(o, key, false, &s, err);

	if (rc <= 0)
		return rc;
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		if (!strcmp(acts[i].name, s)) {
			*ret = acts[i].act;
			return 0;
		}
	}
	return dt_err_set(err, -EINVAL, "activation '%.40s' is not supported", s);
}

int dt_hf_cap(const json_t *o, const char *key, double *ret, struct dt_err *err)
{
	int rc;

	if (json_is_null(json_object_get(o, key)))
		*ret = 0;
	rc = dt_json_real(o, key, false, ret, err);
	return rc < 0 ? rc : 0;
}

int dt_hf_refuse(const json_t *o, const char *key, bool refused, struct dt_err *err)
{
	bool b = !refused;
	int rc = dt_json_bool(o, key, false, &b, err);

	if (rc < 0)
		return rc;
	if (b == refused)
		return dt_err_set(err, -EINVAL, "'%s' being %s is not supported", key, b ? "true" : "false");
	return 0;
}

int dt_hf_rope_base(const json_t *o, struct dt_config *c, const json_t **ret_scaling, const char **ret_type,
		    struct dt_err *err)
{
	const json_t *s = json_object_get(o, "rope_parameters"), *all = json_object_get(s, "full_attention");
	double partial = 1;
	int rc;

	*ret_type = "default";
	if (c->rope_theta == 0)
		c->rope_theta = 10000;
	if (json_is_object(all)) /* newer Gemma files: one entry for each kind of layer */
		s = all;
	if ((rc = dt_json_real(o, "rope_theta", false, &c->rope_theta, err)) < 0 ||
	    (rc = dt_json_real(o, "partial_rotary_factor", false, &partial, err)) < 0)
		return rc;
	if (!s || json_is_null(s))
		s = json_object_get(o, "rope_scaling");
	if (s && !json_is_null(s)) {
		if (!json_is_object(s))
			return dt_err_set(err, -EINVAL, "'rope_scaling' is not an object");
		if ((rc = dt_json_str(s, "type", false, ret_type, err)) < 0 ||
		    (rc = dt_json_str(s, "rope_type", false, ret_type, err)) < 0 ||
		    (rc = dt_json_real(s, "rope_theta", false, &c->rope_theta, err)) < 0 ||
		    (rc = dt_json_real(s, "partial_rotary_factor", false, &partial, err)) < 0)
			return rc;
	}
	if (partial != 1 && !c->rope_dim)
		return dt_err_set(err, -EINVAL, "rotating %g of each head is not supported", partial);
	*ret_scaling = s;
	return 0;
}

int dt_hf_rope_part(const json_t *o, double part, struct dt_config *c, struct dt_err *err)
{
	const char *const in[] = {"rope_scaling", "rope_parameters"};
	int rc = dt_json_real(o, "partial_rotary_factor", false, &part, err);

	for (int i = 0; rc == 0 && i < 2; i++)
		if (json_is_object(json_object_get(o, in[i])))
			rc = dt_json_real(json_object_get(o, in[i]), "partial_rotary_factor", false, &part,
					  err);
	if (rc < 0)
		return rc;
	if (!(part > 0) || part > 1)
		return dt_err_set(err, -EINVAL, "'partial_rotary_factor' is %g", part);
	c->rope_dim = (int64_t)((double)c->head_dim * part + 0.5);
	return 0;
}

static int read_yarn(const json_t *s, struct dt_config *c, struct dt_err *err)
{
	double mscale = 0, all = 0, factor = 0;
	bool truncate = true;
	int rc;

	c->rope_scaling = DT_ROPE_SCALING_YARN;
	c->rope_beta_fast = 32;
	c->rope_beta_slow = 1;
	c->rope_original_seq = c->max_seq;
	if ((rc = dt_json_real(s, "beta_fast", false, &c->rope_beta_fast, err)) < 0 ||
	    (rc = dt_json_real(s, "beta_slow", false, &c->rope_beta_slow, err)) < 0 ||
	    (rc = dt_json_real(s, "mscale", false, &mscale, err)) < 0 ||
	    (rc = dt_json_real(s, "mscale_all_dim", false, &all, err)) < 0 ||
	    (rc = dt_json_real(s, "attention_factor", false, &factor, err)) < 0 ||
	    (rc = dt_json_bool(s, "truncate", false, &truncate, err)) < 0 ||
	    (rc = dt_hf_size(s, "original_max_position_embeddings", false, &c->rope_original_seq, err)) < 0)
		return rc;
	c->rope_untruncated = !truncate;
	c->rope_mscale = factor > 0		 ? factor
			 : mscale > 0 && all > 0 ? dt_rope_yarn_mscale(c->rope_factor, mscale) /
							   dt_rope_yarn_mscale(c->rope_factor, all)
						 : dt_rope_yarn_mscale(c->rope_factor, 1);
	return 0;
}

/* LongRoPE; in some files the length before it stands beside the other sizes. */
static int read_longrope(const json_t *o, const json_t *s, struct dt_config *c, struct dt_err *err)
{
	static const char length[] = "original_max_position_embeddings";
	const int half = (int)(dt_rope_dim(c) / 2);
	const struct {
		const char *key;
		float *to;
	} lists[] = {{"short_factor", c->rope_short}, {"long_factor", c->rope_long}};
	int rc;

	c->rope_scaling = DT_ROPE_SCALING_LONGROPE;
	if (!c->rope_original_seq)
		c->rope_original_seq = c->max_seq;
	if ((rc = dt_hf_size(s, length, false, &c->rope_original_seq, err)) < 0 ||
	    (rc = dt_hf_size(o, length, false, &c->rope_original_seq, err)) < 0)
		return rc;
	c->rope_factor = dt_rope_long_factor(c);
	rc = dt_json_real(s, "factor", false, &c->rope_factor, err);
	if (rc < 0)
		return rc;
	c->rope_mscale = dt_rope_long_mscale(c, c->rope_factor);
	if ((rc = dt_json_real(s, "attention_factor", false, &c->rope_mscale, err)) < 0)
		return rc;
	c->rope_factor = dt_rope_long_factor(c); /* only for the default above */
	for (int i = 0; i < 2; i++) {
		rc = dt_json_floats(s, lists[i].key, lists[i].to, DT_ROPE_FACTORS, err);
		if (rc >= 0 && rc != half)
			rc = dt_err_set(err, -EINVAL, "'%s' has %d numbers, not one for each of %d pairs",
					lists[i].key, rc, half);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int dt_hf_rope(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *s;
	const char *type;
	int rc = dt_hf_rope_base(o, c, &s, &type, err);

	if (rc < 0 || !strcmp(type, "default"))
		return rc;
	if (!strcmp(type, "longrope") || !strcmp(type, "su") ||
	    (!strcmp(type, "yarn") && json_object_get(s, "short_factor"))) /* older files of Phi-3 */
		return read_longrope(o, s, c, err);
	if (strcmp(type, "linear") && strcmp(type, "llama3") && strcmp(type, "yarn") &&
	    strcmp(type, "dynamic"))
		return dt_err_set(err, -EINVAL,
				  "rotary scaling '%.40s' is not supported; known: linear, dynamic, yarn, "
				  "longrope, llama3",
				  type);
	if ((rc = dt_json_real(s, "factor", true, &c->rope_factor, err)) < 0)
		return rc;
	if (!strcmp(type, "linear")) {
		c->rope_scaling = DT_ROPE_SCALING_LINEAR;
		return 0;
	}
	if (!strcmp(type, "dynamic")) {
		c->rope_scaling = DT_ROPE_SCALING_DYNAMIC;
		c->rope_original_seq = c->max_seq; /* transformers ignores original_max_position_embeddings */
		return 0;
	}
	if (!strcmp(type, "yarn"))
		return read_yarn(s, c, err);
	c->rope_scaling = DT_ROPE_SCALING_LLAMA3;
	if ((rc = dt_json_real(s, "low_freq_factor", true, &c->rope_low_freq, err)) < 0 ||
	    (rc = dt_json_real(s, "high_freq_factor", true, &c->rope_high_freq, err)) < 0 ||
	    (rc = dt_hf_size(s, "original_max_position_embeddings", true, &c->rope_original_seq, err)) < 0)
		return rc;
	return 0;
}

int dt_hf_window(const json_t *o, struct dt_config *c, bool use, bool all, struct dt_err *err)
{
	const json_t *types = json_object_get(o, "layer_types"), *v;
	int64_t from = 28; /* the default of the classes that have it */
	size_t i, sliding = 0;
	int rc;

	if ((rc = dt_json_bool(o, "use_sliding_window", false, &use, err)) < 0 ||
	    (rc = dt_json_int(o, "sliding_window", false, 0, DT_HF_MOST, &c->window, err)) < 0 ||
	    (rc = dt_json_int(o, "max_window_layers", false, 0, DT_HF_MOST, &from, err)) < 0)
		return rc;
	if (!use) {
		c->window = 0;
		return 0;
	}
	if (types && !json_is_null(types)) {
		if (json_array_size(types) != (size_t)c->layers)
			return dt_err_set(err, -EINVAL, "'layer_types' does not list every layer");
		json_array_foreach(types, i, v) sliding +=
			json_is_string(v) && !strcmp(json_string_value(v), "sliding_attention");
	} else if (all || from == 0) {
		sliding = (size_t)c->layers;
	} else {
		sliding = from < c->layers ? (size_t)(c->layers - from) : 0;
	}
	if (sliding == 0)
		c->window = 0;
	else if (sliding != (size_t)c->layers)
		return dt_err_set(err, -EINVAL,
				  "sliding windows in only some of the layers are not supported");
	return 0;
}

int dt_hf_attention_bias(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool biased = false;
	int rc = dt_json_bool(o, "attention_bias", false, &biased, err);

	if (rc < 0)
		return rc;
	c->qkv_bias = c->out_bias = biased;
	return 0;
}

int dt_hf_decoder(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool as_heads = c->kv_heads == DT_HF_AS_HEADS;
	int rc;

	c->norm = DT_NORM_RMS;
	c->pos = DT_POS_ROPE;
	c->gated = true;
	if ((rc = dt_hf_size(o, "hidden_size", true, &c->hidden, err)) < 0 ||
	    (rc = dt_hf_size(o, "intermediate_size", true, &c->ffn, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_hidden_layers", true, &c->layers, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_attention_heads", c->heads == 0, &c->heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "max_position_embeddings", c->max_seq == 0, &c->max_seq, err)) < 0)
		return rc;
	if (as_heads)
		c->kv_heads = c->heads;
	if ((rc = dt_hf_size(o, "num_key_value_heads", c->kv_heads == 0, &c->kv_heads, err)) < 0 ||
	    (rc = dt_hf_size(o, "head_dim", false, &c->head_dim, err)) < 0 ||
	    (rc = dt_json_real(o, "rms_norm_eps", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0)
		return rc;
	return c->head_dim ? 0 : dt_hf_even_heads(c, err);
}

int dt_hf_even_heads(struct dt_config *c, struct dt_err *err)
{
	if (c->hidden % c->heads)
		return dt_err_set(err, -EINVAL,
				  "'hidden_size' (%lld) is not a multiple of 'num_attention_heads' (%lld)",
				  (long long)c->hidden, (long long)c->heads);
	c->head_dim = c->hidden / c->heads;
	return 0;
}

int dt_hf_every(const json_t *o, const char *key, bool (*is)(const json_t *v), const struct dt_config *c,
		int64_t *ret, struct dt_err *err)
{
	const json_t *list = json_object_get(o, key), *v;
	size_t i, first = 0;

	if (!list || json_is_null(list))
		return 0;
	if (json_array_size(list) < (size_t)c->layers)
		return dt_err_set(err, -EINVAL, "'%s' does not list every layer", key);
	json_array_foreach(list, i, v)
	{
		if (i >= (size_t)c->layers)
			break;
		if (is(v) && !first)
			first = i + 1;
		if (is(v) != (first && (i + 1) % first == 0))
			return dt_err_set(err, -EINVAL, "'%s' has no period", key);
	}
	*ret = (int64_t)first;
	return 0;
}

static bool sees_all(const json_t *v)
{
	return json_is_string(v) && !strcmp(json_string_value(v), "full_attention");
}

int dt_hf_period(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	if (json_array_size(json_object_get(o, "layer_types")) > (size_t)c->layers)
		return dt_err_set(err, -EINVAL, "'layer_types' does not list every layer");
	return dt_hf_every(o, "layer_types", sees_all, c, &c->global_every, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
