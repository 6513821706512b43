/*
 * Mixtures of experts: each row goes to `used` of the experts. A choice is one row at one expert; choices are
 * sorted by expert, so that one product serves all of them. Rows of experts are choices x columns.
 */
#include "model/op/rule.h"
#include "model/op/timed.h"

#include <math.h>
#include <string.h>

void dt_shape_route(struct dt_lower *lo, struct dt_node *n)
{
	int64_t used = n->attr.used;

	/* expert, place and row of every choice, and the first row of every expert and of none */
	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, DT_I32, DT_ROWS_ALL, 3 * used, 1);
	lo->p->value[n->out[0]].extra = n->attr.experts + 1;
	n->out[1] = dt_lo_value(lo, dt_lo_name(lo, n->out[1]), n->unit, DT_F32, DT_ROWS_ALL, used, 1);
	n->out[2] =
		dt_lo_value(lo, dt_lo_name(lo, n->out[2]), n->unit, DT_F32, DT_ROWS_ALL, 1, n->attr.experts);
	if (lo->s->compute != DT_F32)
		n->out[3] = dt_lo_room(lo, "wide rows", n->unit, DT_F32, DT_ROWS_ALL, 1,
				       lo->p->value[n->in[0]].cols);
}

void dt_back_route(struct dt_lower *lo, const struct dt_node *n)
{
	int dw = dt_lo_grad(lo, n->out[1]), scores = dt_lo_need(lo, n->out[2]),
	    choices = dt_lo_need(lo, n->out[0]), x = dt_lo_need(lo, n->in[0]);
	int dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_ROUTE_B, n);

	m->in[0] = dw;
	m->in[1] = scores;
	m->in[2] = choices;
	m->in[3] = x;
	m->out[0] = dx;
	memcpy(m->param, n->param, sizeof(m->param));
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_shape_experts(struct dt_lower *lo, struct dt_node *n)
{
	bool down = n->param[1] < 0 && dt_lo_cut(lo, n->param[0]) == 1;
	int64_t rows = 0, experts = n->attr.experts / lo->s->ep;

	for (int i = 0; i < 3; i++)
		rows += dt_lo_dim(lo, n->param[i], 0);
	n->out[0] =
		dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, n->attr.gated ? lo->s->compute : DT_F32,
			    DT_ROWS_ALL, n->attr.used, rows / experts);
	lo->info[n->out[0]].partial = down;
}

void dt_back_experts(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), choices = dt_lo_need(lo, n->in[1]), x, dx;
	struct dt_node *m;

	x = dt_lo_need(lo, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_EXPERTS_DW, n);
	m->in[0] = dy;
	m->in[1] = choices;
	m->in[2] = x;
	memcpy(m->param, n->param, 3 * sizeof(*m->param));
	dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_EXPERTS_DX, n);
	m->in[0] = dy;
	m->in[1] = choices;
	m->out[0] = dx;
	memcpy(m->param, n->param, 3 * sizeof(*m->param));
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_shape_combine(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute,
				lo->s->tp > 1 ? DT_ROWS_ALL : DT_ROWS_STREAM, 1, x.cols);
	lo->info[n->out[0]].partial = lo->info[n->in[0]].partial;
	lo->info[n->out[0]].whole = !lo->info[n->in[0]].partial;
}

void dt_back_combine(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), routed = dt_lo_need(lo, n->in[0]),
	    choices = dt_lo_need(lo, n->in[1]), weights = dt_lo_need(lo, n->in[2]);
	int dx = dt_lo_like(lo, "d.routed", n->unit, n->in[0]),
	    dw = dt_lo_like(lo, "d.weights", n->unit, n->in[2]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_COMBINE_B, n);

	m->in[0] = dy;
	m->in[1] = routed;
	m->in[2] = choices;
	m->in[3] = weights;
	m->out[0] = dx;
	m->out[1] = dw;
	dt_lo_add_grad(lo, n->in[0], dx);
	dt_lo_add_grad(lo, n->in[2], dw);
	if (n->in[3] >= 0)
		dt_lo_add_grad(lo, n->in[3], dy);
}

/* Scores of all experts. */
struct dt_node_cost dt_cost_route(const struct dt_cost_site *s, const struct dt_node *n)
{
	return dt_cost_product(dt_cost_move(s, n), (double)dt_value_rows(s->p, n->in[0]),
			       dt_cost_numel(s, n, 0, 1));
}

struct dt_node_cost dt_cost_route_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	return dt_cost_product(dt_cost_move_add(s, n), 2 * (double)dt_value_rows(s->p, n->in[3]),
			       dt_cost_numel(s, n, 0, 1));
}

/* Choices are spread evenly over experts: those of this rank multiply as many rows as it has choices. */
static struct dt_node_cost of_choices(const struct dt_cost_site *s, const struct dt_node *n,
				      struct dt_node_cost r, int v)
{
	return dt_cost_product(r, (double)dt_value_rows(s->p, v),
			       (double)(s->p->value[v].cols * s->param[n->param[0]][1]));
}

/* Experts that at least one row is sent to, were rows sent at random: only these are read. */
static struct dt_node_cost met(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);
	double missed =
		pow(1 - (double)n->attr.used / (double)n->attr.experts, (double)s->p->rows[DT_ROWS_ALL]);

	r.read -= missed * dt_cost_numel(s, n, 0, 3) * dt_cost_weight(s);
	return r;
}

struct dt_node_cost dt_cost_experts(const struct dt_cost_site *s, const struct dt_node *n)
{
	return of_choices(s, n, met(s, n), n->out[0]);
}

struct dt_node_cost dt_cost_experts_dx(const struct dt_cost_site *s, const struct dt_node *n)
{
	return of_choices(s, n, met(s, n), n->in[0]);
}

struct dt_node_cost dt_cost_experts_dw(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);
	double numel = dt_cost_numel(s, n, 0, 3);

	r.read -= numel * dt_cost_weight(s);
	r.written += 4 * numel;
	return of_choices(s, n, r, n->in[0]);
}

/* ---- as measured ---- */

void dt_timed_route(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_put(t, DT_T_MUL, 1, (double)dt_value_rows(s->p, n->in[0]), (double)n->attr.experts,
		     (double)s->p->value[n->in[0]].cols);
}

void dt_timed_route_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	double rows = (double)dt_value_rows(s->p, n->in[3]), in = (double)s->p->value[n->in[3]].cols,
	       experts = (double)n->attr.experts;

	dt_timed_put(t, DT_T_MUL_X, 1, rows, in, experts);
	dt_timed_put(t, DT_T_MUL_W, 1, rows, experts, in);
	t->part[1].more = DT_T_MUL_ADD;
}

/* One product for each of this rank's experts, with its share of the choices in v. */
static void each(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t,
		 enum dt_timed op, int v)
{
	double in = (double)s->param[n->param[0]][1], out = (double)s->p->value[v].cols, rows = 0, local;

	for (int i = 0; i < 3; i++)
		if (n->param[i] >= 0)
			rows += (double)s->param[n->param[i]][0];
	local = rows / out;
	dt_timed_put(t, op, local, (double)dt_value_rows(s->p, v) / local, op == DT_T_MUL_X ? in : out,
		     op == DT_T_MUL_X ? out : in);
}

void dt_timed_experts(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	each(s, n, t, DT_T_MUL, n->out[0]);
}

void dt_timed_experts_dx(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	each(s, n, t, DT_T_MUL_X, n->in[0]);
}

void dt_timed_experts_dw(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	each(s, n, t, DT_T_MUL_W, n->in[0]);
	t->part[0].more = DT_T_MUL_ADD;
}
/* SPDX-License-Identifier: Apache-2.0 */
