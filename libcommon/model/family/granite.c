/*
 * Granite 3 and the dense models of Granite 4 (IBM 2024, 2025): Llama with factors of embeddings, scores,
 * residuals and logits (config.h).
 */
#include "model/family/family.h"

#include <math.h>

/* Factors of 1, and a factor of scores by the width of heads, are not stored. */
static void without_idle(struct dt_config *c)
{
	double *const v[] = {&c->embed_factor, &c->residual_factor, &c->logit_divisor};

	for (size_t i = 0; i < sizeof(v) / sizeof(v[0]); i++)
		if (*v[i] == 1)
			*v[i] = 0;
	if (fabs(c->score_factor * sqrt((double)c->head_dim) - 1) < 1e-7)
		c->score_factor = 0;
}

static int read_factors(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const struct {
		const char *key;
		double *v;
	} keys[] = {{"embedding_multiplier", &c->embed_factor},
		    {"attention_multiplier", &c->score_factor},
		    {"residual_multiplier", &c->residual_factor},
		    {"logits_scaling", &c->logit_divisor}};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		int rc;

		*keys[i].v = 1;
		rc = dt_json_real(o, keys[i].key, false, keys[i].v, err);
		if (rc < 0)
			return rc;
		if (!(*keys[i].v > 0))
			return dt_err_set(err, -ENOTSUP, "'%s' of %g is not supported", keys[i].key,
					  *keys[i].v);
	}
	without_idle(c);
	return 0;
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	/* Defaults of the class. */
	c->max_seq = 2048;
	c->heads = 32;
	c->kv_heads = DT_HF_AS_HEADS;
	c->bos = 1;
	c->eos = 2;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0 ||
	    (rc = dt_json_bool(o, "mlp_bias", false, &c->mlp_bias, err)) < 0 ||
	    (rc = read_factors(o, c, err)) < 0)
		return rc;
	return dt_hf_rope(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	json_object_set_new(o, "embedding_multiplier", json_real(dt_factor(c->embed_factor)));
	json_object_set_new(o, "attention_multiplier", json_real(dt_score_scale(c)));
	json_object_set_new(o, "residual_multiplier", json_real(dt_factor(c->residual_factor)));
	json_object_set_new(o, "logits_scaling", json_real(dt_factor(c->logit_divisor)));
	return o;
}

/* Readers assume a factor of scores by the width of heads, and others of 1. */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	bool rotated = true;
	int rc;

	c->rope_pairing = DT_ROPE_ADJACENT;
	if ((rc = dt_gguf_key_real(k, "attention.scale", false, &c->score_factor, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "embedding_scale", false, &c->embed_factor, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "residual_scale", false, &c->residual_factor, err)) < 0 ||
	    (rc = dt_gguf_key_real(k, "logit_scale", true, &c->logit_divisor, err)) < 0 ||
	    (rc = dt_gguf_bool(k->g, dt_gguf_key(k, "rope.scaling.finetuned"), &rotated, err)) < 0)
		return rc;
	if (!rotated) /* in this architecture the key says whether there are positions */
		return dt_err_set(err, -ENOTSUP, "key '%s' of false is not supported", k->key);
	if ((rc = dt_gguf_decoder(k, c, err)) < 0)
		return rc;
	without_idle(c);
	return 0;
}

const struct dt_family dt_family_granite = {
	.type = "granite",
	.class = "GraniteForCausalLM",
	.arch = "granite",
	.prefix = "model.",
	.hf_vocab = 32000,
	.gguf_adjacent = true,
	.gguf_factors = true,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
