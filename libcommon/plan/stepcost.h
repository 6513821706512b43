/* What the two ways to time a step share, rooflines and measured operations: only for libcommon/plan. */
#ifndef DT_PLAN_STEPCOST_H
#define DT_PLAN_STEPCOST_H

#include "plan/steptime.h"

struct dt_step_model { /* everything a cost depends on */
	const struct dt_cluster *c;
	const struct dt_run *s;
	const struct dt_stack *stack;
	struct dt_device dev;
	int here; /* ranks of a node */
	double t, e, tokens,
		norm_share; /* tp, bytes an element, of a microbatch, 1 / tp where s1 cuts norms */
	/* between dt_ops_open and dt_ops_close: the program of a model of few layers on one stage */
	struct dt_config few;
	struct dt_run one;
	struct dt_stage stage;
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

/* Whether m's layers are all timed from measured operations (c->ops). */
bool dt_ops_known(const struct dt_step_model *m);
/* Derives the program that the operations are those of; m stays where it is until the other. */
int dt_ops_open(struct dt_step_model *m, struct dt_err *err);
void dt_ops_close(struct dt_step_model *m);
/* One layer; traffic left 0. */
void dt_ops_layer(const struct dt_step_model *m, int layer, struct dt_layer_cost *ret);
/* Embedding (forward and backward), or final norm, head and loss, all of which the trainer does in backward.
 */
struct dt_pipe_cost dt_ops_ends(const struct dt_step_model *m, bool head);
/* A step's passes over gradients, optimizer and weights of stage p. */
int dt_ops_update(const struct dt_step_model *m, int p, double *ret, struct dt_err *err);

#endif
