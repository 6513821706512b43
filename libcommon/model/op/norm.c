/*
 * h = norm(x + delta), with the sum as a second result. Backward adds the gradient that the sum already has
 * in the same pass over memory; x and delta share the result.
 */
#include "model/op/rule.h"
#include "model/op/timed.h"

void dt_shape_norm(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];
	int64_t width = dt_lo_dim(lo, n->param[0], 0);
	bool whole = lo->info[n->in[0]].whole;

	n->attr.frozen = lo->s->graph->params.p[n->param[0]].frozen;
	for (int i = 0; i < 4; i++) {
		if (n->out[i] < 0)
			continue;
		n->out[i] =
			i < 2 ? dt_lo_value(lo, dt_lo_name(lo, n->out[i]), n->unit, x.dtype, x.rows, x.mul,
					    i ? x.cols : width)
			      : dt_lo_value(lo, dt_lo_name(lo, n->out[i]), n->unit, DT_F32, x.rows, x.mul, 1);
		lo->info[n->out[i]].whole = whole;
	}
}

void dt_back_norm(struct dt_lower *lo, const struct dt_node *n)
{
	int sum = n->out[1] >= 0 ? n->out[1] : n->in[0];
	int dy = dt_lo_grad(lo, n->out[0]), prev = dt_lo_grad(lo, sum), x, mean, rstd, dx;
	struct dt_node *m;

	if (dy < 0) /* the norm is not read */
		return;
	x = dt_lo_need(lo, sum);
	mean = n->out[2] >= 0 ? dt_lo_need(lo, n->out[2]) : -1;
	rstd = dt_lo_need(lo, n->out[3]);
	dx = dt_lo_like(lo, "d.resid", n->unit, sum);
	m = dt_lo_emit(lo, DT_OP_NORM_B, n);
	m->in[0] = dy;
	m->in[1] = prev;
	m->in[2] = x;
	m->in[3] = mean;
	m->in[4] = rstd;
	m->out[0] = dx;
	m->param[0] = n->param[0];
	m->param[1] = n->param[1];
	dt_lo_set_grad(lo, sum, dx);
	if (sum != n->in[0]) {
		dt_lo_add_grad(lo, n->in[0], dx);
		if (n->in[1] >= 0)
			dt_lo_add_grad(lo, n->in[1], dx);
	}
}

void dt_timed_norm(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, n->attr.layernorm ? DT_T_LAYERNORM : DT_T_RMSNORM, n->out[0]);
}

void dt_timed_norm_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, n->attr.layernorm ? DT_T_LAYERNORM_B : DT_T_RMSNORM_B, n->in[0]);
}
/* SPDX-License-Identifier: Apache-2.0 */
