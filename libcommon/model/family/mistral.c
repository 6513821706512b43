/* Mistral (Jiang et al. 2023): Llama with a sliding window in every layer. Its GGUF architecture is llama. */
#include "model/family/family.h"

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->bos = 1;
	c->eos = 2;
	if (!json_object_get(o, "sliding_window"))
		c->window = 4096; /* MistralConfig's default; an explicit null means none */
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_rope(o, c, err)) < 0)
		return rc;
	return dt_hf_window(o, c, true, true, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	dt_hf_write_window(c, o);
	return o;
}

const struct dt_family dt_family_mistral = {
	.type = "mistral",
	.class = "MistralForCausalLM",
	.arch = "llama",
	.prefix = "model.",
	.gguf_adjacent = true,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
