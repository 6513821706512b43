/*
 * What a module for a further token reads (model/block/mtp.c): columns of two values side by side, for a
 * product that reads both; and, in serving, rows that are given with the batch: of the model's final hidden
 * states, or of a tower's patches.
 */
#include "model/op/rule.h"

void dt_shape_join(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value a = lo->p->value[n->in[0]], b = lo->p->value[n->in[1]];

	n->out[0] =
		dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, a.dtype, a.rows, a.mul, a.cols + b.cols);
	lo->info[n->out[0]].whole = lo->info[n->in[0]].whole;
}

void dt_back_join(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), d[2];
	struct dt_node *m;

	for (int i = 0; i < 2; i++)
		d[i] = dt_lo_like(lo, "d.join", n->unit, n->in[i]);
	m = dt_lo_emit(lo, DT_OP_JOIN_B, n);
	m->in[0] = dy;
	for (int i = 0; i < 2; i++)
		m->out[i] = d[i];
	for (int i = 0; i < 2; i++)
		dt_lo_add_grad(lo, n->in[i], d[i]);
}

void dt_shape_given(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_config *c = lo->s->c;

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute, DT_ROWS_STREAM, 1,
				c->sees ? dt_tower_pixels(&c->tower) : c->hidden);
	lo->info[n->out[0]].whole = true;
}
/* SPDX-License-Identifier: Apache-2.0 */
