/*
 * Phi-3 and Phi-4 (Abdin et al. 2024, Microsoft 2025): Llama with q, k and v in one tensor, and gate and up
 * in another; with LongRoPE in variants of long contexts, and heads that are rotated in part in Phi-4-mini.
 */
#include "model/family/family.h"

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	bool window = json_is_integer(json_object_get(o, "sliding_window"));
	int rc;

	/* Defaults of the class. */
	c->norm_eps = 1e-5;
	c->max_seq = 4096;
	c->bos = 1;
	c->eos = 32000;
	c->kv_heads = DT_HF_AS_HEADS;
	c->rope_original_seq = 4096;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_rope_part(o, 1, c, err)) < 0 ||
	    (rc = dt_hf_rope(o, c, err)) < 0 || (rc = dt_hf_refuse(o, "attention_bias", true, err)) < 0)
		return rc;
	if (c->rope_dim == c->head_dim)
		c->rope_dim = 0;
	if (c->rope_scaling == DT_ROPE_SCALING_NONE)
		c->rope_original_seq = 0;
	return dt_hf_window(o, c, window, true, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	const bool stretched = c->rope_scaling == DT_ROPE_SCALING_LONGROPE;
	json_t *scaling = json_object_get(o, "rope_scaling");

	/* Earlier versions of the class refuse other keys than "type" and the two lists. */
	if (stretched) {
		json_object_del(scaling, "original_max_position_embeddings");
		json_object_del(scaling, "rope_type");
	}
	json_object_set_new(o, "original_max_position_embeddings",
			    json_integer(stretched ? c->rope_original_seq : c->max_seq));
	if (c->rope_dim)
		dt_hf_write_rope_part(c, o);
	/* The class's default may be outside the vocabulary. */
	json_object_set_new(o, "pad_token_id", json_null());
	dt_hf_write_window(c, o);
	return o;
}

static const struct dt_tensor_name hf[] = {
	{DT_W_Q, "layers.%d.self_attn.qkv_proj.weight", DT_JOINED_QKV},
	{DT_W_K, "layers.%d.self_attn.qkv_proj.weight", DT_JOINED_QKV},
	{DT_W_V, "layers.%d.self_attn.qkv_proj.weight", DT_JOINED_QKV},
	{DT_W_GATE, "layers.%d.mlp.gate_up_proj.weight", DT_JOINED_GATE_UP},
	{DT_W_UP, "layers.%d.mlp.gate_up_proj.weight", DT_JOINED_GATE_UP},
	{0},
};

static const struct dt_tensor_name gguf[] = {
	{DT_W_GATE, "blk.%d.ffn_up.weight", DT_JOINED_GATE_UP},
	{DT_W_UP, "blk.%d.ffn_up.weight", DT_JOINED_GATE_UP},
	{0},
};

const struct dt_family dt_family_phi3 = {
	.type = "phi3",
	.class = "Phi3ForCausalLM",
	.arch = "phi3",
	.prefix = "model.",
	.hf_vocab = 32064,
	.hf = {hf, dt_names_llama},
	.gguf = {gguf, dt_names_gguf_qkv, dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = dt_gguf_decoder,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
