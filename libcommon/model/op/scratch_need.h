/* Shared by scratch*.c: what a node needs, and the sizes of its operands. */
#ifndef DT_MODEL_OP_SCRATCH_NEED_H
#define DT_MODEL_OP_SCRATCH_NEED_H

#include "kernels/matmul.h"
#include "model/op/scratch.h"

struct dt_need {
	const struct dt_cost_site *s;
	const struct dt_scratch_on *on;
	struct dt_scratch *ret;
};

static inline void dt_need_op(const struct dt_need *w, size_t bytes)
{
	dt_scratch_raise(w->ret, DT_SCRATCH_OP, bytes);
}

static inline int64_t dt_need_rows(const struct dt_need *w, int v)
{
	return dt_value_rows(w->s->p, v);
}

static inline int64_t dt_need_cols(const struct dt_need *w, int v)
{
	return w->s->p->value[v].cols;
}

static inline enum dt_dtype dt_need_type(const struct dt_need *w, int v)
{
	return w->s->p->value[v].dtype;
}

/* Rows of up to three tensors joined, and their columns. */
static inline int64_t dt_need_out(const struct dt_need *w, const struct dt_node *n)
{
	int64_t rows = 0;

	for (int i = 0; i < 3; i++)
		rows += n->param[i] < 0 ? 0 : w->s->param[n->param[i]][0];
	return rows;
}

static inline int64_t dt_need_in(const struct dt_need *w, const struct dt_node *n)
{
	return w->s->param[n->param[0]][1];
}

static inline void dt_need_product(const struct dt_need *w, struct dt_product p)
{
	dt_matmul_scratch(w->on, &p, w->ret);
}

typedef void dt_need_fn(const struct dt_need *w, const struct dt_node *n);
dt_need_fn dt_need_lora_up, dt_need_lora_up_b, dt_need_lora_dx, dt_need_lora_norm, dt_need_lora_scale,
	dt_need_lora_scale_b, dt_need_route, dt_need_route_b, dt_need_experts_y, dt_need_experts_dx,
	dt_need_experts_dw, dt_need_pixels, dt_need_conv, dt_need_conv_dw, dt_need_batch_norm,
	dt_need_batch_norm_b, dt_need_pool, dt_need_pool_b, dt_need_classify, dt_need_norm,
	dt_need_heads_norm, dt_need_ssm_conv, dt_need_ssm_conv_b, dt_need_ssm_scan, dt_need_ssm_scan_b,
	dt_need_ssm_gate, dt_need_ssm_conv_step, dt_need_ssm_scan_step, dt_need_ssm_norm, dt_need_ssm_norm_b;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
