/* Helpers for the ops' rules: values, steps, gradients, recomputation. */
#include "model/op/rule.h"

#include "base/room.h"

#include <stdlib.h>
#include <string.h>

/* ---- values ---- */

static int fallen(struct dt_lower *lo)
{
	lo->failed = true;
	return 0; /* a valid index, so that rules need no check */
}

int dt_lo_value(struct dt_lower *lo, const char *name, int unit, enum dt_dtype dtype, enum dt_rows rows,
		int64_t mul, int64_t cols)
{
	struct dt_prog *p = lo->p;
	struct dt_info *info;

	if (p->nvalue == lo->value_cap) {
		int cap = 2 * lo->value_cap;
		struct dt_value *v = realloc(p->value, (size_t)cap * sizeof(*v));

		if (v)
			p->value = v;
		info = realloc(lo->info, (size_t)cap * sizeof(*info));
		if (info)
			lo->info = info;
		if (!v || !info)
			return fallen(lo);
		lo->value_cap = cap;
	}
	p->value[p->nvalue] = (struct dt_value){.name = name,
						.unit = unit,
						.dtype = dtype,
						.rows = rows,
						.mul = mul,
						.cols = cols,
						.over = -1,
						.def = -1,
						.last = -1,
						.again = lo->again};
	info = &lo->info[p->nvalue];
	*info = (struct dt_info){.from = -1, .grad = -1, .same = -1};
	for (int i = 0; i < DT_LIST_N; i++)
		info->copy[i] = -1;
	return p->nvalue++;
}

int dt_lo_like(struct dt_lower *lo, const char *name, int unit, int v)
{
	const struct dt_value like = lo->p->value[v];
	int r = dt_lo_value(lo, name, unit, like.dtype, like.rows, like.mul, like.cols);

	lo->p->value[r].extra = like.extra;
	return r;
}

int dt_lo_room(struct dt_lower *lo, const char *name, int unit, enum dt_dtype dtype, enum dt_rows rows,
	       int64_t mul, int64_t cols)
{
	int v = dt_lo_value(lo, name, unit, dtype, rows, mul, cols);

	lo->p->value[v].room = true;
	return v;
}

int dt_lo_real(const struct dt_lower *lo, int v)
{
	while (v >= 0 && lo->info[v].same >= 0)
		v = lo->info[v].same;
	return v;
}

void dt_lo_set_grad(struct dt_lower *lo, int v, int g)
{
	lo->info[v].grad = g;
	if (g >= 0)
		lo->p->value[g].gradient = true;
}

void dt_lo_add_grad(struct dt_lower *lo, int v, int g)
{
	struct dt_node *a;
	int sum;

	if (lo->info[v].grad < 0) {
		dt_lo_set_grad(lo, v, g);
		return;
	}
	lo->p->value[g].gradient = true;
	sum = dt_lo_like(lo, "d.sum", lo->p->value[v].unit, v);
	a = dt_lo_emit(lo, DT_OP_ADD, &(struct dt_node){.unit = lo->p->value[v].unit, .name = "d.sum"});
	a->in[0] = lo->info[v].grad;
	a->in[1] = g;
	a->out[0] = sum;
	dt_lo_set_grad(lo, v, sum);
}

const struct dt_node *dt_lo_from(const struct dt_lower *lo, int v)
{
	v = v < 0 ? -1 : lo->info[v].from;
	return v < 0 ? NULL : &lo->tape[v];
}

/* ---- tensors ---- */

int64_t dt_lo_dim(const struct dt_lower *lo, int param, int dim)
{
	int64_t shape[2], off[2];

	if (param < 0 || lo->s->local(lo->s->local_arg, param, shape, off) < 0)
		return 0;
	return shape[dim];
}

int dt_lo_cut(const struct dt_lower *lo, int param)
{
	const struct dt_param *p = &lo->s->graph->params.p[param];

	return lo->s->tp == 1 || p->cut == DT_CUT_NONE ? -1 : p->cut_dim;
}

void dt_lo_linear_dims(const struct dt_lower *lo, const struct dt_node *n, int64_t *out, int64_t *in)
{
	*out = 0;
	*in = dt_lo_dim(lo, n->param[0], 1);
	for (int i = 0; i < 3; i++)
		*out += dt_lo_dim(lo, n->param[i], 0);
}

bool dt_lo_in_8_bits(const struct dt_lower *lo, const struct dt_node *n)
{
	return lo->s->in_8_bits && (n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_ACT) &&
	       lo->s->in_8_bits(lo->s->fp8_arg, n);
}

/* ---- steps ---- */

static struct dt_node *add_step(struct dt_lower *lo)
{
	static struct dt_step sink; /* for steps when memory has run out */
	enum dt_list l = lo->to;

	if (!DT_ROOM(lo->list[l], lo->n[l], lo->cap[l], 256)) {
		lo->failed = true;
		return &sink.n;
	}
	lo->list[l][lo->n[l]] = (struct dt_step){.list = l, .again = lo->again};
	return &lo->list[l][lo->n[l]++].n;
}

struct dt_node *dt_lo_emit(struct dt_lower *lo, enum dt_op op, const struct dt_node *like)
{
	struct dt_node *n = add_step(lo);

	*n = dt_node_blank(op, like->unit, like->name);
	n->attr = like->attr;
	n->ahead = like->ahead;
	return n;
}

void dt_lo_forward(struct dt_lower *lo, const struct dt_node *n)
{
	struct dt_node step = *n;

	if (n->op == DT_OP_ENTER && lo->info[n->out[0]].same >= 0)
		return;
	for (int i = 0; i < DT_NODE_IN; i++)
		step.in[i] = dt_lo_real(lo, n->in[i]);
	/* only rank 0 adds a bias, position or type that is summed over ranks */
	if (lo->s->tp_rank > 0 && n->op == DT_OP_LINEAR && dt_lo_cut(lo, n->param[0]) == 1)
		for (int i = 3; i < 6; i++)
			step.param[i] = -1;
	if (lo->s->tp_rank > 0 && n->op == DT_OP_EMBED)
		step.param[1] = step.param[2] = -1;
	if (dt_lo_in_8_bits(lo, n))
		lo->linear8(lo, &step);
	else
		*add_step(lo) = step;
}

/* ---- what backward needs ---- */

static bool kept(const struct dt_lower *lo, int v)
{
	const struct dt_node *n = dt_lo_from(lo, v);

	if (!n)
		return true;
	if (dt_node_op_flags(n->op) & DT_OPF_GATHER)
		return false;
	if (dt_node_op_flags(n->op) & DT_OPF_KEEP)
		return true;
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] == v)
			return lo->s->keep(lo->s->keep_arg, n, i, n->unit);
	return true;
}

static bool at_hand(const struct dt_lower *lo, int v)
{
	return v >= 0 && (kept(lo, v) || lo->info[v].copy[lo->to] >= 0);
}

/* Emits a copy of a tape node with new results, in a cheaper form if what that needs is at hand. */
static void again(struct dt_lower *lo, const struct dt_node *n)
{
	struct dt_node c = *n;
	bool outer = lo->again;
	int sum = -1;

	if (n->op == DT_OP_NORM && n->out[1] >= 0 && at_hand(lo, n->out[1])) {
		sum = c.in[0] = dt_lo_need(lo, n->out[1]);
		c.in[1] = c.out[1] = -1;
	} else if (n->op == DT_OP_LINEAR_ACT && at_hand(lo, n->out[0])) {
		c.op = DT_OP_ACT;
		c.in[0] = dt_lo_need(lo, n->out[0]);
		c.out[0] = n->out[1];
		c.out[1] = -1;
		memset(c.param, -1, sizeof(c.param));
	} else {
		for (int i = 0; i < DT_NODE_IN; i++)
			if (c.in[i] >= 0)
				c.in[i] = dt_lo_need(lo, n->in[i]);
	}
	lo->again = true;
	for (int i = 0; i < DT_NODE_OUT; i++) {
		int v = c.out[i], r;

		if (v < 0)
			continue;
		r = dt_lo_like(lo, lo->p->value[v].name, n->unit, v);
		lo->p->value[r].room = lo->p->value[v].room;
		c.out[i] = lo->info[v].copy[lo->to] = r;
		lo->info[v].copied_for = lo->unit;
	}
	if (n->op == DT_OP_NORM && sum >= 0)
		lo->info[n->out[1]].copy[lo->to] = sum;
	dt_lo_forward(lo, &c);
	lo->again = outer;
}

/* A gathered copy serves only the unit for which it was gathered, as it is large; others gather again. */
static bool has_copy(const struct dt_lower *lo, int v)
{
	const struct dt_node *n = dt_lo_from(lo, v);

	return lo->info[v].copy[lo->to] >= 0 &&
	       (lo->info[v].copied_for == lo->unit || !n || !(dt_node_op_flags(n->op) & DT_OPF_GATHER));
}

int dt_lo_need(struct dt_lower *lo, int v)
{
	v = dt_lo_real(lo, v);
	if (lo->to == DT_LIST_FORWARD || lo->to == DT_LIST_LOSS)
		return v;
	if (has_copy(lo, v))
		return lo->info[v].copy[lo->to];
	if (!kept(lo, v))
		again(lo, dt_lo_from(lo, v));
	return lo->info[v].copy[lo->to] >= 0 ? lo->info[v].copy[lo->to] : v;
}
/* SPDX-License-Identifier: Apache-2.0 */
