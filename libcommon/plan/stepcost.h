/* How long nodes take: what the step time and serving plans share. Only for libcommon/plan. */
#ifndef DT_PLAN_STEPCOST_H
#define DT_PLAN_STEPCOST_H

#include "plan/steptime.h"
#include "plan/work.h"

struct dt_layer_cost;
struct dt_step_model { /* everything a cost depends on */
	const struct dt_cluster *c;
	const struct dt_run *s;
	const struct dt_stack *stack;
	const struct dt_work *work;
	const struct dt_layer_cost *layer; /* [work->layers] */
	struct dt_device dev;
	int here;      /* ranks of a node */
	bool measured; /* operations were (c->ops), in this type */
};

struct dt_cost { /* seconds of one microbatch */
	double matmul, attention, memory, tp, ep, cp;
};

struct dt_layer_cost {
	struct dt_cost f, b; /* without weight gradients of a split backward, which are w */
	double w, again;     /* again: what is recomputed before backward */
};

static inline double dt_cost_sum(const struct dt_cost *c)
{
	return c->matmul + c->attention + c->memory + c->tp + c->ep + c->cp;
}

void dt_step_model_init(struct dt_step_model *m, const struct dt_cluster *c, const struct dt_run *s,
			const struct dt_stack *stack, const struct dt_work *work);
/* The device as n ranks of a node have it, for products of this type. */
struct dt_device dt_device_for(const struct dt_cluster *c, int n, enum dt_dtype compute);
/* A node by its roofline, and its message over tp ranks. */
double dt_node_seconds(const struct dt_device *d, const struct dt_node_cost *cost);
double dt_message_seconds(const struct dt_cluster *c, const struct dt_node_cost *cost,
			  const struct dt_layout *l);

struct dt_layer_cost dt_layer_time(const struct dt_step_model *m, int layer);
/* Forward (f) and backward (b) time of the embedding, or (head) of final norm, head and loss. */
struct dt_pipe_cost dt_ends_time(const struct dt_step_model *m, bool head);
/*
 * stepdp.c: sets dp and dp_exposed, of a stage with so many parameters and parameters of experts, of which a
 * share is trained, beside seconds of backward.
 */
void dt_step_dp(const struct dt_step_model *m, double most, double experts, double trained, double backward,
		struct dt_step_time *r);
/* A step's passes over gradients, optimizer and weights of stage p, from measured operations. */
int dt_ops_update(const struct dt_step_model *m, int p, double *ret, struct dt_err *err);
/* muon: seconds in which each rank of stage p makes its matrices orthogonal (train/whole_step.h). */
int dt_ops_orthogonal(const struct dt_step_model *m, int p, double *ret, struct dt_err *err);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
