/*
 * y = x w^T + b with one to three tensors joined along their rows. Backward: db += column sums of dy, dw +=
 * dy^T x, dx = dy w. In 8 bits (kernels/fp8.h) operands are quantised first.
 */
#include "model/op/rule.h"
#include "model/op/timed.h"

#include <string.h>

/* If rows have LoRA adapters (kernels/lora.h): scratch for their products with a, for all joined linears. */
static int adapters_room(struct dt_lower *lo, const struct dt_node *n, int like)
{
	const struct dt_value y = lo->p->value[like];
	int64_t linears = 0;

	for (int i = 0; i < 3; i++)
		linears += n->param[i] >= 0;
	return dt_lo_room(lo, "adapter rows", n->unit, DT_F32, y.rows, y.mul, linears * lo->s->adapters);
}

void dt_shape_linear(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value *x = &lo->p->value[n->in[0]];
	int cut = dt_lo_cut(lo, n->param[0]);
	int64_t out, in;

	dt_lo_linear_dims(lo, n, &out, &in);
	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute,
				cut < 0 ? x->rows : DT_ROWS_ALL, x->mul, out);
	lo->info[n->out[0]].partial = cut == 1;
	lo->info[n->out[0]].whole = cut < 0 && lo->info[n->in[0]].whole;
	if (lo->s->adapters)
		n->out[2] = adapters_room(lo, n, n->out[0]);
}

static void biases(struct dt_lower *lo, const struct dt_node *n, int dy)
{
	struct dt_node *c;

	if (n->param[3] < 0)
		return;
	c = dt_lo_emit(lo, DT_OP_COLSUM, n);
	c->in[0] = dy;
	memcpy(&c->param[3], &n->param[3], 3 * sizeof(*c->param));
}

void dt_lo_weights(struct dt_lower *lo, const struct dt_node *n, int dy)
{
	enum dt_list before = lo->to;
	struct dt_node *w;
	int x;

	if (lo->s->split)
		lo->to = DT_LIST_WEIGHTS;
	x = dt_lo_need(lo, n->in[0]);
	w = dt_lo_emit(lo, DT_OP_DW, n);
	w->in[0] = dy;
	w->in[1] = x;
	memcpy(w->param, n->param, 3 * sizeof(*w->param));
	lo->to = before;
}

/* Quantises x (or n's tensors if x is -1), plain and transposed as requested. Returns the scale. */
static int quantize(struct dt_lower *lo, const struct dt_node *n, int x, enum dt_dtype type, int *plain,
		    int *turned)
{
	struct dt_node *q = dt_lo_emit(lo, DT_OP_QUANTIZE, n);
	int64_t rows, cols, numel;
	int at[3] = {-1, -1, -1};

	if (x >= 0) {
		numel = dt_value_numel(lo->p, x);
	} else {
		dt_lo_linear_dims(lo, n, &rows, &cols);
		numel = rows * cols;
		memcpy(q->param, n->param, 3 * sizeof(*q->param));
	}
	q->in[0] = x;
	/* q stays valid: creating values does not move it */
	if (plain)
		at[0] = *plain = dt_lo_value(lo, "8 bits", n->unit, type, DT_ROWS_NONE, numel, 1);
	if (turned)
		at[1] = *turned =
			dt_lo_value(lo, "8 bits, transposed", n->unit, type, DT_ROWS_NONE, numel, 1);
	at[2] = dt_lo_value(lo, "8-bit scale", n->unit, DT_F32, DT_ROWS_NONE, 1, 1);
	memcpy(q->out, at, sizeof(at));
	return at[2];
}

/* The forward product in 8 bits. */
void dt_lo_linear8(struct dt_lower *lo, const struct dt_node *n)
{
	int x8, w8, sx = quantize(lo, n, dt_lo_real(lo, n->in[0]), DT_E4M3, &x8, NULL),
		    sw = quantize(lo, n, -1, DT_E4M3, &w8, NULL);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_LINEAR8, n);

	m->in[0] = x8;
	m->in[1] = sx;
	m->in[2] = w8;
	m->in[3] = sw;
	m->out[0] = n->out[0];
	memcpy(m->param, n->param, sizeof(m->param));
}

static void weights8(struct dt_lower *lo, const struct dt_node *n, int dyt, int sdy)
{
	int xt, sx = quantize(lo, n, dt_lo_need(lo, n->in[0]), DT_E4M3, NULL, &xt);
	struct dt_node *w = dt_lo_emit(lo, DT_OP_DW8, n);

	w->in[0] = dyt;
	w->in[1] = sdy;
	w->in[2] = xt;
	w->in[3] = sx;
	memcpy(w->param, n->param, 3 * sizeof(*w->param));
}

/* Both backward products in 8 bits; if weight gradients are split off, dy is quantised again for them. */
static int backward8(struct dt_lower *lo, const struct dt_node *n, int dy)
{
	int dy8, dyt, wt, dx, sdy, sw;
	struct dt_node *m;

	sdy = quantize(lo, n, dy, DT_E5M2, &dy8, lo->s->split ? NULL : &dyt);
	sw = quantize(lo, n, -1, DT_E4M3, NULL, &wt);
	dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_DX8, n);
	m->in[0] = dy8;
	m->in[1] = sdy;
	m->in[2] = wt;
	m->in[3] = sw;
	m->out[0] = dx;
	memcpy(m->param, n->param, 3 * sizeof(*m->param));
	if (lo->s->split) {
		lo->to = DT_LIST_WEIGHTS;
		sdy = quantize(lo, n, dy, DT_E5M2, NULL, &dyt);
	}
	weights8(lo, n, dyt, sdy);
	lo->to = DT_LIST_BACKWARD;
	return dx;
}

/* The activation whose result only this linear reads: dx and the activation's backward become one product. */
static const struct dt_node *activation_of(const struct dt_lower *lo, const struct dt_node *n)
{
	const struct dt_node *a = dt_lo_from(lo, n->in[0]);

	if (!a || lo->info[n->in[0]].uses != 1 || (a->op != DT_OP_ACT && a->op != DT_OP_LINEAR_ACT))
		return NULL;
	return a;
}

void dt_back_linear(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), dx;
	const struct dt_node *a = activation_of(lo, n);
	struct dt_node *m;

	biases(lo, n, dy);
	if (dt_lo_in_8_bits(lo, n)) {
		dt_lo_add_grad(lo, n->in[0], backward8(lo, n, dy));
		return;
	}
	dt_lo_weights(lo, n, dy);
	if (a) {
		int u = a->op == DT_OP_ACT ? a->in[0] : a->out[0], kept = dt_lo_need(lo, u);

		dx = dt_lo_like(lo, "d.up", n->unit, u);
		m = dt_lo_emit(lo, DT_OP_DX_ACT, n);
		m->attr.act = a->attr.act;
		m->in[1] = kept;
		dt_lo_set_grad(lo, u, dx); /* the activation's backward is done */
	} else {
		dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
		m = dt_lo_emit(lo, DT_OP_DX, n);
	}
	m->in[0] = dy;
	m->out[0] = dx;
	memcpy(m->param, n->param, 3 * sizeof(*m->param));
	if (!a) /* last: adding a step may move the others */
		dt_lo_add_grad(lo, n->in[0], dx);
}

/* u = x w^T + b, y = f(u) */
void dt_shape_linear_act(struct dt_lower *lo, struct dt_node *n)
{
	int y;

	dt_shape_linear(lo, n);
	y = dt_lo_like(lo, "act", n->unit, n->out[0]);
	lo->info[y].whole = lo->info[n->out[0]].whole;
	n->out[1] = y;
}

void dt_back_linear_act(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[1]);
	struct dt_node linear = *n;

	if (dy >= 0) { /* the next product was in 8 bits, or is not the only reader */
		int u = dt_lo_need(lo, n->out[0]), du = dt_lo_like(lo, "d.up", n->unit, n->out[0]);
		struct dt_node *m = dt_lo_emit(lo, DT_OP_ACT_B, n);

		m->in[0] = dy;
		m->in[1] = u;
		m->out[0] = du;
		dt_lo_add_grad(lo, n->out[0], du);
	}
	linear.op = DT_OP_LINEAR;
	dt_back_linear(lo, &linear);
}

/* y = f(gate) up of u = x w^T + b, in one pass over the weights if the device can; u is scratch */
void dt_shape_linear_gated(struct dt_lower *lo, struct dt_node *n)
{
	struct dt_value u;

	dt_shape_linear(lo, n);
	lo->p->value[n->out[0]].room = true;
	u = lo->p->value[n->out[0]];
	if (lo->s->adapters) /* adapters are added before rounding */
		lo->p->value[n->out[0]].dtype = DT_F32;
	n->out[1] = dt_lo_value(lo, "act", n->unit, u.dtype, u.rows, u.mul, u.cols / 2);
}

struct dt_node_cost dt_cost_linear(const struct dt_cost_site *s, const struct dt_node *n)
{
	return dt_cost_product(dt_cost_move(s, n), (double)dt_value_rows(s->p, n->out[0]),
			       dt_cost_numel(s, n, 0, 3));
}

struct dt_node_cost dt_cost_dx(const struct dt_cost_site *s, const struct dt_node *n)
{
	return dt_cost_linear(s, n);
}

/* Reads values, writes gradients of tensors. */
static struct dt_node_cost gradient(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = {.written = 4 * dt_cost_numel(s, n, 0, 3)};

	for (int i = 0; i < DT_NODE_IN; i++)
		r.read += dt_cost_bytes(s, n->in[i]);
	return r;
}

struct dt_node_cost dt_cost_dw(const struct dt_cost_site *s, const struct dt_node *n)
{
	return dt_cost_product(gradient(s, n), (double)dt_value_rows(s->p, n->in[0]),
			       dt_cost_numel(s, n, 0, 3));
}

struct dt_node_cost dt_cost_colsum(const struct dt_cost_site *s, const struct dt_node *n)
{
	double grads = 4 * dt_cost_numel(s, n, 3, 6);

	return (struct dt_node_cost){.read = dt_cost_bytes(s, n->in[0]) + grads, .written = grads};
}

/* Reads twice: for the maximum, then to convert. */
struct dt_node_cost dt_cost_quantize(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);

	r.read *= 2;
	return r;
}

/* The 8-bit operand replaces the weight. */
static struct dt_node_cost product8(const struct dt_cost_site *s, const struct dt_node *n, double rows)
{
	struct dt_node_cost r = dt_cost_move(s, n);

	r.read -= dt_cost_numel(s, n, 0, 3) * dt_cost_weight(s);
	r = dt_cost_product(r, rows, dt_cost_numel(s, n, 0, 3));
	r.kind = DT_COST_PRODUCT8;
	return r;
}

struct dt_node_cost dt_cost_linear8(const struct dt_cost_site *s, const struct dt_node *n)
{
	return product8(s, n, (double)dt_value_rows(s->p, n->out[0]));
}

struct dt_node_cost dt_cost_dx8(const struct dt_cost_site *s, const struct dt_node *n)
{
	return product8(s, n, (double)dt_value_rows(s->p, n->out[0]));
}

struct dt_node_cost dt_cost_dw8(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r =
		dt_cost_product(gradient(s, n), (double)s->p->rows[DT_ROWS_ALL], dt_cost_numel(s, n, 0, 3));

	r.kind = DT_COST_PRODUCT8;
	return r;
}

/* ---- as measured ---- */

static void product(const struct dt_cost_site *s, struct dt_timed_list *t, enum dt_timed op, int rows_of,
		    int first, int second)
{
	dt_timed_put(t, op, 1, (double)dt_value_rows(s->p, rows_of), (double)s->p->value[first].cols,
		     (double)s->p->value[second].cols);
}

void dt_timed_linear(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	product(s, t, DT_T_MUL, n->in[0], n->out[0], n->in[0]);
	if (n->op == DT_OP_LINEAR_ACT)
		dt_timed_over(s, t, DT_T_ACT, n->out[0]);
}

void dt_timed_dx(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	product(s, t, DT_T_MUL_X, n->in[0], n->out[0], n->in[0]);
	if (n->op == DT_OP_DX_ACT)
		dt_timed_over(s, t, DT_T_ACT_B, n->out[0]);
}

void dt_timed_dw(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	product(s, t, DT_T_MUL_W, n->in[0], n->in[0], n->in[1]);
	t->part[0].more = DT_T_MUL_ADD;
}

void dt_timed_colsum(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_COLSUM, n->in[0]);
}
/* SPDX-License-Identifier: Apache-2.0 */
