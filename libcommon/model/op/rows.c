/*
 * Exchange of experts' rows. In training rows are copied in order of choice before the first product, sent to
 * the ranks of ep that have the experts, and sent back after the last.
 *
 * In serving the products look up each row by its choices. With ep, the router and the experts see the rows
 * of all ranks of the group; each rank processes those that chose its experts, and each row's sum is sent
 * back to its rank. A row is sent once to every rank; by choice it would be sent once for each expert: more
 * if a row uses at least as many experts as there are ranks. And no counts need to be exchanged first.
 */
#include "model/op/rule.h"

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Rows in order of choice, before they are sent or (owned) as received. */
static int choice_rows(struct dt_lower *lo, const char *name, const struct dt_node *n, bool owned,
		       enum dt_dtype type, int64_t cols)
{
	const struct dt_attr *a = &n->attr;
	int64_t ranks = owned ? lo->s->ep : 1, experts = a->expert_n / (owned ? lo->s->ep : 1);

	if (a->capacity && a->capacity < lo->p->rows[DT_ROWS_ALL])
		return dt_lo_value(lo, name, n->unit, type, DT_ROWS_NONE, ranks * experts * a->capacity,
				   cols);
	return dt_lo_value(lo, name, n->unit, type, DT_ROWS_ALL, ranks * least(a->used, experts), cols);
}

void dt_shape_dispatch(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	n->out[0] = choice_rows(lo, "dispatched", n, false, x.dtype, x.cols);
}

void dt_back_dispatch(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), choices = dt_lo_need(lo, n->in[1]),
	    dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_DISPATCH_B, n);

	m->in[0] = dy;
	m->in[1] = choices;
	m->out[0] = dx;
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_shape_exchange(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	if (dt_lo_gathers(lo))
		n->out[0] = dt_lo_value(lo, n->attr.back ? "own rows" : "all rows", n->unit, x.dtype,
					n->attr.back ? DT_ROWS_ALL : DT_ROWS_EXPERTS, 1, x.cols);
	else
		n->out[0] = choice_rows(lo, n->attr.back ? "returned" : "exchanged", n, !n->attr.back,
					x.dtype, x.cols);
	lo->info[n->out[0]].partial = lo->info[n->in[0]].partial;
}

void dt_back_exchange(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), choices = dt_lo_need(lo, n->in[1]),
	    dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_EXCHANGE, n);

	m->attr.back = !n->attr.back;
	m->in[0] = dy;
	m->in[1] = choices;
	m->out[0] = dx;
	lo->p->value[dx].gradient = true;
	dt_lo_add_grad(lo, n->in[0], dx);
}

/* Inserts a node between a node and the rows of its choices. */
static int rows_node(struct dt_lower *lo, enum dt_op op, const struct dt_node *reader,
		     const struct dt_attr *a)
{
	struct dt_node n = dt_node_blank(op, reader->unit, reader->name);

	n.ahead = reader->ahead;

	n.in[0] = reader->in[0];
	n.in[1] = reader->in[1];
	n.attr = *a;
	return dt_lo_put(lo, &n);
}

static void gather_rows(struct dt_lower *lo, struct dt_node *n)
{
	if (n->op == DT_OP_ROUTE)
		n->in[0] = rows_node(lo, DT_OP_EXCHANGE, n, &n->attr);
	else if (n->op == DT_OP_EXPERTS && n->attr.gated) /* computed from its choices */
		n->in[0] = dt_lo_from(lo, n->in[1])->in[0];
}

int dt_lo_own_rows(struct dt_lower *lo, const struct dt_node *n, int beside, int graph_value)
{
	struct dt_node back = dt_node_blank(DT_OP_EXCHANGE, n->unit, n->name), add = back;

	back.in[0] = n->out[0];
	back.attr = n->attr;
	back.attr.back = true;
	add.in[0] = dt_lo_put(lo, &back);
	if (beside < 0)
		return add.in[0];
	add.op = DT_OP_ADD;
	add.in[1] = beside;
	add.out[0] = graph_value;
	return dt_lo_put(lo, &add);
}

void dt_lo_choose_rows(struct dt_lower *lo, struct dt_node *n)
{
	struct dt_attr to_experts = n->attr;

	if (dt_lo_gathers(lo))
		gather_rows(lo, n);
	if (dt_lo_serves(lo) || !n->attr.experts || n->op == DT_OP_ROUTE)
		return;
	to_experts.back = n->op == DT_OP_COMBINE;
	if (n->op == DT_OP_EXPERTS && n->attr.gated)
		n->in[0] = rows_node(lo, DT_OP_DISPATCH, n, &to_experts);
	n->attr.gated = false;
	if (lo->s->ep > 1 && n->op != DT_OP_GATED && (n->op == DT_OP_COMBINE || !n->attr.down))
		n->in[0] = rows_node(lo, DT_OP_EXCHANGE, n, &to_experts);
	n->attr.owned = lo->s->ep > 1 && n->op != DT_OP_COMBINE;
}
/* SPDX-License-Identifier: Apache-2.0 */
