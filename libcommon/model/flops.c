/*
 * Model flops (Chowdhery et al. 2022, PaLM, appendix B): 2 a token for every weight that is multiplied,
 * the head's included and the embedding's not, of experts those the token is sent to, plus 4 s (heads x
 * head_dim) a layer for the two products of attention, as if every token saw all s. Backward costs twice
 * forward. For GPT this is the 72 L h^2 (1 + s / 6h + V / 12hL) of Narayanan et al. 2021. Recomputation does
 * not count.
 */
#include "model/params.h"

double dt_layer_weights(const struct dt_config *c, int64_t layer)
{
	double h = (double)c->hidden, a = (double)c->heads, q = a * (double)c->head_dim;
	double kv = (double)(c->kv_heads * c->head_dim), nope = (double)(c->head_dim - c->rope_dim);
	double attn = 2 * h * q + 2 * h * kv, rank = (double)c->kv_rank, from = (double)c->q_rank;

	if (c->kv_rank)
		attn = (from > 0 ? from * (h + q) : h * q) + h * (rank + (double)c->rope_dim) +
		       rank * a * (nope + (double)c->v_dim) + a * (double)c->v_dim * h;
	return attn + (c->gated ? 3 : 2) * h * (double)dt_layer_width(c, layer) +
	       (dt_layer_has_experts(c, layer) ? h * (double)c->experts : 0);
}

double dt_layer_attention_flops(const struct dt_config *c, int64_t layer, int64_t seq)
{
	int64_t window = dt_layer_window(c, layer);
	double span = (double)(window > 0 && window < seq ? window : seq);

	return 2 * span * (double)(c->heads * (c->head_dim + dt_value_dim(c)));
}

double dt_model_flops_per_token(const struct dt_config *c, int64_t seq, bool training)
{
	double forward = 2 * (double)c->hidden * (double)c->vocab;

	for (int64_t i = 0; i < c->layers; i++)
		forward += 2 * dt_layer_weights(c, i) + dt_layer_attention_flops(c, i, seq);
	return training ? 3 * forward : forward;
}
/* SPDX-License-Identifier: Apache-2.0 */
