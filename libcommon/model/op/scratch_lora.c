/* The scratch of adapters: the calls of nn/call_lora.c. */
#include "kernels/columns.h"
#include "kernels/dora.h"
#include "model/op/scratch_need.h"

/* A product on columns of joined linears, in place, or of copies of the columns. */
static void on_columns(const struct dt_need *w, struct dt_product p)
{
	if (dt_columns_matmul_scratch(w->on, &p, w->ret))
		return;
	p.accumulate &= p.ta;
	dt_need_product(w, p);
}

void dt_need_lora_up(const struct dt_need *w, const struct dt_node *n)
{
	for (int i = 0; i < 3; i++) {
		const int b = n->param[i];
		struct dt_product p;

		if (b < 0)
			continue;
		p = (struct dt_product){.m = dt_need_rows(w, n->out[0]),
					.n = w->s->param[b][0],
					.k = w->s->param[b][1],
					.tb = true,
					.in = dt_need_type(w, n->in[1]),
					.out = dt_need_type(w, n->out[0]),
					.accumulate = true};
		if (n->out[2] < 0)
			dt_need_product(w, p);
		else
			on_columns(w, p);
	}
}

void dt_need_lora_up_b(const struct dt_need *w, const struct dt_node *n)
{
	void (*of)(const struct dt_need *w, struct dt_product p) =
		n->out[2] < 0 ? dt_need_product : on_columns;
	const enum dt_dtype t = dt_need_type(w, n->in[0]);

	for (int i = 0; i < 3; i++) {
		const int64_t rows = dt_need_rows(w, n->in[0]);
		const int b = n->param[i];

		if (b < 0)
			continue;
		if (n->in[1] >= 0) /* db */
			of(w, (struct dt_product){.m = w->s->param[b][0],
						  .n = w->s->param[b][1],
						  .k = rows,
						  .ta = true,
						  .in = t,
						  .out = DT_F32});
		if (n->out[0] >= 0) /* dh */
			of(w, (struct dt_product){.m = rows,
						  .n = w->s->param[b][1],
						  .k = w->s->param[b][0],
						  .in = t,
						  .out = t});
	}
}

void dt_need_lora_dx(const struct dt_need *w, const struct dt_node *n)
{
	dt_need_product(w, (struct dt_product){.m = dt_need_rows(w, n->in[1]),
					       .n = dt_need_in(w, n),
					       .k = dt_need_out(w, n),
					       .in = dt_need_type(w, n->in[1]),
					       .out = dt_need_type(w, n->out[0]),
					       .accumulate = n->in[0] >= 0});
}

void dt_need_lora_norm(const struct dt_need *w, const struct dt_node *n)
{
	dt_need_op(w, dt_dora_norms_scratch(w->on, w->s->param[n->param[0]][0], w->s->param[n->param[1]][0]));
}

void dt_need_lora_scale(const struct dt_need *w, const struct dt_node *n)
{
	for (int i = 1; i < 4; i++)
		if (n->in[i] >= 0)
			dt_need_op(w, dt_dora_scale_scratch(w->on, dt_need_cols(w, n->in[i])));
}

void dt_need_lora_scale_b(const struct dt_need *w, const struct dt_node *n)
{
	for (int i = 2; i < 5; i++)
		if (n->in[i] >= 0)
			dt_need_op(w, dt_dora_backward_scratch(w->on, dt_need_rows(w, n->out[0]),
							       dt_need_cols(w, n->in[i])));
}
/* SPDX-License-Identifier: Apache-2.0 */
