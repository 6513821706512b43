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

#define KNOWN "gpt2, llama, mistral, qwen2, qwen3"
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

/* rope_scaling, or rope_parameters of newer files (which also holds the base). */
static int read_rope(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *s = json_object_get(o, "rope_parameters");
	double partial = 1;
	const char *type = "default";
	int rc;

	c->rope_theta = 10000;
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
	if (!strcmp(type, "default"))
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

	if (!strcmp(c->family, "llama"))
		return 0;
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
	} else if (!strcmp(c->family, "mistral") || from == 0) {
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
	if (!strcmp(c->family, "mistral"))
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
	bool llama = !strcmp(c->family, "llama");
	int rc;

	c->norm = DT_NORM_RMS;
	c->norm_eps = 1e-6;
	c->pos = DT_POS_ROPE;
	c->act = DT_ACT_SILU;
	c->gated = true;
	c->qk_norm = !strcmp(c->family, "qwen3");
	if (!strcmp(c->family, "llama") || !strcmp(c->family, "mistral")) {
		c->bos = 1;
		c->eos = 2;
	}
	if ((rc = read_size(o, "hidden_size", true, &c->hidden, err)) < 0 ||
	    (rc = read_size(o, "intermediate_size", true, &c->ffn, err)) < 0 ||
	    (rc = read_size(o, "num_hidden_layers", true, &c->layers, err)) < 0 ||
	    (rc = read_size(o, "num_attention_heads", true, &c->heads, err)) < 0 ||
	    (rc = read_size(o, "max_position_embeddings", true, &c->max_seq, err)) < 0)
		return rc;
	c->kv_heads = c->heads;
	c->head_dim = c->qk_norm ? 128 : 0;
	if ((rc = read_size(o, "num_key_value_heads", !llama, &c->kv_heads, err)) < 0 ||
	    (rc = read_size(o, "head_dim", false, &c->head_dim, err)) < 0 ||
	    (rc = dt_json_real(o, "rms_norm_eps", false, &c->norm_eps, err)) < 0 ||
	    (rc = read_act(o, "hidden_act", &c->act, err)) < 0 ||
	    (rc = dt_json_bool(o, "tie_word_embeddings", false, &c->tied, err)) < 0 ||
	    (rc = read_biases(o, c, err)) < 0 || (rc = read_rope(o, c, err)) < 0 ||
	    (rc = read_window(o, c, err)) < 0)
		return rc;
	if (c->head_dim)
		return 0;
	if (c->hidden % c->heads)
		return dt_err_set(err, -EINVAL,
				  "'hidden_size' (%lld) is not a multiple of 'num_attention_heads' (%lld)",
				  (long long)c->hidden, (long long)c->heads);
	c->head_dim = c->hidden / c->heads;
	return 0;
}

int dt_config_from_hf(const json_t *o, struct dt_config *ret, struct dt_err *err)
{
	static const struct {
		const char *type;
		int (*read)(const json_t *, struct dt_config *, struct dt_err *);
	} known[] = {
		{"gpt2", read_gpt2},   {"llama", read_llama}, {"mistral", read_llama},
		{"qwen2", read_llama}, {"qwen3", read_llama},
	};
	const char *type = NULL;
	struct dt_config c;
	size_t i = 0, n = sizeof(known) / sizeof(known[0]);
	int rc;

	if (!json_is_object(o))
		return dt_err_set(err, -EINVAL, "not a JSON object");
	if ((rc = dt_json_str(o, "model_type", true, &type, err)) < 0)
		return rc;
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
	if ((rc = read_size(o, "vocab_size", true, &c.vocab, err)) < 0 ||
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
