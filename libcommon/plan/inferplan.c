#include "plan/inferplan.h"

#include "base/arena.h"
#include "kernels/attention.h"
#include "kernels/ssm.h"

uint64_t dt_infer_cache_piece(const struct dt_config *c, int tp, enum dt_dtype cache, int64_t block_size)
{
	/* a KV head used by several ranks is copied */
	const struct dt_attn latent = {.kv_heads = 1, .head_dim = c->rope_dim + c->kv_rank},
			     heads = {.kv_heads = c->kv_heads >= tp ? c->kv_heads / tp : 1,
				      .head_dim = c->head_dim},
			     a = c->kv_rank ? latent : heads;

	/* nothing is kept of the rows of an encoder */
	return c->encoder || !dt_config_attends(c)
		       ? 0
		       : (uint64_t)(block_size * dt_kv_row(&a, cache) * dt_dtype_size(cache));
}

uint64_t dt_infer_cache(const struct dt_config *c, const struct dt_layout *l, struct dt_coords at,
			enum dt_dtype cache, int64_t blocks, int64_t block_size)
{
	int first, last;

	dt_layout_stage(l, c, at.pp, &first, &last);
	return (c->kv_rank ? 1 : 2) *
	       (uint64_t)((last - first - dt_config_ssm_layers(c, first, last)) * blocks) *
	       dt_infer_cache_piece(c, l->tp, cache, block_size);
}

uint64_t dt_infer_states(const struct dt_config *c, const struct dt_layout *l, struct dt_coords at, int64_t n)
{
	const struct dt_ssm ssm = {.heads = c->ssm_heads / l->tp,
				   .head_dim = c->ssm_head_dim,
				   .groups = c->ssm_groups >= l->tp ? c->ssm_groups / l->tp : 1,
				   .state = c->ssm_state,
				   .kernel = c->ssm_kernel};
	int first, last;

	dt_layout_stage(l, c, at.pp, &first, &last);
	return (uint64_t)(dt_config_ssm_layers(c, first, last) * n * dt_ssm_slot(&ssm)) * sizeof(float);
}

struct dt_config dt_infer_config_of(const struct dt_config *c)
{
	struct dt_config r = *c;

	if (c->encoder) {
		r.head = DT_ENCODER_NONE;
		r.pooler = r.tied = false;
		r.labels = 0;
	}
	return r;
}

uint64_t dt_infer_labels(const struct dt_config *c)
{
	const int64_t n = (c->hidden + c->labels) * (c->hidden + 1);

	return c->encoder && c->head == DT_ENCODER_CLASSES ? (uint64_t)n * sizeof(float) : 0;
}

int dt_infer_serves(const struct dt_config *c, struct dt_err *err)
{
	return c->encoder ? 0 : dt_config_servable(c, err);
}

struct dt_param dt_infer_part(const struct dt_param *p, const struct dt_local_param *part)
{
	struct dt_param r = *p;

	r.shape[0] = part->shape[0];
	r.shape[1] = p->ndim == 2 ? part->shape[1] : p->shape[1];
	if (p->experts)
		r.experts = p->experts * part->shape[0] / p->shape[0];
	return r;
}

bool dt_infer_packs(const struct dt_param *p)
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
	case DT_W_Q_A:
	case DT_W_Q_UP:
	case DT_W_KV_A:
	case DT_W_KV_B:
	case DT_W_SHARED_GATE:
	case DT_W_SHARED_UP:
	case DT_W_SHARED_DOWN:
	case DT_W_ROUTER:
	case DT_W_EXPERT_GATE:
	case DT_W_EXPERT_UP:
	case DT_W_EXPERT_DOWN:
	case DT_W_MTP_PROJ:
	case DT_W_SSM_Z:
	case DT_W_SSM_X:
	case DT_W_SSM_B:
	case DT_W_SSM_C:
	case DT_W_SSM_DT:
	case DT_W_SSM_OUT:
	case DT_W_CONV: /* of a tower's patches */
	case DT_W_CONNECTOR:
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
	if (p->role == DT_W_KV_B)
		return compute == DT_F32 ? DT_FMT_F32 : DT_FMT_BF16;
	if (weights >= 0)
		return (enum dt_format)weights;
	if (dt_format_info(stored)->dtype < 0)
		return dt_format_kept(stored);
	return compute == DT_F32 ? DT_FMT_F32 : DT_FMT_BF16;
}

enum dt_dtype dt_infer_plain_type(const struct dt_config *c, const struct dt_param *p, enum dt_dtype compute)
{
	bool scale = dt_param_is_scale(p) && c->norm == DT_NORM_RMS;

	return scale || p->role == DT_W_ROUTER_B || p->role == DT_W_ROUTER_SCORE_B ? DT_F32 : compute;
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

/* Bytes of each head's parts of the tensor, packed separately, with keys transposed. */
static uint64_t packed_heads(const struct dt_config *c, const struct dt_param *p, enum dt_format format)
{
	const int64_t plain = c->head_dim - c->rope_dim, rank = p->shape[1];

	return (uint64_t)(p->shape[0] / (plain + c->v_dim)) *
	       (dt_panels_bytes(format, rank, plain) + dt_panels_bytes(format, c->v_dim, rank));
}

uint64_t dt_infer_packed(const struct dt_config *c, const struct dt_param *p, enum dt_format format)
{
	int64_t parts = p->experts ? p->experts : 1;

	if (p->role == DT_W_KV_B)
		return packed_heads(c, p, format);
	return dt_infer_packs(p) ? (uint64_t)parts * dt_panels_bytes(format, p->shape[0] / parts, p->shape[1])
				 : 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
