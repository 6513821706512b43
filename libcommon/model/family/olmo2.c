/*
 * OLMo 2 (Team OLMo 2024): norms after attention and MLP instead of before, and norms of q and k over the
 * whole projection.
 */
#include "model/family/family.h"

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

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	/* The class's default may be outside the vocabulary. */
	json_object_set_new(o, "pad_token_id", json_null());
	return o;
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc;

	c->qk_norm_whole = c->post_norms = c->no_pre_norms = true;
	rc = dt_gguf_decoder(k, c, err);
	if (rc == 0 && c->window)
		return dt_err_set(err, -ENOTSUP,
				  "sliding windows in architecture 'olmo2', which are OLMo 3, are not "
				  "supported");
	return rc;
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
/* SPDX-License-Identifier: Apache-2.0 */
