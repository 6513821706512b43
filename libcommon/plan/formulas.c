#include "plan/formulas.h"

#include "kernels/quant_formats.h"

#include <string.h>

double dt_state_bytes(double params, struct dt_scheme s, int zero, int ranks)
{
	double n = ranks;

	return params * (s.weight / (zero >= 3 ? n : 1) + s.grad / (zero >= 2 ? n : 1) +
			 s.optim / (zero >= 1 ? n : 1));
}

double dt_deepspeed_zero2_bytes(double params, int ranks, bool offload)
{
	return offload ? 2 * params : params * (4 + 16.0 / ranks);
}

double dt_megatron_activation_bytes(double h, double a, double s, double b, int tp, bool seq_parallel,
				    bool flash, enum dt_recompute recompute)
{
	double t = tp, scores = flash ? 4 * a / (h * t) : 5 * a * s / (h * t);
	double rest = seq_parallel ? 34 / t : 10 + 24 / t;

	switch (recompute) {
	case DT_RECOMPUTE_NONE:
		return s * b * h * (rest + scores);
	case DT_RECOMPUTE_SELECTIVE:
		return s * b * h * rest;
	case DT_RECOMPUTE_FULL:
		break;
	}
	return 2 * s * b * h / (seq_parallel ? t : 1);
}

double dt_score_bytes(const struct dt_config *c, double size)
{
	return c->pos == DT_POS_LEARNED ? 2 * size + 1 : size;
}

double dt_megatron_layer_bytes(const struct dt_config *c, int64_t layer, double s, double b, int tp,
			       bool seq_parallel, bool flash, enum dt_recompute recompute)
{
	double h = (double)c->hidden, a = (double)c->heads, f = (double)dt_layer_width(c, layer), t = tp;
	double kv = c->kv_rank ? a : (double)(c->kv_heads > tp ? c->kv_heads : tp);
	bool dropout = c->pos == DT_POS_LEARNED;
	/* Inputs of both norms and both first matmuls, dropout masks, copies sent to experts and back. */
	double whole = 8 * h + (dropout ? 2 * h : 0) +
		       (dt_layer_has_experts(c, layer) ? 4 * (double)c->experts_used * h : 0) +
		       2 * (double)(c->q_rank + c->kv_rank);
	/* q, k, v, input of the output projection; the MLP's intermediate values. */
	double cut = 2 * (a + kv) * (double)c->head_dim + 2 * (kv + a) * (double)dt_value_dim(c) +
		     (c->gated ? 6 : 4) * f;
	double scores = (flash ? 4 * a : dt_score_bytes(c, 2) * a * s) / t;

	if (recompute == DT_RECOMPUTE_FULL)
		return 2 * s * b * h / (seq_parallel ? t : 1);
	return s * b * ((seq_parallel ? whole / t : whole) + cut / t + (recompute ? 0 : scores));
}

/* Rank r's share of n: the first n % tp ranks get one more. */
static int64_t share(int64_t n, int tp, int r)
{
	return n / tp + (r < n % tp);
}

void dt_layer_dims(const struct dt_config *c, int64_t layer, int tp, int r, struct dt_local_dims *ret)
{
	ret->heads = share(c->heads, tp, r);
	ret->kv_heads = c->kv_heads >= tp ? share(c->kv_heads, tp, r) : 1;
	ret->ffn = share(dt_layer_width(c, layer), tp, r);
	ret->vocab = share(c->vocab, tp, r);
	ret->qkv = (ret->heads + 2 * ret->kv_heads) * c->head_dim;
	if (c->kv_rank) /* in training keys and values of every head exist */
		ret->qkv = ret->heads * (2 * c->head_dim + c->v_dim);
	ret->routed = dt_layer_has_experts(c, layer) ? c->experts_used : 0;
}

void dt_activations(const struct dt_config *c, const struct dt_local_dims *d, enum dt_dtype compute,
		    struct dt_activation ret[DT_ACT_N])
{
	bool layernorm = c->norm == DT_NORM_LAYER, s = true;
	int64_t h = c->hidden, post = c->post_norms, second = !c->one_norm;
	const struct dt_activation table[DT_ACT_N] = {
		{"resid", h, compute, s, .input = true},
		{"norm1", h, compute, s, .cheap = true},
		{"norm1.mean", layernorm, DT_F32, s},
		{"norm1.rstd", 1, DT_F32, s},
		{"qkv.raw", c->qk_norm ? (d->heads + d->kv_heads) * c->head_dim : 0, compute},
		{"qk.rstd", c->qk_norm ? d->heads + d->kv_heads : 0, DT_F32},
		{"qkv", d->qkv, compute},
		{"lse", d->heads, DT_F32},
		{"attn", d->heads * dt_value_dim(c), compute},
		{"resid2", second * h, compute, s},
		{"norm2", second * h, compute, s, .cheap = true},
		{"norm2.mean", layernorm * second, DT_F32, s},
		{"norm2.rstd", second, DT_F32, s},
		{"up", (c->gated ? 2 : 1) * d->ffn, compute},
		{"act", d->ffn, compute, .cheap = true},
		{"latent", c->kv_rank ? 2 * (c->q_rank + c->kv_rank) + c->rope_dim : 0, compute, s},
		{"routed", 2 * d->routed * h, compute, s, .cheap = true},
		{"post1", post * h, compute, s},
		{"post2", post * h, compute, s},
		{"post1.rstd", post, DT_F32, s},
		{"post2.rstd", post, DT_F32, s},
	};

	memcpy(ret, table, sizeof(table));
}

bool dt_activation_saved(const struct dt_activation *a, struct dt_keep keep, int layer)
{
	switch (keep.mode) {
	case DT_RECOMPUTE_NONE:
		return true;
	case DT_RECOMPUTE_SELECTIVE:
		return !a->cheap;
	case DT_RECOMPUTE_FULL:
		break;
	}
	return a->input && dt_keep_set(keep, layer) == 0;
}

int64_t dt_in_flight(int stages, int stage, int64_t microbatches)
{
	return microbatches < stages - stage ? microbatches : stages - stage;
}

double dt_kv_token_bytes(const struct dt_config *c, int tp, double element_bytes)
{
	int64_t heads = c->kv_heads >= tp ? (c->kv_heads + tp - 1) / tp : 1;

	if (c->kv_rank)
		return dt_mla_token_bytes(c->layers, c->kv_rank, c->rope_dim, element_bytes);

	return 2 * (double)(c->layers * heads * c->head_dim) * element_bytes;
}

double dt_mla_token_bytes(int64_t layers, int64_t kv_rank, int64_t rope_dim, double element_bytes)
{
	return (double)(layers * (kv_rank + rope_dim)) * element_bytes;
}

double dt_kv_bits(const struct dt_config *c, int choice)
{
	static const double bits[] = {0, 32, 16, 16, 8, 8, 8.5, 4.5};
	double head = (double)(c->kv_rank ? c->kv_rank + c->rope_dim : c->head_dim);

	return bits[choice] + (choice == DT_KV_INT8 ? 32.0 / head : 0);
}

int64_t dt_kv_tokens(const struct dt_config *c, int64_t len, int64_t block)
{
	int64_t n = c->window > 0 && c->window < len ? c->window : len;

	return (n + block - 1) / block * block;
}

int64_t dt_lora_params(const struct dt_params *t, const enum dt_role *roles, int nroles, int64_t r)
{
	int64_t n = 0;

	for (int i = 0; i < t->n; i++)
		for (int k = 0; k < nroles; k++)
			if (t->p[i].role == roles[k])
				n += r * (t->p[i].shape[0] + t->p[i].shape[1]);
	return n;
}

bool dt_lora_target(enum dt_role r, enum dt_lora_targets which)
{
	bool qv = r == DT_W_Q || r == DT_W_Q_UP || r == DT_W_V,
	     attention = r == DT_W_K || r == DT_W_O || r == DT_W_Q_A || r == DT_W_KV_A || r == DT_W_KV_B;
	bool mlp = r == DT_W_GATE || r == DT_W_UP || r == DT_W_DOWN ||
		   (r >= DT_W_SHARED_GATE && r <= DT_W_EXPERT_DOWN);

	return qv || (which >= DT_LORA_ATTENTION && attention) || (which >= DT_LORA_ALL && mlp);
}

/* Both follow the order of DT_FORMAT_MIXES. */
static enum dt_format_mix mix_of(enum dt_weight_format f)
{
	return f >= DT_WF_Q3_K_M && f < DT_WF_NF4 ? (enum dt_format_mix)(f - DT_WF_Q3_K_M + 1)
						  : DT_FORMAT_MIX_NONE;
}

/* The enum dt_format; -1: none. */
static int format_of(enum dt_weight_format f)
{
	static const enum dt_format plain[] = {DT_FMT_F32, DT_FMT_BF16, DT_FMT_F16};

	if (f < DT_WF_Q8_0)
		return (int)plain[f];
	if (f < DT_WF_Q3_K_M)
		/* both follow the order of DT_BLOCK_FORMATS */
		return (int)DT_FMT_Q8_0 + (int)(f - DT_WF_Q8_0);
	return mix_of(f) ? (int)dt_format_mix_base(mix_of(f)) : -1;
}

double dt_weight_bits(enum dt_weight_format f)
{
	const int format = format_of(f);

	if (format >= 0)
		return 8.0 * (double)dt_format_bytes((enum dt_format)format, 256) / 256;
	return f == DT_WF_NF4 ? 4.5 : f == DT_WF_NF4_DQ ? 4.127 : 8;
}

/* The format of matrix p in a mix. */
static enum dt_format mixed(const struct dt_config *c, const struct dt_param *p, enum dt_format_mix m)
{
	return p->role == DT_W_HEAD || (p->role == DT_W_EMBED && c->tied) ? DT_FMT_Q6_K
									  : dt_format_mix_of(m, c, p, false);
}

double dt_weight_bytes(const struct dt_config *c, const struct dt_param *p, double numel,
		       enum dt_weight_format f)
{
	double bits = dt_weight_bits(f);

	if (f >= DT_WF_NF4 && (p->ndim < 2 || p->layer < 0 || p->layer == c->layers))
		bits = 16; /* bitsandbytes does not quantise embeddings, norms and head */
	else if (p->ndim < 2 && f >= DT_WF_Q8_0)
		bits = 32;
	else if (mix_of(f))
		bits = 8.0 * (double)dt_format_bytes(mixed(c, p, mix_of(f)), 256) / 256;
	return numel * bits / 8;
}

int dt_weight_kept_as(const struct dt_config *c, const struct dt_param *p, enum dt_weight_format f)
{
	const int format = format_of(f);

	if (mix_of(f) && p->ndim == 2)
		return (int)dt_format_kept(mixed(c, p, mix_of(f)));
	return format < 0 || f == DT_WF_F16 ? -1 : (int)dt_format_kept((enum dt_format)format);
}

double dt_whole_weight_bytes(const struct dt_config *c, const struct dt_params *t, enum dt_weight_format f)
{
	double n = 0;

	for (int i = 0; i < t->n; i++)
		n += dt_weight_bytes(c, &t->p[i], (double)dt_param_numel(&t->p[i]), f);
	return n;
}
/* SPDX-License-Identifier: Apache-2.0 */
