#include "plan/inferplan.h"

#include "base/arena.h"
#include "kernels/attention.h"
#include "model/activations.h"

uint64_t dt_infer_work(const struct dt_infer_shape *s, uint64_t ret[DT_I_N])
{
	const struct dt_config *c = s->config;
	int64_t rows = s->max_tokens, e = dt_dtype_size(s->compute);
	int64_t choices = rows * c->experts_used, experts = c->experts > 0;
	int64_t width = experts ? c->experts_used * c->expert_ffn : c->ffn;
	int64_t angles = c->pos == DT_POS_ROPE ? s->positions * c->head_dim / 2 : 0;
	int64_t local = c->rope_local_theta > 0 ? angles : 0;
	struct dt_local_dims d;
	uint64_t sum = 0;

	dt_local_dims(c, 1, 0, &d);
	const int64_t bytes[DT_I_N] = {
		[DT_I_RESID] = rows * c->hidden * e,
		[DT_I_RESID2] = rows * c->hidden * e,
		[DT_I_NORM] = rows * c->hidden * e,
		[DT_I_DELTA] = rows * c->hidden * e,
		[DT_I_QKV] = rows * d.qkv * e,
		[DT_I_ATTN] = rows * c->heads * c->head_dim * e,
		[DT_I_UP] = rows * (c->gated ? 2 : 1) * width * e,
		[DT_I_ACT] = rows * width * e,
		[DT_I_PICKED] = s->max_seqs * c->hidden * e,
		[DT_I_MEAN] = rows * 4,
		[DT_I_RSTD] = rows * 4,
		[DT_I_COS] = angles * 4,
		[DT_I_SIN] = angles * 4,
		[DT_I_LOCAL_COS] = local * 4,
		[DT_I_LOCAL_SIN] = local * 4,
		[DT_I_WIDE] = s->compute == DT_F32 ? 0 : experts * rows * c->hidden * 4,
		[DT_I_SCORE] = rows * c->experts * 4,
		[DT_I_WEIGHT] = choices * 4,
		[DT_I_EXPERT_OUT] = choices * c->hidden * 4,
		[DT_I_EXPERT] = choices * 4,
		[DT_I_AT] = choices * 4,
		[DT_I_FROM] = choices * 4,
		[DT_I_FIRST] = (c->experts + 1) * 4,
	};

	for (int i = 0; i < DT_I_N; i++) {
		ret[i] = dt_align_up((uint64_t)bytes[i]);
		sum += ret[i];
	}
	return sum;
}

uint64_t dt_infer_cache_row(const struct dt_infer_shape *s)
{
	const struct dt_attn a = {.kv_heads = s->config->kv_heads, .head_dim = s->config->head_dim};

	return (uint64_t)(dt_kv_row(&a, s->cache) * dt_dtype_size(s->cache));
}

uint64_t dt_infer_cache(const struct dt_infer_shape *s)
{
	return 2 * (uint64_t)(s->config->layers * s->blocks * s->block_size) * dt_infer_cache_row(s);
}

bool dt_infer_is_matrix(const struct dt_param *p)
{
	switch (p->role) {
	case DT_W_EMBED:
	case DT_W_HEAD:
	case DT_W_Q:
	case DT_W_K:
	case DT_W_V:
	case DT_W_O:
	case DT_W_GATE:
	case DT_W_UP:
	case DT_W_DOWN:
	case DT_W_ROUTER:
	case DT_W_EXPERT_GATE:
	case DT_W_EXPERT_UP:
	case DT_W_EXPERT_DOWN:
		return true;
	default:
		return false;
	}
}

enum dt_format dt_infer_format(const struct dt_param *p, int weights, enum dt_format stored,
			       enum dt_dtype compute)
{
	if (p->role == DT_W_ROUTER)
		return DT_FMT_F32;
	if (weights >= 0)
		return (enum dt_format)weights;
	if (stored == DT_FMT_Q5_0) /* which holds the same numbers */
		return DT_FMT_Q8_0;
	if (dt_format_info(stored)->dtype < 0)
		return stored;
	return compute == DT_F32 ? DT_FMT_F32 : DT_FMT_BF16;
}

bool dt_infer_packs(const struct dt_param *p)
{
	return dt_infer_is_matrix(p) && p->role != DT_W_ROUTER;
}

enum dt_dtype dt_infer_plain_type(const struct dt_config *c, const struct dt_param *p, enum dt_dtype compute)
{
	bool scale = dt_param_is_scale(p) && c->norm == DT_NORM_RMS;

	return scale || dt_infer_is_matrix(p) ? DT_F32 : compute;
}

uint64_t dt_infer_place(const struct dt_config *c, const struct dt_param *p, enum dt_dtype compute,
			uint64_t *at)
{
	uint64_t start = p->fused ? *at : dt_align_up(*at);
	uint64_t times = p->role == DT_W_EXPERT_GATE ? 2 : p->role != DT_W_EXPERT_UP;

	if (dt_infer_packs(p))
		return *at;
	*at = start + times * (uint64_t)dt_param_numel(p) *
			      (uint64_t)dt_dtype_size(dt_infer_plain_type(c, p, compute));
	return start;
}

uint64_t dt_infer_packed(const struct dt_param *p, enum dt_format format)
{
	int64_t parts = p->experts ? p->experts : 1;

	return dt_infer_packs(p) ? (uint64_t)parts * dt_panels_bytes(format, p->shape[0] / parts, p->shape[1])
				 : 0;
}
