/* The scratch of mixtures of experts: the calls of nn/call_moe.c, for any choice of experts. */
#include "kernels/grouped.h"
#include "kernels/moe.h"
#include "model/op/scratch_need.h"

void dt_need_route(const struct dt_need *w, const struct dt_node *n)
{
	dt_need_product(w, (struct dt_product){.m = dt_need_rows(w, n->in[0]),
					       .n = n->attr.experts,
					       .k = dt_need_cols(w, n->in[0]),
					       .tb = true,
					       .bias = n->param[4] >= 0});
}

void dt_need_route_b(const struct dt_need *w, const struct dt_node *n)
{
	const int64_t rows = dt_need_rows(w, n->in[3]), cols = dt_need_cols(w, n->in[3]),
		      experts = n->attr.experts;

	dt_need_op(w, dt_moe_route_backward_scratch(w->on, dt_need_rows(w, n->in[1])));
	if (n->param[1] >= 0)
		dt_need_op(w, dt_colsum_scratch(w->on, rows, experts));
	if (!n->attr.frozen)
		dt_need_product(w,
				(struct dt_product){
					.m = experts, .n = cols, .k = rows, .ta = true, .accumulate = true});
	dt_need_product(w, (struct dt_product){.m = rows, .n = cols, .k = experts});
}

static struct dt_grouped_shape groups_of(const struct dt_need *w, const struct dt_node *n, int x)
{
	const int64_t experts = n->attr.expert_n / (n->attr.owned ? w->s->ep : 1);

	return (struct dt_grouped_shape){
		.m = dt_need_rows(w, x),
		.n = w->s->param[n->param[0]][0] / experts,
		.n2 = n->param[1] < 0 ? 0 : w->s->param[n->param[1]][0] / experts,
		.k = dt_need_cols(w, x),
		.groups = n->attr.expert_n,
		.experts = experts,
	};
}

void dt_need_experts_y(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_grouped_shape g = groups_of(w, n, n->in[0]);

	dt_need_op(w, dt_grouped_matmul_scratch(w->on, dt_need_type(w, n->in[0]), &g));
}

void dt_need_experts_dx(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_grouped_shape g = groups_of(w, n, n->out[0]);

	dt_need_op(w, dt_grouped_matmul_dx_scratch(w->on, dt_need_type(w, n->in[0]), &g));
}

void dt_need_experts_dw(const struct dt_need *w, const struct dt_node *n)
{
	const struct dt_grouped_shape g = groups_of(w, n, n->in[2]);

	dt_need_op(w, dt_grouped_matmul_dw_scratch(w->on, dt_need_type(w, n->in[2]), &g));
}
/* SPDX-License-Identifier: Apache-2.0 */
