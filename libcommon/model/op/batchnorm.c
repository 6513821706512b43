/*
 * y = relu(batch norm(x) + residual), with ReLU and residual optional (kernels/batchnorm.h). Statistics are
 * kept; backward reads x, and y to know where the ReLU was active.
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

static int statistics(struct dt_lower *lo, const struct dt_node *n, const char *name, int64_t rows)
{
	return dt_lo_value(lo, name, n->unit, DT_F32, DT_ROWS_NONE, rows, dt_lo_dim(lo, n->param[0], 0));
}

static int64_t groups_of(const struct dt_lower *lo)
{
	return lo->s->bn_groups > 0 ? lo->s->bn_groups : 1;
}

void dt_shape_batch_norm(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = dt_lo_like(lo, dt_lo_name(lo, n->out[0]), n->unit, n->in[0]);
	for (int i = 1; i < 3; i++)
		n->out[i] = statistics(lo, n, dt_lo_name(lo, n->out[i]), groups_of(lo));
}

void dt_back_batch_norm(struct dt_lower *lo, const struct dt_node *n)
{
	const int dy = dt_lo_grad(lo, n->out[0]), y = n->attr.relu ? dt_lo_need(lo, n->out[0]) : -1,
		  x = dt_lo_need(lo, n->in[0]), mean = dt_lo_need(lo, n->out[1]),
		  rstd = dt_lo_need(lo, n->out[2]);
	const bool masked = n->attr.relu && n->in[1] >= 0;
	const int dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]),
		  dres = masked ? dt_lo_like(lo, "d.residual", n->unit, n->in[1]) : -1,
		  sums = statistics(lo, n, "sums", 2 * groups_of(lo));
	struct dt_node *m = dt_lo_emit(lo, DT_OP_BATCH_NORM_B, n);

	lo->p->value[sums].room = true;
	lo->p->value[sums].extra = 1; /* a count, if norms span ranks */
	m->in[0] = dy;
	m->in[1] = y;
	m->in[2] = x;
	m->in[3] = mean;
	m->in[4] = rstd;
	m->out[0] = dx;
	m->out[1] = dres;
	m->out[2] = sums;
	m->param[0] = n->param[0];
	m->param[1] = n->param[1];
	dt_lo_add_grad(lo, n->in[0], dx);
	if (n->in[1] >= 0)
		dt_lo_add_grad(lo, n->in[1], masked ? dres : dy);
}

/* Reads x twice: for its statistics, then to normalise. */
struct dt_node_cost dt_cost_batch_norm(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);

	r.read += dt_cost_bytes(s, n->in[0]);
	return r;
}

/* Reads operands twice: for the two sums, then for the gradient. */
struct dt_node_cost dt_cost_batch_norm_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move_add(s, n);

	for (int i = 0; i < 3; i++)
		r.read += dt_cost_bytes(s, n->in[i]);
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
