/* Helpers to write config.json. */
#include "model/family/family.h"

#include <math.h>

const char *dt_hf_act_name(int act)
{
	static const char *const names[] = {[DT_ACT_GELU_TANH] = "gelu_new",
					    [DT_ACT_GELU_ERF] = "gelu",
					    [DT_ACT_SILU] = "silu",
					    [DT_ACT_RELU] = "relu",
					    [DT_ACT_SILU_CLAMPED] = "silu"};

	return names[act];
}

/* The factor of cos and sin, if it is not that of the class. */
static json_t *longrope(const struct dt_config *c)
{
	json_t *o = json_pack("{s:s, s:s, s:o, s:o, s:I}", "type", "longrope", "rope_type", "longrope",
			      "short_factor", json_array(), "long_factor", json_array(),
			      "original_max_position_embeddings", (json_int_t)c->rope_original_seq);

	for (int64_t i = 0; i < dt_rope_dim(c) / 2; i++) {
		json_array_append_new(json_object_get(o, "short_factor"),
				      json_real(dt_json_short(c->rope_short[i])));
		json_array_append_new(json_object_get(o, "long_factor"),
				      json_real(dt_json_short(c->rope_long[i])));
	}
	if ((float)c->rope_mscale != (float)dt_rope_long_mscale(c, dt_rope_long_factor(c)))
		json_object_set_new(o, "attention_factor", json_real(c->rope_mscale));
	return o;
}

json_t *dt_hf_rope_scaling(const struct dt_config *c)
{
	if (c->rope_scaling == DT_ROPE_SCALING_LINEAR)
		return json_pack("{s:s, s:s, s:f}", "type", "linear", "rope_type", "linear", "factor",
				 c->rope_factor);
	if (c->rope_scaling == DT_ROPE_SCALING_LLAMA3)
		return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", c->rope_factor,
				 "low_freq_factor", c->rope_low_freq, "high_freq_factor", c->rope_high_freq,
				 "original_max_position_embeddings", (json_int_t)c->rope_original_seq);
	if (c->rope_scaling == DT_ROPE_SCALING_DYNAMIC) /* scaling starts at max_position_embeddings */
		return json_pack("{s:s, s:s, s:f}", "type", "dynamic", "rope_type", "dynamic", "factor",
				 c->rope_factor);
	if (c->rope_scaling == DT_ROPE_SCALING_LONGROPE)
		return longrope(c);
	if (c->rope_scaling == DT_ROPE_SCALING_YARN)
		return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:b, s:I}", "type", "yarn", "rope_type",
				 "yarn", "factor", c->rope_factor, "beta_fast", c->rope_beta_fast,
				 "beta_slow", c->rope_beta_slow, "attention_factor", c->rope_mscale,
				 "truncate", !c->rope_untruncated, "original_max_position_embeddings",
				 (json_int_t)c->rope_original_seq);
	return json_null();
}

json_t *dt_hf_write_decoder(const struct dt_config *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:s, s:b, s:b, s:b}",
			 "hidden_size", (json_int_t)c->hidden, "intermediate_size", (json_int_t)c->ffn,
			 "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads",
			 (json_int_t)c->heads, "num_key_value_heads", (json_int_t)c->kv_heads, "head_dim",
			 (json_int_t)c->head_dim, "max_position_embeddings", (json_int_t)c->max_seq,
			 "rms_norm_eps", c->norm_eps, "rope_theta", dt_rope_base(c), "rope_scaling",
			 dt_hf_rope_scaling(c), "hidden_act", dt_hf_act_name(c->act), "attention_bias",
			 c->qkv_bias, "mlp_bias", c->mlp_bias, "use_sliding_window", c->window > 0);
}

double dt_hf_part(const struct dt_config *c)
{
	const double n = (double)dt_rope_dim(c), of = (double)c->head_dim;

	return n / of * of < n ? nextafter(n / of, 1) : n / of;
}

void dt_hf_write_rope_part(const struct dt_config *c, json_t *o)
{
	json_object_set_new(o, "partial_rotary_factor", json_real(dt_hf_part(c)));
}

void dt_hf_write_window(const struct dt_config *c, json_t *o)
{
	json_object_set_new(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
	json_object_set_new(o, "max_window_layers", json_integer(0));
}

void dt_hf_write_period(const struct dt_config *c, json_t *o)
{
	json_t *types = json_array();

	json_object_set_new(o, "sliding_window", json_integer(c->window));
	for (int64_t i = 0; i < c->layers; i++)
		json_array_append_new(
			types, json_string(dt_layer_window(c, i) ? "sliding_attention" : "full_attention"));
	if (c->global_every <= c->layers) /* else the list does not show the period */
		json_object_set(o, "layer_types", types);
	json_decref(types);
}
/* SPDX-License-Identifier: Apache-2.0 */
