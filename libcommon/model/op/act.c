/* Activation functions: y = f(u), and y = f(gate) up for gated MLPs. */
#include "model/op/rule.h"
#include "model/op/timed.h"

void dt_shape_act(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = dt_lo_like(lo, dt_lo_name(lo, n->out[0]), n->unit, n->in[0]);
	lo->info[n->out[0]].whole = lo->info[n->in[0]].whole;
}

static void backward(struct dt_lower *lo, const struct dt_node *n, enum dt_op op)
{
	int dy = dt_lo_grad(lo, n->out[0]), choices, u, du;
	struct dt_node *m;

	if (dy < 0) /* the backward product of the next linear has done this */
		return;
	u = dt_lo_need(lo, n->in[0]);
	choices = n->in[1] >= 0 ? dt_lo_need(lo, n->in[1]) : -1;
	du = dt_lo_like(lo, "d.up", n->unit, n->in[0]);
	m = dt_lo_emit(lo, op, n);
	m->in[0] = dy;
	m->in[1] = u;
	m->in[2] = choices;
	m->out[0] = du;
	dt_lo_add_grad(lo, n->in[0], du);
}

void dt_back_act(struct dt_lower *lo, const struct dt_node *n)
{
	backward(lo, n, DT_OP_ACT_B);
}

void dt_shape_gated(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value u = lo->p->value[n->in[0]];

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, u.dtype, u.rows, u.mul, u.cols / 2);
}

void dt_back_gated(struct dt_lower *lo, const struct dt_node *n)
{
	backward(lo, n, DT_OP_GATED_B);
}

void dt_timed_act(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_ACT, n->out[0]);
}

void dt_timed_act_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_ACT_B, n->in[0]);
}

void dt_timed_gated(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_GATED, n->out[0]);
}

void dt_timed_gated_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_GATED_B, n->in[0]);
}
/* SPDX-License-Identifier: Apache-2.0 */
