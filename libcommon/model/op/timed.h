/*
 * The operations that dt-calibrate(1) measures, and those that a node of a program consists of. An op's
 * function is next to its cost. Sizes are those of the grids in plan/optimes.h.
 */
#ifndef DT_MODEL_TIMED_H
#define DT_MODEL_TIMED_H

#include "kernels/quant_formats.h"
#include "model/op/cost.h"

#define DT_T_ROUND_ENTRY(NAME, name) DT_T_ROUND_##NAME,
enum dt_timed {		      /* with its sizes */
		DT_T_MUL,     /* y = x w^T + bias: rows, columns of y, of x */
		DT_T_MUL_X,   /* dx = dy w: rows, columns of dx, of dy */
		DT_T_MUL_W,   /* dw = dy^T x, f32: rows, columns of dy, of x */
		DT_T_MUL_ADD, /* dw += dy^T x */
		DT_T_HEAD,    /* logits, f32: rows, vocabulary, hidden */
		DT_T_HEAD_X,
		DT_T_HEAD_W,
		DT_T_HEAD_ADD,
		DT_T_ATTENTION, /* batch x heads, seq, head_dim */
		DT_T_ATTENTION_B,
		DT_T_LAYERNORM, /* including the residual sum; sizes from here on: rows, columns */
		DT_T_LAYERNORM_B,
		DT_T_RMSNORM,
		DT_T_RMSNORM_B,
		DT_T_ACT,
		DT_T_ACT_B,
		DT_T_GATED, /* columns of the result */
		DT_T_GATED_B,
		DT_T_ROPE,
		DT_T_COLSUM,
		DT_T_EMBED,
		DT_T_EMBED_B,
		DT_T_CE, /* the loss and its gradient: rows, vocabulary */
		DT_T_ADD,
		DT_T_OPTIM0, /* sgd; sizes from here on: elements */
		DT_T_OPTIM1, /* momentum, ... */
		DT_T_OPTIM2, /* adamw */
		DT_T_SUMSQ,
		DT_T_FILL,
		DT_T_CONVERT, /* f32 to the compute type */
		/* --qat: weights are rounded to what the format's blocks can hold */
		DT_BLOCK_FORMATS(DT_T_ROUND_ENTRY) /* DT_T_ROUND_Q8_0 is the first */
		DT_T_N,
};

#define DT_TIMED_PARTS 8

struct dt_timed_part {
	enum dt_timed op;
	enum dt_timed more; /* the op if a weight gradient is accumulated; else the same as op */
	double times;	    /* how many times in the node: chunks of the loss, experts */
	double a, b, c;	    /* sizes */
};

struct dt_timed_list {
	struct dt_timed_part part[DT_TIMED_PARTS];
	int n;
};

/* Lists the measured operations of a step. False: there are none, use its bytes. A message has no parts. */
bool dt_step_timed(const struct dt_cost_site *s, const struct dt_step *step, struct dt_timed_list *ret);

/* ---- for the ops ---- */

static inline void dt_timed_put(struct dt_timed_list *t, enum dt_timed op, double times, double a, double b,
				double c)
{
	t->part[t->n++] = (struct dt_timed_part){op, op, times, a, b, c};
}
/* An operation sized by the rows and columns of a value. */
static inline void dt_timed_over(const struct dt_cost_site *s, struct dt_timed_list *t, enum dt_timed op,
				 int v)
{
	dt_timed_put(t, op, 1, (double)dt_value_rows(s->p, v), (double)s->p->value[v].cols, 1);
}

typedef void dt_timed_of(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t);
dt_timed_of dt_timed_embed, dt_timed_embed_b, dt_timed_norm, dt_timed_norm_b, dt_timed_linear, dt_timed_dx,
	dt_timed_dw, dt_timed_colsum, dt_timed_heads_norm, dt_timed_heads_norm_b, dt_timed_rope,
	dt_timed_attention, dt_timed_attention_b, dt_timed_act, dt_timed_act_b, dt_timed_gated,
	dt_timed_gated_b, dt_timed_add, dt_timed_route, dt_timed_route_b, dt_timed_experts,
	dt_timed_experts_dx, dt_timed_experts_dw, dt_timed_loss, dt_timed_ssm_norm, dt_timed_ssm_norm_b;

#endif
/* SPDX-License-Identifier: Apache-2.0 */
