#include "nn/model.h"

#include <errno.h>
#include <stdlib.h>

void *dt_plan_address(const struct dt_memory_plan *plan, char *base, enum dt_buf_id id, int layer, int act)
{
	const struct dt_buf *b = dt_memory_find(plan, id, layer, act);

	return b ? base + b->offset : NULL;
}

static void bind_rope(struct dt_model *m, const struct dt_memory_plan *plan, char *base, int64_t seq)
{
	float *rope = dt_plan_address(plan, base, DT_B_ROPE, -1, -1);
	int64_t half = seq * m->c->head_dim / 2;

	if (!rope)
		return;
	dt_rope_table(m->c, seq, rope, rope + half);
	m->rope_cos = rope;
	m->rope_sin = rope + half;
	m->rope_positions = seq;
}

int dt_pass_bind(struct dt_pass *p, struct dt_model *m, const struct dt_train_shape *s,
		 const struct dt_memory_plan *plan, char *base, struct dt_err *err)
{
#define AT(id) dt_plan_address(plan, base, id, -1, -1)
	int n = m->last - m->first;

	*p = (struct dt_pass){.rows = s->microbatch * s->seq,
			      .batch = s->microbatch,
			      .seq = s->seq,
			      .recompute = s->recompute,
			      .loss_chunk = plan->loss_chunk,
			      .ids = AT(DT_B_IDS),
			      .targets = AT(DT_B_TARGETS),
			      .pos = AT(DT_B_POS),
			      .delta = AT(DT_B_DELTA),
			      .dresid = AT(DT_B_DRESID),
			      .dnorm = AT(DT_B_DNORM),
			      .dsmall = AT(DT_B_DSMALL),
			      .dlarge = AT(DT_B_DLARGE),
			      .final_resid = AT(DT_B_FINAL_RESID),
			      .final_norm = AT(DT_B_FINAL_NORM),
			      .final_mean = AT(DT_B_FINAL_MEAN),
			      .final_rstd = AT(DT_B_FINAL_RSTD),
			      .logits = AT(DT_B_LOGITS),
			      .dlogits = AT(DT_B_DLOGITS),
			      .ce = AT(DT_B_CE_STATS)};
#undef AT
	if (!p->dlogits)
		p->dlogits = p->logits;
	p->act = calloc((size_t)n, sizeof(*p->act));
	if (!p->act)
		return dt_err_sys(err, -ENOMEM, "cannot bind the activations");
	for (int l = 0; l < n; l++)
		for (int a = 0; a < DT_ACT_N; a++)
			p->act[l][a] = dt_activation_saved(a, s->recompute)
					       ? dt_plan_address(plan, base, DT_B_ACT, m->first + l, a)
					       : dt_plan_address(plan, base, DT_B_ACT_SHARED, -1, a);
	for (int64_t i = 0; i < p->rows; i++)
		p->pos[i] = (int32_t)(i % s->seq);
	bind_rope(m, plan, base, s->seq);
	return 0;
}

void dt_pass_release(struct dt_pass *p)
{
	free(p->act);
	p->act = NULL;
}
