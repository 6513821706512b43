/*
 * The end of a classifier: logits = h w^T + b and their loss (kernels/class_loss.h), with backward at once:
 * the gradients of h, w and b. In serving the logits are the result.
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

void dt_shape_classify(struct dt_lower *lo, struct dt_node *n)
{
	const int64_t classes = dt_lo_dim(lo, n->param[0], 0);
	const bool narrow = lo->s->compute != DT_F32;
	const enum dt_rows rows = lo->p->value[n->in[0]].rows;

	n->out[0] = dt_lo_like(lo, "d.features", n->unit, n->in[0]);
	n->out[1] = dt_lo_value(lo, "logits", n->unit, DT_F32, rows, 1, classes);
	n->out[2] = narrow ? dt_lo_value(lo, "d.logits", n->unit, lo->s->compute, rows, 1, classes) : -1;
	n->out[3] = dt_lo_value(lo, "loss rows", n->unit, DT_F32, rows, 2, 1);
	for (int i = 1; i < 4; i++)
		if (n->out[i] >= 0)
			lo->p->value[n->out[i]].room = true;
	lo->p->value[n->out[0]].gradient = true;
	n->attr.frozen = lo->s->graph->params.p[n->param[0]].frozen;
}

void dt_back_classify(struct dt_lower *lo, const struct dt_node *n)
{
	dt_lo_add_grad(lo, n->in[0], n->out[0]);
}

/* Serving: the logits alone. */
static struct dt_node_cost logits(const struct dt_cost_site *s, const struct dt_node *n)
{
	return (struct dt_node_cost){.read = dt_cost_bytes(s, n->in[0]) +
					     dt_cost_numel(s, n, 0, DT_NODE_PARAM) * dt_cost_weight(s),
				     .written = dt_cost_bytes(s, n->out[1])};
}

/* The logits, the gradient of h, and that of w unless it is frozen. */
struct dt_node_cost dt_cost_classify(const struct dt_cost_site *s, const struct dt_node *n)
{
	const bool serves = s->weight_bytes > 0;
	const double products = serves ? 1 : n->attr.frozen ? 2 : 3;

	return dt_cost_product(serves ? logits(s, n) : dt_cost_move_add(s, n),
			       products * (double)dt_value_rows(s->p, n->in[0]), dt_cost_numel(s, n, 0, 1));
}
/* SPDX-License-Identifier: Apache-2.0 */
