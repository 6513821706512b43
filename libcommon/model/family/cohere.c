/*
 * Cohere's Command R (2024): attention and MLP read one LayerNorm of the residual stream, which has no bias;
 * logits have a factor; pairs of rotary positions are adjacent. Command R7B (2024) and A (2025): three layers
 * with a window and rotary positions, then one that sees all tokens and has no positions. Norms of q and k,
 * which Command R+ has, are refused.
 */
#include "model/family/family.h"

static int read_factor(double factor, const char *key, struct dt_config *c, struct dt_err *err)
{
	if (!(factor > 0))
		return dt_err_set(err, -ENOTSUP, "'%s' of %g is not supported", key, factor);
	c->logit_divisor = factor == 1 ? 0 : 1 / factor;
	return 0;
}

/* What both have. */
static int read_decoder(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	double factor = 0.0625;
	int rc;

	/* Defaults of the class. */
	c->max_seq = 8192;
	c->heads = 64;
	c->kv_heads = DT_HF_AS_HEADS;
	c->bos = 5;
	c->eos = 255001;
	c->tied = true;
	c->rope_pairing = DT_ROPE_ADJACENT;
	c->parallel_residual = c->one_norm = c->norm_no_bias = true;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0)
		return rc;
	c->norm = DT_NORM_LAYER;
	c->norm_eps = 1e-5;
	if ((rc = dt_json_real(o, "layer_norm_eps", false, &c->norm_eps, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "use_qk_norm", true, err)) < 0 ||
	    (rc = dt_json_real(o, "logit_scale", false, &factor, err)) < 0 ||
	    (rc = read_factor(factor, "logit_scale", c, err)) < 0)
		return rc;
	return dt_hf_rope(o, c, err);
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	c->rope_theta = 500000;
	return read_decoder(o, c, err);
}

static int windows_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->window = 4096;
	c->global_every = 4;
	if ((rc = read_decoder(o, c, err)) < 0)
		return rc;
	if (json_is_null(json_object_get(o, "sliding_window")))
		return dt_err_set(err, -EINVAL, "'sliding_window' of null is not supported");
	if ((rc = dt_hf_size(o, "sliding_window", false, &c->window, err)) < 0 ||
	    (rc = dt_hf_size(o, "sliding_window_pattern", false, &c->global_every, err)) < 0 ||
	    (rc = dt_hf_period(o, c, err)) < 0)
		return rc;
	c->rope_skip_every = c->global_every;
	return 0;
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_del(o, "rms_norm_eps");
	json_object_set_new(o, "layer_norm_eps", json_real(c->norm_eps));
	json_object_set_new(o, "logit_scale", json_real(dt_logit_scale(c)));
	/* The class's default may be outside the vocabulary. */
	json_object_set_new(o, "pad_token_id", json_null());
	return o;
}

static json_t *windows_to_hf(const struct dt_config *c)
{
	json_t *o = to_hf(c);

	json_object_set_new(o, "sliding_window", json_integer(c->window));
	dt_hf_write_period(c, o);
	return o;
}

/* What both have. */
static int read_gguf(struct dt_gguf_keys *k, bool required, struct dt_config *c, struct dt_err *err)
{
	double factor = 1;
	int rc;

	c->norm = DT_NORM_LAYER;
	c->gated = true;
	c->rope_pairing = DT_ROPE_ADJACENT;
	c->parallel_residual = c->one_norm = c->norm_no_bias = true;
	if (dt_gguf_find_tensor(k->g, "blk.0.attn_q_norm.weight"))
		return dt_err_set(err, -ENOTSUP, "norms of q and k in architecture '%s' are not supported",
				  k->arch);
	if ((rc = dt_gguf_key_real(k, "attention.layer_norm_epsilon", true, &c->norm_eps, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "logit_scale", required, &factor, err)) < 0 ||
	    (rc = read_factor(factor, k->key, c, err)) < 0)
		return rc;
	return dt_gguf_attention(k, c, err);
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	return read_gguf(k, false, c, err);
}

/* GGUF files may omit the period; readers assume it. */
static int windows_from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc = read_gguf(k, true, c, err);

	c->global_every = 4;
	if (rc < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.sliding_window_pattern", false, &c->global_every, err)) < 0)
		return rc;
	if (!c->window)
		return dt_err_set(err, -ENOTSUP, "architecture '%s' without a window is not supported",
				  k->arch);
	c->rope_skip_every = c->global_every;
	return 0;
}

const struct dt_family dt_family_cohere = {
	.type = "cohere",
	.class = "CohereForCausalLM",
	.arch = "command-r",
	.prefix = "model.",
	.hf_vocab = 256000,
	.hf_adjacent = true,
	.gguf_adjacent = true,
	.gguf_logit_factor = true,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};

const struct dt_family dt_family_cohere2 = {
	.type = "cohere2",
	.class = "Cohere2ForCausalLM",
	.arch = "cohere2",
	.prefix = "model.",
	.hf_vocab = 256000,
	.hf_adjacent = true,
	.gguf_adjacent = true,
	.gguf_logit_factor = true,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = windows_from_hf,
	.to_hf = windows_to_hf,
	.from_gguf = windows_from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
