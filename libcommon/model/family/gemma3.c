/*
 * Gemma 3 (2025), its text model: layers with a sliding window and their own rotary base, then one with full
 * attention; norms by 1 + weight, also after attention and MLP.
 */
#include "model/family/family.h"

#include <string.h>

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *rope = json_object_get(o, "rope_parameters");
	double soft = 0, soft_last = 0;
	int rc;

	/* Defaults of the text model's class, which files omit. */
	dt_gemma_defaults(c);
	c->max_seq = 131072;
	c->global_every = 6;
	c->rope_theta = 1e6;
	c->rope_local_theta = 10000;
	c->qk_norm = true;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_hf_rope(o, c, err)) < 0 ||
	    (rc = dt_json_real(json_object_get(rope, "sliding_attention"), "rope_theta", false,
			       &c->rope_local_theta, err)) < 0 ||
	    (rc = dt_json_real(o, "rope_local_base_freq", false, &c->rope_local_theta, err)) < 0 ||
	    (rc = dt_hf_size(o, "query_pre_attn_scalar", false, &c->score_dim, err)) < 0 ||
	    (rc = dt_json_real(o, "final_logit_softcapping", false, &soft_last, err)) < 0 ||
	    (rc = dt_json_real(o, "attn_logit_softcapping", false, &soft, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "use_bidirectional_attention", true, err)) < 0 ||
	    (rc = dt_hf_act(o, "hidden_activation", &c->act, err)) < 0 ||
	    (rc = dt_hf_size(o, "sliding_window", false, &c->window, err)) < 0 ||
	    (rc = dt_hf_size(o, "sliding_window_pattern", false, &c->global_every, err)) < 0 ||
	    (rc = dt_hf_size(o, "_sliding_window_pattern", false, &c->global_every, err)) < 0)
		return rc;
	if (soft != 0 || soft_last != 0)
		return dt_err_set(err, -EINVAL, "soft capping of scores is not supported");
	if (c->score_dim == c->head_dim)
		c->score_dim = 0;
	return dt_hf_period(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_gemma_to_hf(c);

	json_object_set_new(o, "rope_local_base_freq", json_real(c->rope_local_theta));
	dt_hf_write_period(c, o);
	if (c->global_every)
		json_object_set_new(o, "sliding_window_pattern", json_integer(c->global_every));
	return o;
}

/*
 * GGUF files omit the period of full-attention layers, the rotary base of windowed layers, and the score
 * scale, which depends on the hidden size in the largest model only; readers assume them.
 */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->global_every = 6;
	c->rope_local_theta = 10000;
	c->act = DT_ACT_GELU_TANH;
	c->embed_scaled = c->post_norms = true;
	if ((rc = dt_gguf_decoder(k, c, err)) < 0 ||
	    (rc = dt_gguf_key_size(k, "attention.sliding_window_pattern", false, &c->global_every, err)) <
		    0 ||
	    (rc = dt_gguf_key_real(k, "rope.freq_base_swa", false, &c->rope_local_theta, err)) < 0)
		return rc;
	if (c->layers == 62 && c->hidden / c->heads != c->head_dim)
		c->score_dim = c->hidden / c->heads;
	return 0;
}

/* The vision tower, which we do not load. */
static bool is_buffer(const struct dt_config *c, const char *name)
{
	return !strncmp(name, "vision_tower.", 13) || !strncmp(name, "multi_modal_projector.", 22);
}

static const struct dt_tensor_name hf[] = {
	{DT_W_MLP_NORM, "layers.%d.pre_feedforward_layernorm.weight"},
	{0},
};

const struct dt_family dt_family_gemma3 = {
	.type = "gemma3_text",
	.outer = {"gemma3"},
	.class = "Gemma3ForCausalLM",
	.arch = "gemma3",
	.prefix = "model.",
	.hf_vocab = 262208,
	.hf_plus_one = true,
	.hf = {hf, dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.is_buffer = is_buffer,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
