/*
 * A step from measured operations (plan/optimes.h): the calls that nn/transformer.c and train/ make, one by
 * one. This file follows theirs.
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

struct sizes { /* of a layer, local */
	double rows, stream, h, qkv, heads, kv, d, width, up, ffn;
	double batch; /* of attention */
};

static struct sizes sizes_of(const struct dt_step_model *m, int layer)
{
	const struct dt_config *c = m->s->config;
	double f = (double)(dt_layer_has_experts(c, layer) ? c->expert_ffn : dt_layer_width(c, layer)) / m->t;
	double kv = fmax(1, (double)c->kv_heads / m->t);
	struct sizes z = {.rows = m->tokens,
			  .stream = m->tokens * m->norm_share,
			  .h = (double)c->hidden,
			  .heads = (double)c->heads / m->t,
			  .kv = kv,
			  .d = (double)c->head_dim,
			  .up = (c->gated ? 2 : 1) * f,
			  .ffn = f};

	z.width = z.heads * z.d;
	z.qkv = (z.heads + 2 * kv) * z.d;
	z.batch = (double)m->s->microbatch * z.heads;
	return z;
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

/* dx, dw and the bias' gradient of y = x w^T; dw into *w where backward is split. */
static double linear_backward(const struct dt_step_model *m, double rows, double out, double in, bool bias,
			      double *w)
{
	double dw = weight_gradient(m, DT_T_MUL_W, DT_T_MUL_ADD, rows, out, in, 1),
	       dx = op(m, DT_T_MUL_X, rows, in, out);

	if (bias)
		dx += op(m, DT_T_COLSUM, rows, out, 1);
	if (w) {
		*w += dw;
		return dx;
	}
	return dx + dw;
}

/* The MLP's three or four operations on rows rows, `n` times over: once, or for each local expert. */
static void mlp(const struct dt_step_model *m, const struct sizes *z, double rows, double n,
		struct dt_layer_cost *r, double *down, double *w)
{
	const struct dt_config *c = m->s->config;
	double act = n * op(m, c->gated ? DT_T_GATED : DT_T_ACT, rows, z->ffn, 1);

	*down = n * op(m, DT_T_MUL, rows, z->h, z->ffn);
	r->f.matmul += n * op(m, DT_T_MUL, rows, z->up, z->h) + *down;
	r->f.memory += act;
	r->b.matmul += n * (linear_backward(m, rows, z->h, z->ffn, c->mlp_bias, w) +
			    linear_backward(m, rows, z->up, z->h, c->mlp_bias, w));
	r->b.memory += n * op(m, c->gated ? DT_T_GATED_B : DT_T_ACT_B, rows, z->ffn, 1);
	if (m->s->recompute.mode == DT_RECOMPUTE_SELECTIVE)
		r->again += act;
}

static void attention(const struct dt_step_model *m, const struct sizes *z, struct dt_layer_cost *r,
		      double *w)
{
	const struct dt_config *c = m->s->config;
	double seq = (double)m->s->seq / m->s->layout.cp, rot = (z->heads + z->kv) * z->d;
	double rope = c->pos == DT_POS_ROPE ? op(m, DT_T_ROPE, z->rows, rot, 1) : 0;
	double heads = c->qk_norm ? op(m, DT_T_RMSNORM, z->rows * (z->heads + z->kv), z->d, 1) : 0;

	r->f.matmul += op(m, DT_T_MUL, z->rows, z->qkv, z->h) + op(m, DT_T_MUL, z->rows, z->h, z->width);
	r->f.attention += op(m, DT_T_ATTENTION, z->batch, seq, z->d);
	r->f.memory += rope + heads;
	r->b.matmul += linear_backward(m, z->rows, z->h, z->width, c->out_bias, w) +
		       linear_backward(m, z->rows, z->qkv, z->h, c->qkv_bias, w);
	r->b.attention += op(m, DT_T_ATTENTION_B, z->batch, seq, z->d);
	r->b.memory += rope;
	if (c->qk_norm)
		r->b.memory += op(m, DT_T_RMSNORM_B, z->rows * (z->heads + z->kv), z->d, 1);
}

void dt_ops_layer(const struct dt_step_model *m, int layer, struct dt_layer_cost *ret)
{
	const struct dt_config *c = m->s->config;
	const struct sizes z = sizes_of(m, layer);
	bool layernorm = c->norm == DT_NORM_LAYER, experts = dt_layer_has_experts(c, layer);
	bool split = dt_run_splits(m->s);
	double norm = op(m, layernorm ? DT_T_LAYERNORM : DT_T_RMSNORM, z.stream, z.h, 1), down = 0;
	double n = c->post_norms && !c->no_pre_norms ? 4 : 2;
	struct dt_layer_cost r = {0};
	double *w = split ? &r.w : NULL;

	r.f.memory = n * norm;
	r.b.memory = n * op(m, layernorm ? DT_T_LAYERNORM_B : DT_T_RMSNORM_B, z.stream, z.h, 1);
	attention(m, &z, &r, w);
	if (experts) {
		double local = (double)c->experts / m->s->layout.ep;
		double routed = z.rows * (double)c->experts_used / (double)c->experts * m->s->layout.ep;

		r.f.matmul += op(m, DT_T_MUL, z.rows, (double)c->experts, z.h);
		r.b.matmul += linear_backward(m, z.rows, (double)c->experts, z.h, false, w);
		mlp(m, &z, routed, local, &r, &down, w);
		if (c->shared_ffn) {
			struct sizes shared = z;

			shared.ffn = (double)c->shared_ffn / m->t;
			shared.up = 2 * shared.ffn;
			mlp(m, &shared, z.rows, 1, &r, &down, w);
		}
	} else {
		mlp(m, &z, z.rows, 1, &r, &down, w);
	}
	if (m->s->recompute.mode == DT_RECOMPUTE_SELECTIVE)
		r.again += n * norm;
	else if (m->s->recompute.mode == DT_RECOMPUTE_FULL)
		r.again = dt_cost_sum(&r.f) - down; /* the last product is not made again */
	*ret = r;
}

struct dt_pipe_cost dt_ops_ends(const struct dt_step_model *m, bool head)
{
	const struct dt_config *c = m->s->config;
	bool layernorm = c->norm == DT_NORM_LAYER;
	double h = (double)c->hidden, v = (double)c->vocab / m->t, stream = m->tokens * m->norm_share;
	double left = m->tokens, chunk = m->s->loss_chunk > 0 ? (double)m->s->loss_chunk : 512;
	struct dt_pipe_cost r = {0};

	if (!head) {
		r.f = op(m, DT_T_EMBED, m->tokens, h, 1);
		r.b = op(m, DT_T_EMBED_B, m->tokens, h, 1);
		return r;
	}
	r.f = op(m, layernorm ? DT_T_LAYERNORM : DT_T_RMSNORM, stream, h, 1);
	r.b = op(m, layernorm ? DT_T_LAYERNORM_B : DT_T_RMSNORM_B, stream, h, 1);
	for (; left > 0; left -= chunk) {
		double n = fmin(left, chunk);

		r.b += op(m, DT_T_HEAD, n, v, h) + op(m, DT_T_CE, n, v, 1) + op(m, DT_T_HEAD_X, n, v, h) +
		       weight_gradient(m, DT_T_HEAD_W, DT_T_HEAD_ADD, n, v, h, ceil(m->tokens / chunk));
	}
	return r;
}

int dt_ops_update(const struct dt_step_model *m, int p, double *ret, struct dt_err *err)
{
	const struct dt_run *s = m->s;
	struct dt_params table = {0};
	struct dt_local local = {0};
	double share = s->layout.zero ? 1.0 / s->layout.dp : 1, sum = 0;
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
