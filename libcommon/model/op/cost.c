#include "model/op/cost.h"

const char *dt_message_name(enum dt_message m)
{
	static const char *const name[] = {"",		 "all-reduce", "gather", "reduce-scatter",
					   "all-to-all", "ring"};

	return name[m];
}

double dt_cost_bytes(const struct dt_cost_site *s, int value)
{
	return value < 0 ? 0
			 : (double)dt_value_numel(s->p, value) *
				   (double)dt_dtype_size(s->p->value[value].dtype);
}

double dt_cost_numel(const struct dt_cost_site *s, const struct dt_node *n, int first, int last)
{
	double sum = 0;

	for (int i = first; i < last; i++)
		if (n->param[i] >= 0)
			sum += (double)(s->param[n->param[i]][0] * s->param[n->param[i]][1]);
	return sum;
}

struct dt_node_cost dt_cost_product(struct dt_node_cost r, double rows, double numel)
{
	r.flops = r.model_flops = 2 * rows * numel;
	r.kind = DT_COST_PRODUCT;
	return r;
}

struct dt_node_cost dt_cost_move(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = {.read = dt_cost_numel(s, n, 0, DT_NODE_PARAM) * dt_cost_weight(s)};

	/* without operands of a concurrent message */
	for (int i = 0; i < DT_NODE_IN - n->attr.parts; i++)
		r.read += dt_cost_bytes(s, n->in[i]);
	for (int i = 0; i < DT_NODE_OUT - n->attr.sends; i++)
		r.written += dt_cost_bytes(s, n->out[i]);
	return r;
}

struct dt_node_cost dt_cost_wait(const struct dt_cost_site *s, const struct dt_node *n)
{
	return (struct dt_node_cost){.waits = true, .over_ep = n->op == DT_OP_EXCHANGE_WAIT};
}

struct dt_node_cost dt_cost_move_add(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);
	double grads = n->attr.frozen ? 0 : 4 * dt_cost_numel(s, n, 0, DT_NODE_PARAM);

	r.read += grads;
	r.written += grads;
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
