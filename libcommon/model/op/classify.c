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

	n->out[0] = dt_lo_like(lo, "d.features", n->unit, n->in[0]);
	n->out[1] = dt_lo_value(lo, "logits", n->unit, DT_F32, DT_ROWS_ALL, 1, classes);
	n->out[2] =
		narrow ? dt_lo_value(lo, "d.logits", n->unit, lo->s->compute, DT_ROWS_ALL, 1, classes) : -1;
	n->out[3] = dt_lo_value(lo, "loss rows", n->unit, DT_F32, DT_ROWS_ALL, 2, 1);
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

struct dt_node_cost dt_cost_classify(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move_add(s, n);

	r.flops = r.model_flops = 3 * 2 * (double)dt_value_rows(s->p, n->in[0]) * dt_cost_numel(s, n, 0, 1);
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
