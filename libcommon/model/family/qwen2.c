/* Qwen2 and Qwen2.5 (Yang et al. 2024): Llama with biases of q, k and v. */
#include "model/family/family.h"

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->qkv_bias = true;
	if (!json_object_get(o, "sliding_window"))
		c->window = 4096; /* the class's default; an explicit null means none */
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_rope(o, c, err)) < 0)
		return rc;
	return dt_hf_window(o, c, false, false, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_set_new(o, "attention_bias", json_false());
	if (c->window)
		dt_hf_write_window(c, o);
	return o;
}

const struct dt_family dt_family_qwen2 = {
	.type = "qwen2",
	.class = "Qwen2ForCausalLM",
	.arch = "qwen2",
	.prefix = "model.",
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = dt_gguf_decoder,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
