/*
 * MiniMax-M2 (MiniMax 2025): experts in every layer, with DeepSeek-V3's router, no groups and none shared.
 * Norms are over the whole of q and of k, and half of each head is rotated.
 */
#include "model/family/family.h"

static int read_experts(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int64_t shared = 0;
	int rc;

	if ((rc = dt_hf_size(o, "num_local_experts", false, &c->experts, err)) < 0 ||
	    (rc = dt_hf_size(o, "num_experts_per_tok", false, &c->experts_used, err)) < 0 ||
	    (rc = dt_hf_refuse(o, "use_routing_bias", false, err)) < 0 ||
	    (rc = dt_json_int(o, "shared_intermediate_size", false, 0, DT_HF_MOST, &shared, err)) < 0)
		return rc;
	if (shared)
		return dt_err_set(err, -EINVAL, "'shared_intermediate_size' of %lld is not supported",
				  (long long)shared);
	c->expert_ffn = c->ffn;
	return 0;
}

static int from_hf(const json_t *o, struct dt_config *c, struct dt_err *err)
{
	int64_t rotated = 0;
	int rc;

	/* Defaults of the class. */
	c->heads = 48;
	c->kv_heads = 8;
	c->head_dim = 128;
	c->max_seq = 196608;
	c->rope_theta = 5e6;
	c->bos = 200034;
	c->eos = 200020;
	c->experts = 256;
	c->experts_used = 8;
	c->qk_norm = c->qk_norm_whole = true;
	c->router_bias = c->router_sigmoid = true;
	if ((rc = dt_hf_decoder(o, c, err)) < 0 || (rc = dt_hf_refuse(o, "use_qk_norm", false, err)) < 0 ||
	    (rc = dt_json_int(o, "rotary_dim", false, 1, c->head_dim, &rotated, err)) < 0 ||
	    (rc = dt_hf_rope_part(o, rotated ? (double)rotated / (double)c->head_dim : 1, c, err)) < 0 ||
	    (rc = dt_hf_rope(o, c, err)) < 0)
		return rc;
	return read_experts(o, c, err);
}

static json_t *to_hf(const struct dt_config *c)
{
	json_t *o = dt_hf_write_decoder(c);

	dt_hf_write_rope_part(c, o);
	json_object_set_new(o, "rotary_dim", json_integer(dt_rope_dim(c)));
	json_object_set_new(o, "num_local_experts", json_integer(c->experts));
	json_object_set_new(o, "num_experts_per_tok", json_integer(c->experts_used));
	return o;
}

static int from_gguf(struct dt_gguf_keys *k, struct dt_config *c, struct dt_err *err)
{
	int rc = dt_gguf_sigmoid_router(k, c, err);

	if (rc < 0)
		return rc;
	c->qk_norm_whole = true;
	c->router_unscaled = false; /* the key for that is not written */
	return dt_gguf_decoder_part(k, c, err);
}

static const struct dt_tensor_name hf[] = {
	{DT_W_ROUTER_B, "layers.%d.block_sparse_moe.e_score_correction_bias"},
	{0},
};

const struct dt_family dt_family_minimax_m2 = {
	.type = "minimax_m2",
	.class = "MiniMaxM2ForCausalLM",
	.arch = "minimax-m2",
	.prefix = "model.",
	.hf_vocab = 200064,
	.gguf_expert_width = true,
	.hf = {hf, dt_names_mixtral, dt_names_llama},
	.gguf = {dt_names_gguf_shared, dt_names_gguf},
	.from_hf = from_hf,
	.to_hf = to_hf,
	.from_gguf = from_gguf,
	.build = dt_build_decoder,
};
/* SPDX-License-Identifier: Apache-2.0 */
