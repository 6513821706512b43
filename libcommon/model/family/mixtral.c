/*
 * Mixtral (Jiang et al. 2024): experts in every layer, intermediate_size wide. Its GGUF architecture is
 * llama.
 */
#include "model/family/family.h"

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->bos = 1;
	c->eos = 2;
	c->norm_eps = 1e-5;
	c->rope_theta = 1e6;
	c->max_seq = 131072;
	c->experts = 8;
	c->experts_used = 2;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_rope(o, c, err)) < 0 ||
	    (rc = dt_hf_window(o, c, json_is_integer(json_object_get(o, "sliding_window")), true, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_local_experts", false, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", false, &c->experts_used, err)) < 0)
		return rc;
	c->expert_ffn = c->ffn;
	return 0;
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_set_new(o, "num_local_experts", json_integer(c->experts));
	json_object_set_new(o, "num_experts_per_tok", json_integer(c->experts_used));
	dt_hf_write_window(c, o);
	return o;
}

const struct dt_family dt_family_mixtral = {
	.type = "mixtral",
	.class = "MixtralForCausalLM",
	.arch = "llama",
	.prefix = "model.",
	.gguf_adjacent = true,
	.hf = {dt_names_mixtral, dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
