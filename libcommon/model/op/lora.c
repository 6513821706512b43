/*
 * A LoRA adapter of one to three joined linears (model/lora.h): h = s x a^T before them, y += h b^T after.
 * h's gradient includes the factor s, so backward is db += dy^T h, dh = s dy b, da += dh^T x, dx += dh a. w
 * has no gradient: 4 products of w's size per token become 2. With magnitudes (DoRA, kernels/dora.h), y = g
 * (u - bias) + bias follows.
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

#include <string.h>

/* Dropout on the adapter's input (kernels/dropout.h). Backward applies the same mask to gradients. */
void dt_shape_dropout(struct dt_lower *lo, struct dt_node *n)
{
	const bool whole = lo->info[n->in[0]].whole;

	n->out[0] = dt_lo_like(lo, dt_lo_name(lo, n->out[0]), n->unit, n->in[0]);
	lo->info[n->out[0]].whole = whole;
}

void dt_back_dropout(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), prev = dt_lo_grad(lo, n->in[0]),
	    dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_DROPOUT_B, n);

	m->in[0] = prev;
	m->in[1] = dy;
	m->out[0] = dx;
	m->param[3] = n->param[3];
	dt_lo_set_grad(lo, n->in[0], dx);
}

/* The tensor operand only says which columns these are; it is not read. */
struct dt_node_cost dt_cost_dropout(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = {.written = dt_cost_bytes(s, n->out[0])};

	for (int i = 0; i < DT_NODE_IN; i++)
		r.read += dt_cost_bytes(s, n->in[i]);
	return r;
}

void dt_shape_lora_down(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];
	int64_t rank = 0;

	for (int i = 0; i < 3; i++)
		rank += dt_lo_dim(lo, n->param[i], 0);
	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute, x.rows, x.mul, rank);
}

/* Scratch for a part of h and of y: with several tensors, each one's operands are a range of columns. */
static void rooms(struct dt_lower *lo, struct dt_node *n, int like, int part, int whole)
{
	const struct dt_value y = lo->p->value[like];
	int64_t rank = 0, wide = 0;
	int both = n->param[3] >= 0 && (n->param[4] >= 0 || n->param[5] >= 0);

	for (int i = 0; i < 3; i++) {
		int64_t r = dt_lo_dim(lo, n->param[i], 1), w = dt_lo_dim(lo, n->param[i], 0);

		rank = r > rank ? r : rank;
		wide = w > wide ? w : wide;
	}
	if (!both)
		return;
	n->out[part] = dt_lo_room(lo, "lora part", n->unit, y.dtype, y.rows, y.mul, rank);
	n->out[whole] = dt_lo_room(lo, "lora columns", n->unit, y.dtype, y.rows, y.mul, wide);
}

void dt_shape_lora_up(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = dt_lo_like(lo, dt_lo_name(lo, n->out[0]), n->unit, n->in[0]);
	lo->info[n->out[0]].partial = lo->info[n->in[0]].partial;
	lo->info[n->out[0]].whole = lo->info[n->in[0]].whole;
	rooms(lo, n, n->in[0], 1, 2);
}

/* Emits both backward products as one node, or either alone: h absent, dh absent. */
static void up_back(struct dt_lower *lo, const struct dt_node *n, int dy, int h, int dh)
{
	struct dt_node *m = dt_lo_emit(lo, DT_OP_LORA_UP_B, n);

	m->in[0] = dy;
	m->in[1] = h;
	m->out[0] = dh;
	memcpy(m->param, n->param, sizeof(m->param));
	rooms(lo, m, dy, 1, 2);
}

void dt_back_lora_up(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), h = lo->s->split ? -1 : dt_lo_need(lo, n->in[1]),
	    dh = dt_lo_like(lo, "d.lora", n->unit, n->in[1]);
	enum dt_list before = lo->to;

	up_back(lo, n, dy, h, dh);
	if (lo->s->split) {
		lo->to = DT_LIST_WEIGHTS;
		up_back(lo, n, dy, dt_lo_need(lo, n->in[1]), -1);
		lo->to = before;
	}
	dt_lo_add_grad(lo, n->in[1], dh);
	dt_lo_add_grad(lo, n->in[0], dy);
}

void dt_back_lora_down(struct dt_lower *lo, const struct dt_node *n)
{
	int dh = dt_lo_grad(lo, n->out[0]), prev = dt_lo_grad(lo, n->in[0]), dx;
	struct dt_node *m;

	dt_lo_weights(lo, n, dh);
	dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_LORA_DX, n);
	m->in[0] = prev;
	m->in[1] = dh;
	m->out[0] = dx;
	memcpy(m->param, n->param, 3 * sizeof(*m->param));
	dt_lo_set_grad(lo, n->in[0], dx);
}

/* For one tensor: g and 1 / norm of its rows (kernels/dora.h), all-reduced if the rows are cut over ranks. */
void dt_shape_lora_norm(struct dt_lower *lo, struct dt_node *n)
{
	n->attr.whole = dt_lo_cut(lo, n->param[0]) == 1;
	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, DT_F32, DT_ROWS_NONE, 2,
				dt_lo_dim(lo, n->param[0], 0));
}

void dt_shape_lora_scale(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = dt_lo_like(lo, dt_lo_name(lo, n->out[0]), n->unit, n->in[0]);
	lo->info[n->out[0]].partial = lo->info[n->in[0]].partial;
	lo->info[n->out[0]].whole = lo->info[n->in[0]].whole;
}

void dt_back_lora_scale(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), u = dt_lo_need(lo, n->in[0]), ratio[3], du;
	struct dt_node *m;

	for (int i = 0; i < 3; i++)
		ratio[i] = n->in[1 + i] < 0 ? -1 : dt_lo_need(lo, n->in[1 + i]);
	du = dt_lo_like(lo, "d.tuned", n->unit, n->in[0]);
	m = dt_lo_emit(lo, DT_OP_LORA_SCALE_B, n);
	m->in[0] = dy;
	m->in[1] = u;
	memcpy(&m->in[2], ratio, sizeof(ratio));
	m->out[0] = du;
	memcpy(m->param, n->param, sizeof(m->param));
	dt_lo_add_grad(lo, n->in[0], du);
}

/* Computes w + s b a to measure its rows. */
struct dt_node_cost dt_cost_lora_norm(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = {.read = dt_cost_numel(s, n, 0, 4) * dt_cost_weight(s),
				 .written = dt_cost_bytes(s, n->out[0])};

	r = dt_cost_product(r, (double)s->param[n->param[1]][0], dt_cost_numel(s, n, 0, 1));
	r.model_flops = 0;
	if (n->attr.whole) {
		r.message = DT_MSG_ALL_REDUCE;
		r.message_bytes = r.written;
	}
	return r;
}

struct dt_node_cost dt_cost_lora_scale(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = {.written = dt_cost_bytes(s, n->out[0])};

	for (int i = 0; i < DT_NODE_IN; i++)
		r.read += dt_cost_bytes(s, n->in[i]);
	return r;
}

/* Reads operands, writes the result, and multiplies the tensors with the value's rows `times` times. */
static struct dt_node_cost products(const struct dt_cost_site *s, const struct dt_node *n, int value,
				    double times)
{
	struct dt_node_cost r = {.read = dt_cost_numel(s, n, 0, 3) * dt_cost_weight(s),
				 .written = dt_cost_bytes(s, n->out[0])};

	for (int i = 0; i < DT_NODE_IN; i++)
		r.read += dt_cost_bytes(s, n->in[i]);
	return dt_cost_product(r, times * (double)dt_value_rows(s->p, value), dt_cost_numel(s, n, 0, 3));
}

/* Scratch is written and read once; it holds parts of y's columns. */
static void through_rooms(const struct dt_cost_site *s, const struct dt_node *n, struct dt_node_cost *r)
{
	double e = dt_dtype_size(s->compute), rows = (double)dt_value_rows(s->p, n->in[0]), cols = 0;

	for (int i = 0; i < 3 && n->out[2] >= 0; i++)
		if (n->param[i] >= 0)
			cols += (double)(s->param[n->param[i]][0] + s->param[n->param[i]][1]);
	r->read += rows * cols * e;
	r->written += rows * cols * e;
	r->passes += 2 * rows * cols * e;
}

struct dt_node_cost dt_cost_lora_down(const struct dt_cost_site *s, const struct dt_node *n)
{
	return products(s, n, n->in[0], 1);
}

struct dt_node_cost dt_cost_lora_up(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = products(s, n, n->in[0], 1);

	through_rooms(s, n, &r);
	return r;
}

struct dt_node_cost dt_cost_lora_up_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = products(s, n, n->in[0], (n->in[1] >= 0) + (n->out[0] >= 0));

	through_rooms(s, n, &r);
	if (n->in[1] >= 0)
		r.written += 4 * dt_cost_numel(s, n, 0, 3);
	return r;
}

struct dt_node_cost dt_cost_lora_dx(const struct dt_cost_site *s, const struct dt_node *n)
{
	return products(s, n, n->out[0], 1);
}
/* SPDX-License-Identifier: Apache-2.0 */
