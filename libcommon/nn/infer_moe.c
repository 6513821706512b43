/*
 * Mixtures of experts (kernels/moe.h). The router scores every expert in f32; rows are sorted by the experts
 * that they go to, so that all experts are one product. A row's outputs are added up in the order of its
 * scores: nothing depends on who else is in the batch, and on a card nothing waits for the host.
 */
#include "nn/exec.h"
#include "nn/infer_priv.h"

#define TRY(call)                                                                                            \
	do {                                                                                                 \
		int rc_ = (call);                                                                            \
		if (rc_ < 0)                                                                                 \
			return dt_kernel_check(rc_, #call, err);                                             \
	} while (0)

/* score = x router^T, in f32 */
static int score(struct dt_infer *m, const struct dt_infer_layer *l, struct dt_tensor x, struct dt_tensor y,
		 struct dt_err *err)
{
	const struct dt_ops *o = m->dev->ops;

	if (m->p.dtype != DT_F32) {
		struct dt_tensor wide = dt_t2(m->b.wide, DT_F32, x.dim[0], x.dim[1]);

		TRY(o->convert(m->dev, wide, x));
		x = wide;
	}
	TRY(o->matmul(m->dev, y, x, false, l->router.w, true, DT_NONE, false));
	return 0;
}

int dt_infer_experts(struct dt_infer *m, const struct dt_infer_layer *l, int64_t rows, struct dt_err *err)
{
	const struct dt_config *c = &m->config;
	const struct dt_ops *o = m->dev->ops;
	const struct dt_moe moe = {c->experts, c->experts_used, c->router_unscaled};
	const struct dt_meet into = {m->b.first, m->b.at, m->b.from, c->experts_used},
			     within = {.first = m->b.first};
	const int64_t choices = rows * c->experts_used;
	struct dt_tensor x = dt_t2(m->b.norm, m->p.dtype, rows, c->hidden),
			 y = dt_t2(m->b.delta, m->p.dtype, rows, c->hidden);
	struct dt_tensor scores = dt_t2(m->b.score, DT_F32, rows, c->experts);
	struct dt_tensor up = dt_t2(m->b.up, m->p.dtype, choices, 2 * c->expert_ffn),
			 act = dt_t2(m->b.act, m->p.dtype, choices, c->expert_ffn),
			 out = dt_t2(m->b.expert_out, DT_F32, choices, c->hidden);
	int rc = score(m, l, x, scores, err);

	if (rc < 0)
		return rc;
	TRY(o->moe_route(m->dev, m->b.expert, m->b.weight, scores, &moe));
	TRY(o->moe_sort(m->dev, m->b.first, m->b.at, m->b.from, m->b.expert, choices, c->experts));
	TRY(m->dev->ops->packed_set_matmul(m->dev, up, x, l->experts_up, &into));
	TRY(o->gated_forward(m->dev, act, up, (enum dt_act_fn)c->act));
	TRY(m->dev->ops->packed_set_matmul(m->dev, out, act, l->experts_down, &within));
	TRY(o->moe_sum(m->dev, y, out, m->b.at, m->b.weight));
	return 0;
}
