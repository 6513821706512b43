/* Our configuration as Hugging Face's config.json. What reads back as another model is refused. */
#include "model/config.h"

#include "kernels/activation.h"
#include "kernels/rope.h"

#include <errno.h>
#include <string.h>

static const char *act_name(int act)
{
	static const char *const names[] = {[DT_ACT_GELU_TANH] = "gelu_new",
					    [DT_ACT_GELU_ERF] = "gelu",
					    [DT_ACT_SILU] = "silu",
					    [DT_ACT_RELU] = "relu"};

	return names[act];
}

static json_t *id_or_null(int64_t id)
{
	return id < 0 ? json_null() : json_integer(id);
}

static json_t *gpt2(const struct dt_config *c)
{
	return json_pack("{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s}", "architectures",
			 "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size", (json_int_t)c->vocab,
			 "n_embd", (json_int_t)c->hidden, "n_inner", (json_int_t)c->ffn, "n_layer",
			 (json_int_t)c->layers, "n_head", (json_int_t)c->heads, "n_positions",
			 (json_int_t)c->max_seq, "n_ctx", (json_int_t)c->max_seq, "layer_norm_epsilon",
			 c->norm_eps, "activation_function", act_name(c->act));
}

static json_t *rope_scaling(const struct dt_config *c)
{
	if (c->rope_scaling == DT_ROPE_SCALING_LINEAR)
		return json_pack("{s:s, s:s, s:f}", "type", "linear", "rope_type", "linear", "factor",
				 c->rope_factor);
	if (c->rope_scaling == DT_ROPE_SCALING_LLAMA3)
		return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", c->rope_factor,
				 "low_freq_factor", c->rope_low_freq, "high_freq_factor", c->rope_high_freq,
				 "original_max_position_embeddings", (json_int_t)c->rope_original_seq);
	return json_null();
}

/* What Gemma's class has and Llama's has not. */
static void put_gemma(const struct dt_config *c, json_t *o)
{
	json_t *types = json_array();

	json_object_set_new(o, "hidden_activation",
			    json_string(c->act == DT_ACT_GELU_TANH ? "gelu_pytorch_tanh" : act_name(c->act)));
	json_object_del(o, "hidden_act");
	json_object_set_new(o, "query_pre_attn_scalar",
			    json_integer(c->score_dim ? c->score_dim : c->head_dim));
	json_object_set_new(o, "rope_local_base_freq", json_real(c->rope_local_theta));
	json_object_set_new(o, "sliding_window", json_integer(c->window));
	if (c->global_every)
		json_object_set_new(o, "sliding_window_pattern", json_integer(c->global_every));
	for (int64_t i = 0; i < c->layers; i++)
		json_array_append_new(
			types, json_string(dt_layer_window(c, i) ? "sliding_attention" : "full_attention"));
	if (c->global_every <= c->layers) /* else the list would not say the period */
		json_object_set(o, "layer_types", types);
	json_decref(types);
}

static json_t *llama(const struct dt_config *c)
{
	static const char *const classes[][2] = {
		{"llama", "LlamaForCausalLM"},	     {"mistral", "MistralForCausalLM"},
		{"qwen2", "Qwen2ForCausalLM"},	     {"qwen3", "Qwen3ForCausalLM"},
		{"mixtral", "MixtralForCausalLM"},   {"gemma3_text", "Gemma3ForCausalLM"},
		{"qwen3_moe", "Qwen3MoeForCausalLM"}};
	const char *class = NULL;
	json_t *o;

	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (!strcmp(classes[i][0], c->family))
			class = classes[i][1];
	if (!class)
		return NULL;
	o = json_pack(
		"{s:[s], s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:s, s:b, s:b, s:b}",
		"architectures", class, "model_type", c->family, "vocab_size", (json_int_t)c->vocab,
		"hidden_size", (json_int_t)c->hidden, "intermediate_size", (json_int_t)c->ffn,
		"num_hidden_layers", (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads,
		"num_key_value_heads", (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim,
		"max_position_embeddings", (json_int_t)c->max_seq, "rms_norm_eps", c->norm_eps, "rope_theta",
		c->rope_theta, "rope_scaling", rope_scaling(c), "hidden_act", act_name(c->act),
		"attention_bias", c->qkv_bias && strcmp(c->family, "qwen2"), "mlp_bias", c->mlp_bias,
		"use_sliding_window", c->window > 0);
	if (c->experts) {
		bool qwen = !strcmp(c->family, "qwen3_moe");

		json_object_set_new(o, qwen ? "num_experts" : "num_local_experts", json_integer(c->experts));
		json_object_set_new(o, "num_experts_per_tok", json_integer(c->experts_used));
		if (qwen) {
			json_object_set_new(o, "moe_intermediate_size", json_integer(c->expert_ffn));
			json_object_set_new(o, "norm_topk_prob", json_boolean(!c->router_unscaled));
		}
	}
	if (!strcmp(c->family, "gemma3_text")) {
		put_gemma(c, o);
	} else if (!strncmp(c->family, "mi", 2) || c->window > 0) { /* Mistral, Mixtral */
		json_object_set_new(o, "sliding_window", c->window ? json_integer(c->window) : json_null());
		json_object_set_new(o, "max_window_layers", json_integer(0));
	}
	return o;
}

int dt_config_to_hf(const struct dt_config *c, const char *dtype, json_t **ret, struct dt_err *err)
{
	json_t *o = !strcmp(c->family, "gpt2") ? gpt2(c) : llama(c);

	if (!o)
		return dt_err_set(err, -ENOTSUP, "config.json has no word for models of family '%s'",
				  c->family);
	json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tied));
	json_object_set_new(o, "bos_token_id", id_or_null(c->bos));
	json_object_set_new(o, "eos_token_id", id_or_null(c->eos));
	json_object_set_new(o, "initializer_range", json_real(c->init_std));
	json_object_set_new(o, "torch_dtype", json_string(dtype));
	*ret = o;
	return 0;
}
