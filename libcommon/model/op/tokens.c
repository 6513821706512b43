/*
 * Tokens of images: patches behind a class token, with positions (kernels/tokens.h). A value has as many rows
 * a sample as an image has tokens. And the row that a classifier reads: the class token's, the first of an
 * image, or the first token's of a text, which is its last row (train/labelled.h).
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

void dt_shape_tokens(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, x.dtype, x.rows, x.mul + 1, x.cols);
	lo->info[n->out[0]].whole = true; /* convolutions are not cut */
}

void dt_back_tokens(struct dt_lower *lo, const struct dt_node *n)
{
	const int dy = dt_lo_grad(lo, n->out[0]), dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_TOKENS_B, n);

	m->in[0] = dy;
	m->out[0] = dx;
	m->param[0] = n->param[0];
	m->param[1] = n->param[1];
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_shape_class_row(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, x.dtype,
				n->attr.tokens ? x.rows : DT_ROWS_SAMPLES, 1, x.cols);
	lo->info[n->out[0]].whole = lo->info[n->in[0]].whole;
}

/* Rows of other tokens have no gradient: they are cleared. */
void dt_back_class_row(struct dt_lower *lo, const struct dt_node *n)
{
	const int dy = dt_lo_grad(lo, n->out[0]), dx = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_CLASS_ROW_B, n);

	m->in[0] = dy;
	m->out[0] = dx;
	dt_lo_add_grad(lo, n->in[0], dx);
}

/* One row of a sample is read. */
struct dt_node_cost dt_cost_class_row(const struct dt_cost_site *s, const struct dt_node *n)
{
	const double bytes = dt_cost_bytes(s, n->out[0]);

	return (struct dt_node_cost){.read = bytes, .written = bytes};
}

struct dt_node_cost dt_cost_class_row_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	const double bytes = dt_cost_bytes(s, n->in[0]);

	return (struct dt_node_cost){.read = bytes, .written = dt_cost_bytes(s, n->out[0]) + bytes};
}
/* SPDX-License-Identifier: Apache-2.0 */
