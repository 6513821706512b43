/*
 * Communication of tensor-parallel layers (Shoeybi et al. 2019, section 3; Korthikanti et al. 2022, section
 * 4.2.2). Forward, entering a tensor-parallel region costs nothing, or an all-gather with sequence
 * parallelism; leaving it is an all-reduce, or a reduce-scatter. Each is the backward of the other.
 */
#include "model/op/rule.h"
#include "model/op/timed.h"

void dt_shape_enter(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	n->out[0] = dt_lo_value(lo, x.name, n->unit, x.dtype, DT_ROWS_ALL, x.mul, x.cols);
	if (!lo->s->seq_parallel)
		lo->info[n->out[0]].same = n->in[0];
}

void dt_shape_leave(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	n->out[0] = dt_lo_value(lo, x.name, n->unit, x.dtype, DT_ROWS_STREAM, x.mul, x.cols);
	lo->info[n->out[0]].whole = true;
}

void dt_back_enter(struct dt_lower *lo, const struct dt_node *n)
{
	struct dt_node *m = dt_lo_emit(lo, DT_OP_LEAVE, n);

	m->in[0] = dt_lo_grad(lo, n->out[0]);
	dt_shape_leave(lo, m);
	lo->p->value[m->out[0]].gradient = true;
	dt_lo_add_grad(lo, n->in[0], m->out[0]);
}

void dt_back_leave(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]);
	struct dt_node *m;

	if (lo->s->seq_parallel) {
		m = dt_lo_emit(lo, DT_OP_ENTER, n);
		m->in[0] = dy;
		dt_shape_enter(lo, m);
		dy = m->out[0];
		lo->p->value[dy].gradient = true;
	}
	dt_lo_add_grad(lo, n->in[0], dy);
}

void dt_shape_add(struct dt_lower *lo, struct dt_node *n)
{
	const char *name = n->out[0] < 0 ? "output" : dt_lo_name(lo, n->out[0]);

	n->out[0] = dt_lo_like(lo, name, n->unit, n->in[0]);
	lo->info[n->out[0]].whole = lo->info[n->in[0]].whole;
	lo->info[n->out[0]].partial = lo->info[n->in[0]].partial;
}

void dt_back_add(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]);

	dt_lo_add_grad(lo, n->in[0], dy);
	if (n->in[1] >= 0)
		dt_lo_add_grad(lo, n->in[1], dy);
}

struct dt_node_cost dt_cost_enter(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);

	r.message = DT_MSG_GATHER;
	r.message_bytes = dt_cost_bytes(s, n->out[0]);
	return r;
}

struct dt_node_cost dt_cost_leave(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);
	bool cut = s->p->rows[DT_ROWS_STREAM] < s->p->rows[DT_ROWS_ALL];

	if (n->in[1] >= 0) /* of its own rows, and those that the others have sent */
		r.read += dt_cost_bytes(s, n->out[0]) - dt_cost_bytes(s, n->in[0]);
	r.message = cut ? DT_MSG_REDUCE_SCATTER : DT_MSG_ALL_REDUCE;
	r.message_bytes = dt_cost_bytes(s, n->in[0]);
	return r;
}

void dt_timed_add(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_ADD, n->out[0]);
}
/* SPDX-License-Identifier: Apache-2.0 */
