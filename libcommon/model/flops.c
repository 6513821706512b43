/*
 * Model flops (Chowdhery et al. 2022, PaLM, appendix B): 2 a token for every weight that is multiplied,
 * the head's included and the embedding's not, plus 4 s (heads x head_dim) a layer for the two products of
 * attention, as if every token saw all s. Backward costs twice forward. For GPT this is the
 * 72 L h^2 (1 + s / 6h + V / 12hL) of Narayanan et al. 2021. Recomputation does not count.
 */
#include "model/params.h"

double dt_model_flops_per_token(const struct dt_config *c, int64_t seq, bool training)
{
	double h = (double)c->hidden, q = (double)(c->heads * c->head_dim);
	double kv = (double)(c->kv_heads * c->head_dim);
	double span = (double)(c->window > 0 && c->window < seq ? c->window : seq);
	double layer = 2 * h * q + 2 * h * kv + (c->gated ? 3 : 2) * h * (double)c->ffn;
	double forward =
		2 * ((double)c->layers * layer + h * (double)c->vocab) + (double)c->layers * 4 * span * q;

	return training ? 3 * forward : forward;
}
