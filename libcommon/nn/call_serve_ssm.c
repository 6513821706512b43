/*
 * Mamba-2 in serving: each sequence's window and states are in the block of the cache that its table has
 * first, a slot of kernels/ssm.h for each layer. A row at position 0 begins anew.
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
				     .slot = b->block_table,
				     .slot_stride = b->max_blocks,
				     .slots = m->p.blocks,
				     .base = (float *)(void *)m->cache.base +
					     (n->unit - m->first_layer) * m->p.blocks * dt_ssm_slot(p)};
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
