/*
 * A step from measured operations (plan/optimes.h): those of every node of the program, and of the update in
 * train/. Layers that are alike cost the same, so the program is that of a model with few of them.
 */
#include "plan/stepcost.h"

#include <math.h>

static double op(const struct dt_step_model *m, enum dt_timed what, double a, double b, double c)
{
	return dt_op_seconds(m->c->ops, m->here, what, m->s->compute, a, b, c);
}

bool dt_ops_known(const struct dt_step_model *m)
{
	const struct dt_config *c = m->s->config;

	/* Latent attention has products of other shapes; f16 and 8 bits go another way. */
	return m->c->ops && m->c->cores && !c->kv_rank && m->s->compute != DT_F16 && !m->s->fp8;
}

/* A share of the microbatches adds its weight gradients to those of the first: all but one, and with ZeRO 2
 * and 3, where each has its own, none. */
static double weight_gradient(const struct dt_step_model *m, enum dt_timed first, enum dt_timed more,
			      double a, double b, double c, double uses)
{
	double n = uses * (double)(m->s->accumulation > 0 ? m->s->accumulation : 1),
	       t = op(m, first, a, b, c);

	if (n <= 1 || m->s->layout.zero >= 2)
		return t;
	return (t + (n - 1) * op(m, more, a, b, c)) / n;
}

int dt_ops_open(struct dt_step_model *m, struct dt_err *err)
{
	int64_t kinds = m->s->config->dense_layers +
			(m->s->config->global_every > 1 ? m->s->config->global_every : 1);

	m->few = *m->s->config;
	if (m->few.layers > kinds + 1)
		m->few.layers = kinds + 1;
	m->one = *m->s;
	m->one.config = &m->few;
	m->one.layout.pp = m->one.layout.chunks = 1;
	m->one.seq /= m->one.layout.cp;
	m->one.recompute.every = 1;
	return dt_stage_build(&m->one, (struct dt_coords){0}, &m->stage, err);
}

void dt_ops_close(struct dt_step_model *m)
{
	dt_stage_release(&m->stage);
}

static double rows_of(const struct dt_step_model *m, int v)
{
	return (double)dt_value_rows(&m->stage.chunk[0], v);
}

static double cols_of(const struct dt_step_model *m, int v)
{
	return (double)m->stage.chunk[0].value[v].cols;
}

/* An operation whose sizes are the rows and columns of a value. */
static double over(const struct dt_step_model *m, enum dt_timed what, int v)
{
	return op(m, what, rows_of(m, v), cols_of(m, v), 1);
}

/* The products of a layer's linears; weight gradients into *w. False: the node is something else. */
static bool products(const struct dt_step_model *m, const struct dt_node *n, struct dt_cost *c, double *w)
{
	switch (n->op) {
	case DT_OP_LINEAR:
	case DT_OP_LINEAR_ACT:
		c->matmul +=
			op(m, DT_T_MUL, rows_of(m, n->in[0]), cols_of(m, n->out[0]), cols_of(m, n->in[0]));
		if (n->op == DT_OP_LINEAR_ACT)
			c->memory += over(m, DT_T_ACT, n->out[0]);
		return true;
	case DT_OP_DX:
	case DT_OP_DX_ACT:
		c->matmul +=
			op(m, DT_T_MUL_X, rows_of(m, n->in[0]), cols_of(m, n->out[0]), cols_of(m, n->in[0]));
		if (n->op == DT_OP_DX_ACT)
			c->memory += over(m, DT_T_ACT_B, n->out[0]);
		return true;
	case DT_OP_DW:
		*w += weight_gradient(m, DT_T_MUL_W, DT_T_MUL_ADD, rows_of(m, n->in[0]), cols_of(m, n->in[0]),
				      cols_of(m, n->in[1]), 1);
		return true;
	case DT_OP_COLSUM:
		c->matmul += over(m, DT_T_COLSUM, n->in[0]);
		return true;
	default:
		return false;
	}
}

/* Those of a mixture of experts: the rows' choices are spread evenly over this rank's experts. */
static bool expert_products(const struct dt_step_model *m, const struct dt_node *n, struct dt_cost *c,
			    double *w)
{
	double experts = (double)n->attr.experts, local = experts / m->one.layout.ep, in, out, rows;
	int x = n->op == DT_OP_ROUTE_B ? n->in[3] : n->in[0];

	switch (n->op) {
	case DT_OP_ROUTE:
		c->matmul += op(m, DT_T_MUL, rows_of(m, x), experts, cols_of(m, x));
		return true;
	case DT_OP_ROUTE_B:
		c->matmul += op(m, DT_T_MUL_X, rows_of(m, x), cols_of(m, x), experts);
		*w += weight_gradient(m, DT_T_MUL_W, DT_T_MUL_ADD, rows_of(m, x), experts, cols_of(m, x), 1);
		return true;
	case DT_OP_EXPERTS:
	case DT_OP_EXPERTS_DX:
	case DT_OP_EXPERTS_DW:
		break;
	default:
		return false;
	}
	x = n->op == DT_OP_EXPERTS ? n->out[0] : n->in[0];
	rows = rows_of(m, x) / local;
	out = cols_of(m, x);
	in = (double)m->stage.shape[n->param[0]][1];
	if (n->op == DT_OP_EXPERTS)
		c->matmul += local * op(m, DT_T_MUL, rows, out, in);
	else if (n->op == DT_OP_EXPERTS_DX)
		c->matmul += local * op(m, DT_T_MUL_X, rows, in, out);
	else
		*w += local * weight_gradient(m, DT_T_MUL_W, DT_T_MUL_ADD, rows, out, in, 1);
	return true;
}

/* Head and loss, chunk by chunk. */
static double loss(const struct dt_step_model *m, const struct dt_node *n)
{
	double h = cols_of(m, n->in[0]), v = cols_of(m, n->out[1]), all = rows_of(m, n->in[0]),
	       chunk = (double)m->stage.loss_chunk, sum = 0;

	for (double left = all; left > 0; left -= chunk) {
		double rows = fmin(left, chunk);

		sum += op(m, DT_T_HEAD, rows, v, h) + op(m, DT_T_CE, rows, v, 1) +
		       op(m, DT_T_HEAD_X, rows, v, h) +
		       weight_gradient(m, DT_T_HEAD_W, DT_T_HEAD_ADD, rows, v, h, ceil(all / chunk));
	}
	return sum;
}

/* What is no product: where nothing was measured, by its bytes. Messages are the links' to time. */
static double passes(const struct dt_step_model *m, const struct dt_step *s)
{
	const struct dt_node *n = &s->n;
	const struct dt_attr *a = &n->attr;
	const struct dt_cost_site site = dt_stage_site(&m->stage, &m->one, 0);
	struct dt_node_cost bytes;

	switch (n->op) {
	case DT_OP_ENTER:
	case DT_OP_LEAVE:
		return 0;
	case DT_OP_EMBED:
		return over(m, DT_T_EMBED, n->out[0]);
	case DT_OP_EMBED_B:
		return over(m, DT_T_EMBED_B, n->in[0]);
	case DT_OP_NORM:
		return over(m, a->layernorm ? DT_T_LAYERNORM : DT_T_RMSNORM, n->out[0]);
	case DT_OP_NORM_B:
		return over(m, a->layernorm ? DT_T_LAYERNORM_B : DT_T_RMSNORM_B, n->in[0]);
	case DT_OP_HEADS_NORM:
		return over(m, DT_T_RMSNORM, n->out[1]);
	case DT_OP_HEADS_NORM_B:
		return over(m, DT_T_RMSNORM_B, n->in[1]);
	case DT_OP_ROPE:
	case DT_OP_ROPE_B:
		return op(m, DT_T_ROPE, rows_of(m, n->in[0]),
			  (double)((a->heads + a->kv_heads) * a->head_dim), 1);
	case DT_OP_ACT:
		return over(m, DT_T_ACT, n->out[0]);
	case DT_OP_ACT_B:
		return over(m, DT_T_ACT_B, n->in[0]);
	case DT_OP_GATED:
		return over(m, DT_T_GATED, n->out[0]);
	case DT_OP_GATED_B:
		return over(m, DT_T_GATED_B, n->in[0]);
	case DT_OP_ADD:
		return over(m, DT_T_ADD, n->out[0]);
	default:
		bytes = dt_step_cost(&site, s);
		return (bytes.read + bytes.written) / (m->dev.mem_bw * m->dev.mem_eff) + m->dev.op_s;
	}
}

/* The seconds of a node, on top of c; of a weight gradient on top of *w. */
static void put_node(const struct dt_step_model *m, const struct dt_step *s, struct dt_cost *c, double *w)
{
	const struct dt_node *n = &s->n;

	if (products(m, n, c, w) || expert_products(m, n, c, w))
		return;
	if (n->op == DT_OP_ATTENTION || n->op == DT_OP_ATTENTION_B)
		c->attention += op(m, n->op == DT_OP_ATTENTION ? DT_T_ATTENTION : DT_T_ATTENTION_B,
				   (double)(m->one.microbatch * n->attr.heads), (double)m->one.seq,
				   (double)n->attr.head_dim);
	else if (n->op == DT_OP_LOSS)
		c->matmul += loss(m, n);
	else
		c->memory += passes(m, s);
}

/* What a unit of the program costs; its weight gradients in b, unless apart. */
static struct dt_layer_cost unit_cost(const struct dt_step_model *m, int unit, bool apart)
{
	const struct dt_prog *p = &m->stage.chunk[0];
	struct dt_layer_cost r = {0};

	for (int i = 0; i < p->nstep; i++) {
		const struct dt_step *s = &p->step[i];
		struct dt_cost again = {0};

		if (s->n.unit != unit)
			continue;
		put_node(m, s,
			 s->again		      ? &again
			 : s->list == DT_LIST_FORWARD ? &r.f
						      : &r.b,
			 apart ? &r.w : &r.b.matmul);
		r.again += dt_cost_sum(&again);
	}
	return r;
}

void dt_ops_layer(const struct dt_step_model *m, int layer, struct dt_layer_cost *ret)
{
	const struct dt_config *c = m->s->config;
	int i = (int)m->few.layers - 1; /* the last one that is alike: the first has no sum before its norm */

	while (i > 0 && (dt_layer_has_experts(c, i) != dt_layer_has_experts(c, layer) ||
			 dt_layer_window(c, i) != dt_layer_window(c, layer)))
		i--;
	*ret = unit_cost(m, i, dt_run_splits(m->s));
}

struct dt_pipe_cost dt_ops_ends(const struct dt_step_model *m, bool head)
{
	const struct dt_layer_cost r = unit_cost(m, head ? (int)m->few.layers : -1, false);

	return (struct dt_pipe_cost){.f = dt_cost_sum(&r.f), .b = dt_cost_sum(&r.b)};
}

int dt_ops_update(const struct dt_step_model *m, int p, double *ret, struct dt_err *err)
{
	const struct dt_run *s = m->s;
	struct dt_params table = {0};
	struct dt_local local = {0};
	double share = s->layout.zero ? 1.0 / dt_layout_data(&s->layout) : 1, sum = 0;
	enum dt_timed optim = (enum dt_timed)(DT_T_OPTIM0 + dt_optim_states(s->optim.kind));
	int rc = dt_model_params(s->config, &table, err);

	if (rc == 0)
		rc = dt_local_build(&table, s->config, &s->layout, (struct dt_coords){.pp = p}, &local, err);
	for (int i = 0; i < local.nunit; i++) /* looked through for NaN before they travel */
		sum += op(m, DT_T_SUMSQ, (double)local.unit[i].numel, 1, 1);
	for (int i = 0; i < local.n; i++) {
		double n = (double)local.p[i].numel * share;

		sum += op(m, DT_T_SUMSQ, n, 1, 1) + op(m, optim, n, 1, 1);
		if (table.p[local.p[i].index].ndim == 1)
			sum += op(m, DT_T_FILL, n, 1, 1);
	}
	if (s->layout.zero && s->compute != DT_F32) /* masters to the weights that are gathered */
		for (int i = 0; i < local.nunit; i++)
			sum += op(m, DT_T_CONVERT, (double)local.unit[i].numel * share, 1, 1);
	dt_local_release(&local);
	dt_params_release(&table);
	if (rc == 0)
		*ret = sum;
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
