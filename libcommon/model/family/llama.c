/* Llama (Touvron et al. 2023; Grattafiori et al. 2024). */
#include "model/family/family.h"

#include <stdio.h>

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->bos = 1;
	c->eos = 2;
	c->kv_heads = DT_HF_AS_HEADS;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_json_bool(o, "mlp_bias", false, &c->mlp_bias, err)) < 0)
		return rc;
	return dt_hf_rope(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	if (c->window)
		dt_hf_write_window(c, o);
	return o;
}

/* Mixtral's and Mistral's GGUF files have this architecture too. */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc = dt_gguf_experts(k, c, err);

	if (rc < 0)
		return rc;
	if (c->experts) {
		snprintf(c->family, sizeof(c->family), "%s", dt_family_mixtral.type);
		c->expert_ffn = c->ffn;
	}
	c->rope_pairing = DT_ROPE_ADJACENT;
	if ((rc = dt_gguf_decoder(k, c, err)) < 0)
		return rc;
	if (c->window && !c->experts)
		snprintf(c->family, sizeof(c->family), "%s", dt_family_mistral.type);
	return rc;
}

const struct dt_family dt_family_llama = {
	.type = "llama",
	.class = "LlamaForCausalLM",
	.arch = "llama",
	.prefix = "model.",
	.gguf_adjacent = true,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
