/*
 * OLMo 2 (Team OLMo 2024): norms after attention and MLP instead of before, and norms of q and k over the
 * whole projection. OLMo 3 (2025) is the same with a sliding window in three layers of four, whose rotary
 * positions are not scaled.
 */
#include "model/family/family.h"

#include <stdio.h>
#include <string.h>

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int rc;

	/* Defaults of the class. */
	c->norm_eps = 1e-5;
	c->max_seq = 2048;
	c->eos = 50279;
	c->kv_heads = DT_HF_AS_HEADS;
	c->qk_norm = c->qk_norm_whole = c->post_norms = c->no_pre_norms = true;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_attention_bias(o, c, err)) < 0)
		return rc;
	return dt_hf_rope(o, c, err);
}

static int olmo3_from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	const json_t *sliding = json_object_get(json_object_get(o, "rope_parameters"), "sliding_attention");
	const char *type = "default";
	int rc;

	c->rope_theta = 5e5;
	c->window = 4096;
	c->global_every = 4;
	if ((rc = from_hf(o, c, err)) < 0 ||
	    (rc = dt_hf_size(o, "sliding_window", false, &c->window, err)) < 0 ||
	    (rc = dt_json_str(sliding, "rope_type", false, &type, err)) < 0)
		return rc;
	if (strcmp(type, "default"))
		return dt_err_set(err, -EINVAL,
				  "scaled rotary positions in layers with a window are not supported");
	c->rope_local_theta = c->rope_theta;
	if ((rc = dt_json_real(sliding, "rope_theta", false, &c->rope_local_theta, err)) < 0)
		return rc;
	return dt_hf_period(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	/* The class's default may be outside the vocabulary. */
	json_object_set_new(o, "pad_token_id", json_null());
	return o;
}

static json_t *olmo3_to_hf(const struct dt_config *c)
{
	json_t *o = to_hf(c);

	dt_hf_write_period(c, o);
	return o;
}

/* OLMo 3's files have this architecture too, and omit the period and the rotary base that readers assume. */
static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->qk_norm_whole = c->post_norms = c->no_pre_norms = true;
	rc = dt_gguf_decoder(k, c, err);
	if (rc < 0 || !c->window)
		return rc;
	snprintf(c->family, sizeof(c->family), "%s", dt_family_olmo3.type);
	c->global_every = 4;
	c->rope_local_theta = c->rope_theta;
	if ((rc = dt_gguf_key_size(k, "attention.sliding_window_pattern", false, &c->global_every, err)) <
		    0 ||
	    (rc = dt_gguf_key_real(k, "rope.freq_base_swa", false, &c->rope_local_theta, err)) < 0)
		return rc;
	return 0;
}

static void build(struct dt_builder *b)
{
	static const char *const post1[] = {"delta", NULL, NULL, "post1.rstd"};
	static const char *const post2[] = {"delta", NULL, NULL, "post2.rstd"};
	static const char *const last[] = {"norm", "resid", "mean", "rstd"};
	const struct dt_config *c = b->c;
	int x, h, delta = -1, embed;

	dt_unit(b, -1);
	embed = b->g->params.n;
	x = dt_block_embed(b);
	for (int l = 0; l < c->layers; l++) {
		dt_unit(b, l);
		x = dt_block_add(b, x, delta, "attn_in", "resid");
		delta = dt_block_attention(b, x);
		delta = dt_block_norm(b, delta, DT_W_POST_ATTN_NORM, "attn_post_norm", post1);
		x = dt_block_add(b, x, delta, "mlp_in", "resid2");
		delta = dt_block_mlp(b, x);
		delta = dt_block_norm(b, delta, DT_W_POST_MLP_NORM, "mlp_post_norm", post2);
	}
	dt_unit(b, (int)c->layers);
	h = dt_block_add_norm(b, &x, delta, DT_W_FINAL_NORM, "norm", last);
	dt_block_head(b, h, embed);
}

const struct dt_family dt_family_olmo2 = {
	.type = "olmo2",
	.class = "Olmo2ForCausalLM",
	.arch = "olmo2",
	.prefix = "model.",
	.hf_vocab = 50304,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = build,
};

const struct dt_family dt_family_olmo3 = {
	.type = "olmo3",
	.class = "Olmo3ForCausalLM",
	.arch = "olmo2",
	.prefix = "model.",
	.hf_vocab = 50304,
	.hf = {dt_names_llama},
	.gguf = {dt_names_gguf},
	.from_hf = olmo3_from_hf,
	.to_hf = olmo3_to_hf,
	.from_gguf = from_gguf,
	.build = build,
};
/* SPDX-License-Identifier: Apache-2.0 */
