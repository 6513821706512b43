/*
 * Hugging Face's config.json. Files leave out what equals the architecture's default, so the defaults here
 * are those of the architecture's own configuration class. What would compute something else than we do is
 * refused by name: a wrong model that runs is worse than an error.
 */
#include "model/config.h"

#include "kernels/activation.h"
#include "kernels/rope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define KNOWN "gpt2, llama, mistral, qwen2, qwen3, gemma3, mixtral, qwen3_moe, deepseek_v2, deepseek_v3"
#define BIG   (INT64_C(1) << 31)

static int read_size(const json_t *o, const char *key, bool required, int64_t *ret, struct dt_err *err)
{
	return dt_json_int(o, key, required, 1, BIG, ret, err);
}

static int read_act(const json_t *o, const char *key, int *ret, struct dt_err *err)
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

/* A token id, or a list of them of which the first counts. */
static int read_token(const json_t *o, const char *key, int64_t *ret, struct dt_err *err)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_array(v))
		v = json_array_get(v, 0);
	if (!v || json_is_null(v))
		return 0;
	if (!json_is_integer(v))
		return dt_err_set(err, -EINVAL, "'%s' is not a whole number", key);
	*ret = json_integer_value(v);
	return 0;
}

static int refuse_flag(const json_t *o, const char *key, bool refused, struct dt_err *err)
{
	bool b = !refused;
	int rc = dt_json_bool(o, key, false, &b, err);

	if (rc < 0)
		return rc;
	if (b == refused)
		return dt_err_set(err, -EINVAL, "'%s' being %s is not supported", key, b ? "true" : "false");
	return 0;
}

static int read_gpt2(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->norm = DT_NORM_LAYER;
	c->norm_eps = 1e-5;
	c->pos = DT_POS_LEARNED;
	c->act = DT_ACT_GELU_TANH;
	c->tied = c->qkv_bias = c->out_bias = c->mlp_bias = true;
	c->max_seq = 1024;
	c->bos = c->eos = 50256;
	if ((rc = read_size(o, "n_embd", true, &c->hidden, err)) < 0 ||
	    (rc = read_size(o, "n_layer", true, &c->layers, err)) < 0 ||
	    (rc = read_size(o, "n_head", true, &c->heads, err)) < 0 ||
	    (rc = read_size(o, "n_ctx", false, &c->max_seq, err)) < 0 ||
	    (rc = read_size(o, "n_positions", false, &c->max_seq, err)) < 0)
		return rc;
	c->ffn = 4 * c->hidden;
	c->kv_heads = c->heads;
	if ((rc = read_size(o, "n_inner", false, &c->ffn, err)) < 0 ||
	    (rc = dt_json_real(o, "layer_norm_epsilon", false, &c->norm_eps, err)) < 0 ||
	    (rc = read_act(o, "activation_function", &c->act, err)) < 0 ||
	    (rc = refuse_flag(o, "scale_attn_weights", false, err)) < 0 ||
	    (rc = refuse_flag(o, "scale_attn_by_inverse_layer_idx", true, err)) < 0 ||
	    (rc = refuse_flag(o, "add_cross_attention", true, err)) < 0)
		return rc;
	if (c->hidden % c->heads)
		return dt_err_set(err, -EINVAL, "'n_embd' (%lld) is not a multiple of 'n_head' (%lld)",
				  (long long)c->hidden, (long long)c->heads);
	c->head_dim = c->hidden / c->heads;
	return 0;
}

static bool is_deepseek(const struct dt_config *c)
{
	return !strncmp(c->family, "deepseek", 8);
}

/* rope_scaling, or rope_parameters of newer files (which also holds the base). */
static int read_rope(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *s = json_object_get(o, "rope_parameters"), *all = json_object_get(s, "full_attention");
	double partial = 1;
	const char *type = "default";
	int rc;

	c->rope_theta = !strcmp(c->family, "mixtral") || !strncmp(c->family, "gemma", 5) ? 1e6 : 10000;
	if ((rc = dt_json_real(json_object_get(s, "sliding_attention"), "rope_theta", false,
			       &c->rope_local_theta, err)) < 0)
		return rc;
	if (json_is_object(all)) /* newer Gemma files: one of each kind of layer */
		s = all;
	if ((rc = dt_json_real(o, "rope_theta", false, &c->rope_theta, err)) < 0 ||
	    (rc = dt_json_real(o, "partial_rotary_factor", false, &partial, err)) < 0)
		return rc;
	if (!s || json_is_null(s))
		s = json_object_get(o, "rope_scaling");
	if (s && !json_is_null(s)) {
		if (!json_is_object(s))
			return dt_err_set(err, -EINVAL, "'rope_scaling' is not an object");
		if ((rc = dt_json_str(s, "type", false, &type, err)) < 0 ||
		    (rc = dt_json_str(s, "rope_type", false, &type, err)) < 0 ||
		    (rc = dt_json_real(s, "rope_theta", false, &c->rope_theta, err)) < 0 ||
		    (rc = dt_json_real(s, "partial_rotary_factor", false, &partial, err)) < 0)
			return rc;
	}
	if (partial != 1)
		return dt_err_set(err, -EINVAL, "rotating %g of each head is not supported", partial);
	if (!strcmp(type, "default") || is_deepseek(c)) /* of which only sizes are read */
		return 0;
	if ((rc = dt_json_real(s, "factor", true, &c->rope_factor, err)) < 0)
		return rc;
	if (!strcmp(type, "linear")) {
		c->rope_scaling = DT_ROPE_SCALING_LINEAR;
		return 0;
	}
	if (strcmp(type, "llama3"))
		return dt_err_set(err, -EINVAL,
				  "rotary scaling '%.40s' is not supported; known: linear, llama3", type);
	c->rope_scaling = DT_ROPE_SCALING_LLAMA3;
	if ((rc = dt_json_real(s, "low_freq_factor", true, &c->rope_low_freq, err)) < 0 ||
	    (rc = dt_json_real(s, "high_freq_factor", true, &c->rope_high_freq, err)) < 0 ||
	    (rc = read_size(s, "original_max_position_embeddings", true, &c->rope_original_seq, err)) < 0)
		return rc;
	return 0;
}

/* Sliding windows: one window for all layers or none; a mixture is not a model we compute. */
static int read_window(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *types = json_object_get(o, "layer_types"), *v;
	bool use = !strcmp(c->family, "mistral");
	int64_t from = c->layers;
	size_t i, sliding = 0;
	int rc;

	if (!strcmp(c->family, "llama") || !strncmp(c->family, "gemma", 5) || is_deepseek(c))
		return 0;
	use |= !strcmp(c->family, "mixtral") && json_is_integer(json_object_get(o, "sliding_window"));
	if (use && !json_object_get(o, "sliding_window"))
		c->window = 4096; /* MistralConfig's default; an explicit null means none */
	if ((rc = dt_json_bool(o, "use_sliding_window", false, &use, err)) < 0 ||
	    (rc = dt_json_int(o, "sliding_window", false, 0, BIG, &c->window, err)) < 0 ||
	    (rc = dt_json_int(o, "max_window_layers", false, 0, BIG, &from, err)) < 0)
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
	} else if (!strncmp(c->family, "mi", 2) || from == 0) { /* Mistral, Mixtral */
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

static int read_biases(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool attn = false;
	int rc;

	if (!strcmp(c->family, "qwen2")) {
		c->qkv_bias = true;
		return 0;
	}
	if (!strncmp(c->family, "mi", 2))
		return 0;
	if ((rc = dt_json_bool(o, "attention_bias", false, &attn, err)) < 0)
		return rc;
	c->qkv_bias = c->out_bias = attn;
	if (!strcmp(c->family, "llama") && (rc = dt_json_bool(o, "mlp_bias", false, &c->mlp_bias, err)) < 0)
		return rc;
	return 0;
}

static int read_llama(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool llama = !strcmp(c->family, "llama"), gemma = !strncmp(c->family, "gemma", 5);
	bool shared_kv = !llama && !gemma && !is_deepseek(c);
	int rc;

	c->norm = DT_NORM_RMS;
	c->norm_eps = !strcmp(c->family, "mixtral") ? 1e-5 : 1e-6;
	c->pos = DT_POS_ROPE;
	c->act = gemma ? DT_ACT_GELU_TANH : DT_ACT_SILU;
	c->gated = true;
	c->qk_norm = gemma || !strncmp(c->family, "qwen3", 5);
	if (llama || !strncmp(c->family, "mi", 2)) { /* Mistral, Mixtral */
		c->bos = 1;
		c->eos = 2;
	}
	if (gemma) {
		c->bos = 2;
		c->eos = 1;
	}
	if ((rc = read_size(o, "hidden_size", true, &c->hidden, err)) < 0 ||
	    (rc = read_size(o, "intermediate_size", true, &c->ffn, err)) < 0 ||
	    (rc = read_size(o, "num_hidden_layers", true, &c->layers, err)) < 0 ||
	    (rc = read_size(o, "num_attention_heads", !gemma, &c->heads, err)) < 0 ||
	    (rc = read_size(o, "max_position_embeddings", c->max_seq == 0, &c->max_seq, err)) < 0)
		return rc;
	c->kv_heads = gemma ? c->kv_heads : c->heads;
	c->head_dim = gemma ? 256 : c->qk_norm ? 128 : 0;
	if ((rc = read_size(o, "num_key_value_heads", shared_kv, &c->kv_heads, err)) < 0 ||
	    (rc = read_size(o, "head_dim", false, &c->head_dim, err)) < 0 ||
	    (rc = dt_json_real(o, "rms_norm_eps", false, &c->norm_eps, err)) < 0 ||
	    (rc = read_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0 ||
	    (rc = read_biases(o, c, err)) < 0 || (rc = read_rope(o, c, err)) < 0 ||
	    (rc = read_window(o, c, err)) < 0)
		return rc;
	if (c->head_dim || is_deepseek(c))
		return 0;
	if (c->hidden % c->heads)
		return dt_err_set(err, -EINVAL,
				  "'hidden_size' (%lld) is not a multiple of 'num_attention_heads' (%lld)",
				  (long long)c->hidden, (long long)c->heads);
	c->head_dim = c->hidden / c->heads;
	return 0;
}

/* Mixtral: intermediate_size is an expert's width and all layers have experts. */
static int read_mixtral(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->experts = 8;
	c->experts_used = 2;
	c->max_seq = 131072;
	if ((rc = read_llama(o, c, err)) < 0 ||
	    (rc = read_size(o, "num_local_experts", false, &c->experts, err)) < 0 ||
	    (rc = read_size(o, "num_experts_per_tok", false, &c->experts_used, err)) < 0)
		return rc;
	c->expert_ffn = c->ffn;
	return 0;
}

static int read_qwen3_moe(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *dense = json_object_get(o, "mlp_only_layers");
	bool scaled = false;
	int64_t step = 1;
	int rc;

	if ((rc = read_llama(o, c, err)) < 0 ||
	    (rc = read_size(o, "num_experts", true, &c->experts, err)) < 0 ||
	    (rc = read_size(o, "num_experts_per_tok", true, &c->experts_used, err)) < 0 ||
	    (rc = read_size(o, "moe_intermediate_size", true, &c->expert_ffn, err)) < 0 ||
	    (rc = dt_json_bool(o, "norm_topk_prob", false, &scaled, err)) < 0 ||
	    (rc = read_size(o, "decoder_sparse_step", false, &step, err)) < 0)
		return rc;
	if (step != 1 || json_array_size(dense) > 0)
		return dt_err_set(err, -EINVAL, "experts in only some of the layers are not supported");
	c->router_unscaled = !scaled;
	return 0;
}

/* DeepSeek-V2 and V3. The extra module that predicts a second token is not part of what is counted. */
static int read_deepseek(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int64_t nope = 128, shared = 0, step = 1;
	int rc;

	c->router_bias = !strcmp(c->family, "deepseek_v3");
	c->rope_dim = 64;
	c->v_dim = 128;
	if ((rc = read_llama(o, c, err)) < 0 ||
	    (rc = read_size(o, "kv_lora_rank", true, &c->kv_rank, err)) < 0 ||
	    (rc = read_size(o, "q_lora_rank", false, &c->q_rank, err)) < 0 ||
	    (rc = read_size(o, "qk_nope_head_dim", false, &nope, err)) < 0 ||
	    (rc = read_size(o, "qk_rope_head_dim", false, &c->rope_dim, err)) < 0 ||
	    (rc = read_size(o, "v_head_dim", false, &c->v_dim, err)) < 0 ||
	    (rc = read_size(o, "n_routed_experts", true, &c->experts, err)) < 0 ||
	    (rc = read_size(o, "num_experts_per_tok", true, &c->experts_used, err)) < 0 ||
	    (rc = read_size(o, "moe_intermediate_size", true, &c->expert_ffn, err)) < 0 ||
	    (rc = dt_json_int(o, "n_shared_experts", false, 0, 64, &shared, err)) < 0 ||
	    (rc = dt_json_int(o, "first_k_dense_replace", false, 0, BIG, &c->dense_layers, err)) < 0 ||
	    (rc = read_size(o, "moe_layer_freq", false, &step, err)) < 0)
		return rc;
	if (step != 1)
		return dt_err_set(err, -EINVAL, "experts in only some of the layers are not supported");
	c->head_dim = nope + c->rope_dim;
	c->kv_heads = c->heads;
	c->shared_ffn = shared * c->expert_ffn;
	return 0;
}

/* Every so many layers sees all, as layer_types says; anything else is not a model we describe. */
static int read_layer_types(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *types = json_object_get(o, "layer_types"), *v;
	size_t i, first = 0;

	if (!types || json_is_null(types))
		return 0;
	if (json_array_size(types) != (size_t)c->layers)
		return dt_err_set(err, -EINVAL, "'layer_types' does not list every layer");
	json_array_foreach(types, i, v)
	{
		bool all = json_is_string(v) && !strcmp(json_string_value(v), "full_attention");

		if (all && !first)
			first = i + 1;
		if (all != (first && (i + 1) % first == 0))
			return dt_err_set(err, -EINVAL, "'layer_types' has no period");
	}
	c->global_every = (int64_t)first;
	return 0;
}

/* Gemma 3's text model: five layers with a window, then one that sees all. */
static int read_gemma3(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	double soft = 0, soft_last = 0;
	int rc;

	/* The defaults of the text model's own class, which files leave out. */
	c->heads = 8;
	c->kv_heads = 4;
	c->max_seq = 131072;
	c->tied = true;
	c->window = 4096;
	c->global_every = 6;
	c->rope_local_theta = 10000;
	c->score_dim = 256;
	c->embed_scaled = c->norm_plus_one = true;
	if ((rc = read_llama(o, c, err)) < 0 ||
	    (rc = dt_json_real(o, "rope_local_base_freq", false, &c->rope_local_theta, err)) < 0 ||
	    (rc = read_size(o, "query_pre_attn_scalar", false, &c->score_dim, err)) < 0 ||
	    (rc = dt_json_real(o, "final_logit_softcapping", false, &soft_last, err)) < 0 ||
	    (rc = dt_json_real(o, "attn_logit_softcapping", false, &soft, err)) < 0 ||
	    (rc = refuse_flag(o, "use_bidirectional_attention", true, err)) < 0 ||
	    (rc = read_act(o, "hidden_activation", &c->act, err)) < 0 ||
	    (rc = read_size(o, "sliding_window", false, &c->window, err)) < 0 ||
	    (rc = read_size(o, "sliding_window_pattern", false, &c->global_every, err)) < 0 ||
	    (rc = read_size(o, "_sliding_window_pattern", false, &c->global_every, err)) < 0)
		return rc;
	if (soft != 0 || soft_last != 0)
		return dt_err_set(err, -EINVAL, "soft capping of scores is not supported");
	if (c->score_dim == c->head_dim)
		c->score_dim = 0;
	c->post_norms = true;
	return read_layer_types(o, c, err);
}

int dt_config_from_hf(const json_t *o, struct dt_config *ret, struct dt_err *err)
{
	static const struct {
		const char *type;
		int (*read)(const json_t *, struct dt_config *, struct dt_err *);
	} known[] = {
		{"gpt2", read_gpt2},	       {"llama", read_llama},	       {"mistral", read_llama},
		{"qwen2", read_llama},	       {"qwen3", read_llama},	       {"mixtral", read_mixtral},
		{"qwen3_moe", read_qwen3_moe}, {"deepseek_v2", read_deepseek}, {"deepseek_v3", read_deepseek},
		{"gemma3_text", read_gemma3},
	};
	const char *type = NULL;
	struct dt_config c;
	size_t i = 0, n = sizeof(known) / sizeof(known[0]);
	int rc;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "not a JSON object");
	if ((rc = dt_json_str(o, "model_type", true, &type, err)) < 0)
		return rc;
	/* Models that also see: their text half. */
	if (!strcmp(type, "gemma3") && json_is_object(json_object_get(o, "text_config"))) {
		o = json_object_get(o, "text_config");
		type = "gemma3_text";
	}
	while (i < n && strcmp(known[i].type, type))
		i++;
	if (i == n)
		return dt_err_set(err, -EINVAL, "architecture '%.60s' is not supported; known: %s", type,
				  KNOWN);
	memset(&c, 0, sizeof(c));
	snprintf(c.name, sizeof(c.name), "%s", type);
	snprintf(c.family, sizeof(c.family), "%s", type);
	c.rope_pairing = DT_ROPE_HALF;
	c.bos = c.eos = -1;
	c.init_std = 0.02;
	if (!strncmp(type, "gemma", 5))
		c.vocab = 262208;
	if ((rc = read_size(o, "vocab_size", !c.vocab, &c.vocab, err)) < 0 ||
	    (rc = known[i].read(o, &c, err)) < 0)
		return rc;
	/* The defaults above name tokens that a smaller vocabulary does not have. */
	if (c.bos >= c.vocab)
		c.bos = -1;
	if (c.eos >= c.vocab)
		c.eos = -1;
	if ((rc = read_token(o, "bos_token_id", &c.bos, err)) < 0 ||
	    (rc = read_token(o, "eos_token_id", &c.eos, err)) < 0 ||
	    (rc = dt_json_real(o, "initializer_range", false, &c.init_std, err)) < 0 ||
	    (rc = dt_config_check(&c, err)) < 0)
		return rc;
	*ret = c;
	return 0;
}
