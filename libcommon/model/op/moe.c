/*
 * Mixture of experts: each row goes to `used` experts. A choice is a row-expert pair; choices are sorted by
 * expert, so that one grouped product serves all. Experts' rows are choices x columns.
 *
 * tp distributes whole experts: each rank of the group has all rows and processes those that chose its
 * experts; an all-reduce over the group adds the results. Gradients of the choices' weights are then partial
 * too, and so is the router's backward, which is linear in them.
 * ep distributes a tensor-parallel rank's experts further over ranks with different tokens: rows are
 * exchanged there and back. A rank learns the number of rows when they arrive; memory is reserved for the
 * maximum.
 */
#include "model/op/rule.h"
#include "model/op/timed.h"

#include <math.h>
#include <string.h>

/* Which rows are routed. */
static enum dt_rows chosen_rows(const struct dt_lower *lo)
{
	return dt_lo_gathers(lo) ? DT_ROWS_EXPERTS : DT_ROWS_ALL;
}

void dt_shape_route(struct dt_lower *lo, struct dt_node *n)
{
	int64_t used = n->attr.used, experts = n->attr.experts, cols = lo->p->value[n->in[0]].cols;
	const enum dt_rows rows = chosen_rows(lo);
	bool wide = lo->s->compute != DT_F32;

	n->attr.frozen = lo->s->graph->params.p[n->param[0]].frozen;
	/* where each expert's rows start, sent and received; then expert, position and row of each choice */
	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, DT_I32, rows, 3 * used, 1);
	lo->p->value[n->out[0]].extra = 2 * (experts + 1);
	n->out[1] = dt_lo_value(lo, dt_lo_name(lo, n->out[1]), n->unit, DT_F32, rows, used, 1);
	n->out[2] = dt_lo_value(lo, dt_lo_name(lo, n->out[2]), n->unit, DT_F32, rows, 1, experts);
	if (wide)
		n->out[3] = dt_lo_room(lo, "wide rows", n->unit, DT_F32, rows, 1, cols);
	if (dt_lo_serves(lo)) {
		n->out[4] = -1;
		return;
	}
	n->out[4] = dt_lo_value(lo, dt_lo_name(lo, n->out[4]), n->unit, DT_F32, DT_ROWS_NONE,
				lo->s->microbatch, experts);
	if (!wide)
		return;
	n->out[5] = dt_lo_room(lo, "wide router", n->unit, DT_F32, DT_ROWS_NONE, experts, cols);
	lo->p->value[n->out[5]].extra = experts; /* the bias, after the weight */
}

void dt_back_route(struct dt_lower *lo, const struct dt_node *n)
{
	int dw = dt_lo_grad(lo, n->out[1]), scores = dt_lo_need(lo, n->out[2]),
	    choices = dt_lo_need(lo, n->out[0]), load = dt_lo_need(lo, n->out[4]),
	    x = dt_lo_need(lo, n->in[0]);
	int dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]), room[3] = {-1, -1, -1};
	int64_t cols = lo->p->value[n->in[0]].cols, experts = n->attr.experts;
	struct dt_node *m;

	room[0] = dt_lo_room(lo, "d.scores", n->unit, DT_F32, DT_ROWS_ALL, 1, experts);
	if (lo->s->compute != DT_F32) {
		room[1] = dt_lo_room(lo, "wide rows", n->unit, DT_F32, DT_ROWS_ALL, 1, cols);
		room[2] = dt_lo_room(lo, "wide router", n->unit, DT_F32, DT_ROWS_NONE, experts, cols);
	}
	m = dt_lo_emit(lo, DT_OP_ROUTE_B, n);
	m->in[0] = dw;
	m->in[1] = scores;
	m->in[2] = choices;
	m->in[3] = x;
	m->in[4] = load;
	m->out[0] = dx;
	memcpy(&m->out[1], room, sizeof(room));
	m->param[0] = n->param[0]; /* the bias used for choosing has no gradient */
	m->param[1] = n->param[4];
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_shape_experts(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];
	int64_t rows = 0, cols;

	for (int i = 0; i < 3; i++)
		rows += dt_lo_dim(lo, n->param[i], 0);
	cols = rows / (n->attr.expert_n / (n->attr.owned ? lo->s->ep : 1));
	n->out[0] = dt_lo_serves(lo) ? dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit,
						   n->attr.down ? DT_F32 : lo->s->compute, chosen_rows(lo),
						   n->attr.used, cols)
				     : dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, x.dtype, x.rows,
						   x.mul, cols);
	lo->info[n->out[0]].partial = n->attr.down && lo->s->tp > 1;
}

static void weights(struct dt_lower *lo, const struct dt_node *n, int dy)
{
	enum dt_list before = lo->to;
	struct dt_node *m;
	int choices, x;

	if (lo->s->split)
		lo->to = DT_LIST_WEIGHTS;
	choices = dt_lo_need(lo, n->in[1]);
	x = dt_lo_need(lo, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_EXPERTS_DW, n);
	m->in[0] = dy;
	m->in[1] = choices;
	m->in[2] = x;
	memcpy(m->param, n->param, 3 * sizeof(*m->param));
	lo->to = before;
}

static void biases(struct dt_lower *lo, const struct dt_node *n, int dy)
{
	int choices;
	struct dt_node *m;

	if (n->param[3] < 0)
		return;
	choices = dt_lo_need(lo, n->in[1]);
	m = dt_lo_emit(lo, DT_OP_EXPERTS_DB, n);
	m->in[0] = dy;
	m->in[1] = choices;
	memcpy(m->param, n->param + 3, 3 * sizeof(*m->param));
}

void dt_back_experts(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), choices, dx;
	struct dt_node *m;

	biases(lo, n, dy);
	weights(lo, n, dy);
	choices = dt_lo_need(lo, n->in[1]);
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
				dt_lo_gathers(lo) ? DT_ROWS_EXPERTS
				: lo->s->tp > 1	  ? DT_ROWS_ALL
						  : DT_ROWS_STREAM,
				1, x.cols);
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

/* A rank's rows if choices are spread evenly over experts: its tokens' choices over tp. */
static double even_rows(const struct dt_cost_site *s, const struct dt_node *n)
{
	return (double)(s->p->rows[DT_ROWS_ALL] * n->attr.used) / s->tp;
}

static double row_bytes(const struct dt_cost_site *s, int v)
{
	return v < 0 ? 0 : (double)(s->p->value[v].cols * dt_dtype_size(s->p->value[v].dtype));
}

/* Fraction of this rank's experts that get at least one row, if rows are routed at random. */
static double met(const struct dt_cost_site *s, const struct dt_node *n)
{
	double rows = (double)s->p->rows[DT_ROWS_ALL] * s->ep;

	return 1 - pow(1 - (double)n->attr.used / (double)n->attr.experts, rows);
}

/* Counts only the expected rows, not the reserved ones, and only weights of experts that get rows. */
static struct dt_node_cost grouped(const struct dt_cost_site *s, const struct dt_node *n, int in)
{
	double rows = even_rows(s, n), numel = dt_cost_numel(s, n, 0, 3);
	double experts = (double)n->attr.expert_n / (n->attr.owned ? s->ep : 1);
	struct dt_node_cost r = {.read = rows * row_bytes(s, in) + met(s, n) * numel * dt_cost_weight(s),
				 .written = rows * row_bytes(s, n->out[0])};

	return dt_cost_product(r, rows, numel / experts);
}

struct dt_node_cost dt_cost_experts(const struct dt_cost_site *s, const struct dt_node *n)
{
	return grouped(s, n, n->in[0]);
}

struct dt_node_cost dt_cost_experts_dx(const struct dt_cost_site *s, const struct dt_node *n)
{
	return grouped(s, n, n->in[0]);
}

struct dt_node_cost dt_cost_experts_dw(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = grouped(s, n, n->in[0]);
	double numel = dt_cost_numel(s, n, 0, 3);

	r.read += even_rows(s, n) * row_bytes(s, n->in[2]) - met(s, n) * numel * dt_cost_weight(s);
	r.written = 4 * numel;
	return r;
}

struct dt_node_cost dt_cost_experts_db(const struct dt_cost_site *s, const struct dt_node *n)
{
	const double numel = 4 * dt_cost_numel(s, n, 0, 3);

	return (struct dt_node_cost){.read = even_rows(s, n) * row_bytes(s, n->in[0]) + numel,
				     .written = numel};
}

/* Reads and writes rows. */
static struct dt_node_cost moved(const struct dt_cost_site *s, const struct dt_node *n, int by_choice)
{
	double rows = even_rows(s, n);
	struct dt_node_cost r = dt_cost_move(s, n);

	for (int i = 0; i < DT_NODE_IN; i++)
		r.read -= n->in[i] == by_choice ? dt_cost_bytes(s, by_choice) : 0;
	for (int i = 0; i < DT_NODE_OUT; i++)
		r.written -= n->out[i] == by_choice ? dt_cost_bytes(s, by_choice) : 0;
	r.read += rows * row_bytes(s, by_choice);
	return r;
}

struct dt_node_cost dt_cost_dispatch(const struct dt_cost_site *s, const struct dt_node *n)
{
	return moved(s, n, n->out[0]);
}

struct dt_node_cost dt_cost_dispatch_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	return moved(s, n, n->in[0]);
}

struct dt_node_cost dt_cost_combine(const struct dt_cost_site *s, const struct dt_node *n)
{
	return moved(s, n, n->in[0]);
}

struct dt_node_cost dt_cost_combine_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = moved(s, n, n->in[1]);

	r.written += even_rows(s, n) * row_bytes(s, n->out[0]) - dt_cost_bytes(s, n->out[0]);
	return r;
}

/* All-gather of rows (model/op/rows.c), or reduce-scatter of their sums on the way back. */
static struct dt_node_cost gathered(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);

	r.message = n->attr.back ? DT_MSG_REDUCE_SCATTER : DT_MSG_GATHER;
	r.message_bytes = dt_cost_bytes(s, n->attr.back ? n->in[0] : n->out[0]);
	r.over_ep = true;
	return r;
}

/* Each rank gets an even share of the rows, including this one. */
struct dt_node_cost dt_cost_send_rows(const struct dt_cost_site *s, const struct dt_node *n)
{
	double bytes = even_rows(s, n) * row_bytes(s, n->in[0]);

	if (s->p->value[n->attr.back ? n->in[0] : n->out[0]].rows == DT_ROWS_EXPERTS)
		return gathered(s, n);

	return (struct dt_node_cost){.read = bytes,
				     .written = bytes,
				     .message = DT_MSG_ALL_TO_ALL,
				     .message_bytes = bytes,
				     .over_ep = true};
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

/* One product for each local expert, with its share of the choices in v. */
static void each(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t,
		 enum dt_timed op, int v)
{
	double in = (double)s->param[n->param[0]][1], out = (double)s->p->value[v].cols, rows = 0, local;

	for (int i = 0; i < 3; i++)
		if (n->param[i] >= 0)
			rows += (double)s->param[n->param[i]][0];
	local = rows / out;
	dt_timed_put(t, op, local, even_rows(s, n) / local, op == DT_T_MUL_X ? in : out,
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
