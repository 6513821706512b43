/* SmolLM3 (Hugging Face 2025): a Llama in which every fourth layer has no positions (NoPE). */
#include "model/family/family.h"

/* Of a layer's number in no_rope_layers, which is 1 where positions are rotary. */
static bool is_none(const json_t *v)
{
	return !(json_is_true(v) || (json_is_integer(v) && json_integer_value(v)));
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	/* Defaults of the class. */
	c->heads = 16;
	c->kv_heads = 4;
	c->max_seq = 32768;
	c->norm_eps = 1e-6;
	c->rope_theta = 2e6;
	c->bos = 128000;
	c->eos = 128001;
	c->tied = true;
	c->rope_skip_every = 4;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_json_bool(o, "mlp_bias", false, &c->mlp_bias, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "use_sliding_window", true, err)) < 0 ||
	    (rc = dt_hf_size(o, "no_rope_layer_interval", false, &c->rope_skip_every, err)) < 0 ||
	    (rc = dt_hf_every(o, "no_rope_layers", is_none, c, &c->rope_skip_every, err)) < 0)
		return rc;
	return dt_hf_rope(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c), *list = json_array();

	for (int64_t i = 0; i < c->layers; i++)
		json_array_append_new(list, json_integer(dt_layer_rotates(c, i)));
	json_object_set_new(o, "no_rope_layers", list);
	/* The class's default may be outside the vocabulary. */
	json_object_set_new(o, "pad_token_id", json_null());
	return o;
}

/* GGUF files omit the period; readers assume it. */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	c->rope_pairing = DT_ROPE_ADJACENT;
	c->rope_skip_every = 4;
	return dt_gguf_decoder(k, c, err);
}

const struct dt_family dt_family_smollm3 = {
	.type = "smollm3",
	.class = "SmolLM3ForCausalLM",
	.arch = "smollm3",
	.prefix = "model.",
	.gguf_adjacent = true,
	.hf_vocab = 128256,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
