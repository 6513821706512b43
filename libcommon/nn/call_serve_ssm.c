/*
 * Mamba-2 in serving: for each layer, a sequence's window and states are in a slot (kernels/ssm.h). A row at
 * position 0 begins anew.
 */
#include "nn/infer_priv.h"

static struct dt_ssm ssm_of(const struct dt_exec *x, const struct dt_node *n)
{
	return (struct dt_ssm){.batch = 1,
			       .seq = x->p->rows[DT_ROWS_ALL],
			       .heads = n->attr.heads,
			       .head_dim = n->attr.head_dim,
			       .groups = n->attr.kv_heads,
			       .state = n->attr.value_dim,
			       .kernel = n->attr.taps};
}

static struct dt_ssm_slots slots_of(const struct dt_exec *x, const struct dt_node *n, const struct dt_ssm *p)
{
	const struct dt_infer *m = x->owner;
	const struct dt_infer_batch *b = m->batch;

	return (struct dt_ssm_slots){.nseq = b->nseq,
				     .q_start = b->q_start,
				     .pos = b->pos,
				     .slot = b->state,
				     .slots = m->p.states,
				     .base = (float *)(void *)m->states.base +
					     dt_infer_before(m, n->unit, true) * m->p.states *
						     dt_ssm_slot(p)};
}

int dt_serve_ssm_conv(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ssm p = ssm_of(x, n);
	const struct dt_ssm_slots s = slots_of(x, n, &p);

	TRY(x->dev->ops->ssm_conv_step(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				       dt_call_joined(x->w, n->param), dt_call_joined(x->w, n->param + 3), &p,
				       &s));
	return 0;
}

int dt_serve_ssm_scan(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ssm p = ssm_of(x, n);
	const struct dt_ssm_slots s = slots_of(x, n, &p);

	TRY(x->dev->ops->ssm_scan_step(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				       dt_call_mat(x, n->in[1]), x->w[n->param[0]], x->w[n->param[1]],
				       x->w[n->param[2]], &p, &s));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
