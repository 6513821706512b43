#include "model/activations.h"

/* The share of n units that rank r of tp gets: the first n % tp ranks one more. */
static int64_t share(int64_t n, int tp, int r, int64_t *first)
{
	int64_t each = n / tp, more = n % tp;

	if (first)
		*first = r * each + (r < more ? r : more);
	return each + (r < more);
}

void dt_local_dims(const struct dt_config *c, int tp, int r, struct dt_local_dims *ret)
{
	ret->heads = share(c->heads, tp, r, NULL);
	ret->kv_heads = c->kv_heads >= tp ? share(c->kv_heads, tp, r, NULL) : 1;
	ret->ffn = share(c->ffn, tp, r, NULL);
	ret->vocab = share(c->vocab, tp, r, &ret->vocab_first);
	ret->qkv = (ret->heads + 2 * ret->kv_heads) * c->head_dim;
	if (c->kv_rank) /* as training computes it: keys and values of every head */
		ret->qkv = ret->heads * (2 * c->head_dim + c->v_dim);
	ret->routed = 0;
}

void dt_layer_dims(const struct dt_config *c, int64_t layer, int tp, int r, struct dt_local_dims *ret)
{
	dt_local_dims(c, tp, r, ret);
	ret->ffn = share(dt_layer_width(c, layer), tp, r, NULL);
	ret->routed = dt_layer_has_experts(c, layer) ? c->experts_used : 0;
}

void dt_activations(const struct dt_config *c, const struct dt_local_dims *d, enum dt_dtype compute,
		    struct dt_activation ret[DT_ACT_N])
{
	bool layernorm = c->norm == DT_NORM_LAYER;
	const struct dt_activation table[DT_ACT_N] = {
		{DT_A_RESID, "resid", c->hidden, compute},
		{DT_A_NORM1, "norm1", c->hidden, compute},
		{DT_A_NORM1_MEAN, "norm1.mean", layernorm, DT_F32},
		{DT_A_NORM1_RSTD, "norm1.rstd", 1, DT_F32},
		{DT_A_QKV_RAW, "qkv.raw", c->qk_norm ? (d->heads + d->kv_heads) * c->head_dim : 0, compute},
		{DT_A_QK_RSTD, "qk.rstd", c->qk_norm ? d->heads + d->kv_heads : 0, DT_F32},
		{DT_A_QKV, "qkv", d->qkv, compute},
		{DT_A_LSE, "lse", d->heads, DT_F32},
		{DT_A_ATTN, "attn", d->heads * dt_value_dim(c), compute},
		{DT_A_RESID2, "resid2", c->hidden, compute},
		{DT_A_NORM2, "norm2", c->hidden, compute},
		{DT_A_NORM2_MEAN, "norm2.mean", layernorm, DT_F32},
		{DT_A_NORM2_RSTD, "norm2.rstd", 1, DT_F32},
		{DT_A_UP, "up", (c->gated ? 2 : 1) * d->ffn, compute},
		{DT_A_ACT, "act", d->ffn, compute},
		{DT_A_LATENT, "latent", c->kv_rank ? 2 * (c->q_rank + c->kv_rank) + c->rope_dim : 0, compute},
		{DT_A_ROUTED, "routed", 2 * d->routed * c->hidden, compute},
	};

	for (int i = 0; i < DT_ACT_N; i++)
		ret[table[i].id] = table[i];
}

bool dt_activation_cut(enum dt_act id)
{
	return id == DT_A_QKV_RAW || id == DT_A_QK_RSTD || id == DT_A_QKV || id == DT_A_LSE ||
	       id == DT_A_ATTN || id == DT_A_UP || id == DT_A_ACT;
}

bool dt_activation_saved(enum dt_act id, enum dt_recompute mode)
{
	switch (mode) {
	case DT_RECOMPUTE_NONE:
		return true;
	case DT_RECOMPUTE_SELECTIVE:
		return id != DT_A_NORM1 && id != DT_A_NORM2 && id != DT_A_ACT && id != DT_A_ROUTED;
	case DT_RECOMPUTE_FULL:
		return id == DT_A_RESID;
	}
	return true;
}
