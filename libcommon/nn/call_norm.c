/* Norms of rows and of heads, and activation functions. */
#include "nn/call.h"

#include "base/progress.h"

/* The bias of a LayerNorm, or its gradient, of all tensors t. */
static struct dt_tensor bias_of(const struct dt_tensor *t, const struct dt_node *n)
{
	return n->param[1] >= 0 ? t[n->param[1]] : DT_NONE;
}

int dt_call_norm(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor y = dt_call_mat(x, n->out[0]), sum = dt_call_mat(x, n->out[1]),
			 in = dt_call_mat(x, n->in[0]), delta = dt_call_mat(x, n->in[1]);

	if (n->attr.layernorm)
		TRY(o->layernorm_forward(x->dev, y, dt_call_vec(x, n->out[2]), dt_call_vec(x, n->out[3]), sum,
					 in, delta, x->w[n->param[0]], bias_of(x->w, n), n->attr.eps));
	else
		TRY(o->rmsnorm_forward(x->dev, y, dt_call_vec(x, n->out[3]), sum, in, delta,
				       x->w[n->param[0]], n->attr.plus_one, n->attr.eps));
	return 0;
}

int dt_call_norm_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor dx = dt_call_mat(x, n->out[0]), dy = dt_call_mat(x, n->in[0]),
			 prev = dt_call_mat(x, n->in[1]), in = dt_call_mat(x, n->in[2]);

	if (n->attr.layernorm)
		TRY(o->layernorm_backward(x->dev, dx, x->g[n->param[0]], bias_of(x->g, n), dy, prev, in,
					  dt_call_vec(x, n->in[3]), dt_call_vec(x, n->in[4]),
					  x->w[n->param[0]]));
	else
		TRY(o->rmsnorm_backward(x->dev, dx, x->g[n->param[0]], dy, prev, in, dt_call_vec(x, n->in[4]),
					x->w[n->param[0]], n->attr.plus_one));
	return 0;
}

int dt_call_moved(struct dt_exec *x, int to, int from)
{
	size_t n = (size_t)dt_value_numel(x->p, to) * (size_t)dt_dtype_size(x->p->value[to].dtype);

	return dt_call_at(x, to) == dt_call_at(x, from)
		       ? 0
		       : dt_dev_copy(x->dev, dt_call_at(x, to), dt_call_at(x, from), n);
}

struct part { /* of q, or of k */
	struct dt_heads heads;
	int param;
	struct dt_tensor raw, rstd; /* [rows, heads head_dim], [rows, heads], or [rows, 1] over all heads */
};

/* sums: scratch for the sums of q and k if ranks share what is normalized; else -1. */
static struct part part_of(const struct dt_exec *x, const struct dt_node *n, bool keys, int raw, int rstd,
			   int sums)
{
	int64_t rows = x->p->rows[DT_ROWS_ALL], before = keys ? n->attr.heads : 0,
		heads = keys ? n->attr.kv_heads : n->attr.heads, d = n->attr.head_dim;
	struct dt_heads at = {before, heads, d};
	char *r;

	if (n->attr.whole)
		at = (struct dt_heads){keys ? n->attr.heads / heads : 0, 1, heads * d};
	if (sums >= 0) { /* keys that several ranks replicate count as often in the sum as in the length */
		at.sums = dt_t2((float *)dt_call_at(x, sums) + rows * keys, DT_F32, rows, 1);
		at.over = at.head_dim * dt_comm_size(x->tp);
	}
	if (raw < 0) /* no backward follows */
		return (struct part){.heads = at, .param = n->param[keys]};
	r = (char *)dt_call_at(x, raw) + rows * before * d * dt_dtype_size(x->dtype);
	return (struct part){
		.heads = at,
		.param = n->param[keys],
		.raw = dt_t2(r, x->dtype, rows, heads * d),
		.rstd = dt_t2((float *)dt_call_at(x, rstd) + rows * before, DT_F32, rows, at.heads)};
}

/* All-reduces the row sums over tp: sums of squares or, with dy, the products of backward. */
static int sums_of_ranks(struct dt_exec *x, const struct dt_node *n, int sums, struct dt_tensor in, int raw,
			 int rstd, struct dt_tensor dy, struct dt_err *err)
{
	double t0;
	int rc;

	if (sums < 0)
		return 0;
	for (int k = 0; k < 2; k++) {
		const struct part a = part_of(x, n, k, raw, rstd, sums);

		TRY(x->dev->ops->heads_sums(x->dev, a.heads.sums, dy.data ? a.raw : in, dy, a.rstd,
					    x->w[a.param], n->attr.plus_one, &a.heads));
	}
	t0 = dt_now();
	rc = dt_all_reduce(x->tp, dt_call_at(x, sums), NULL, (size_t)(2 * x->p->rows[DT_ROWS_ALL]), DT_F32,
			   DT_SUM, n->name, err);
	x->comm_s += dt_now() - t0;
	return rc;
}

int dt_call_heads_norm(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor qkv = dt_call_mat(x, n->out[0]);
	int rc;

	TRY(dt_call_moved(x, n->out[0], n->in[0]));
	rc = sums_of_ranks(x, n, n->out[3], qkv, n->out[1], n->out[2], DT_NONE, err);
	if (rc < 0)
		return rc;
	for (int k = 0; k < 2; k++) {
		const struct part a = part_of(x, n, k, n->out[1], n->out[2], n->out[3]);

		TRY(x->dev->ops->heads_norm_forward(x->dev, qkv, a.rstd, a.raw, qkv, x->w[a.param],
						    n->attr.plus_one, n->attr.eps, &a.heads));
	}
	return 0;
}

int dt_call_heads_norm_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor dqkv = dt_call_mat(x, n->out[0]);
	int rc;

	TRY(dt_call_moved(x, n->out[0], n->in[0]));
	rc = sums_of_ranks(x, n, n->out[1], DT_NONE, n->in[1], n->in[2], dqkv, err);
	if (rc < 0)
		return rc;
	for (int k = 0; k < 2; k++) {
		const struct part a = part_of(x, n, k, n->in[1], n->in[2], n->out[1]);

		TRY(x->dev->ops->heads_norm_backward(x->dev, dqkv, x->g[a.param], dqkv, a.raw, a.rstd,
						     x->w[a.param], n->attr.plus_one, &a.heads));
	}
	return 0;
}

struct dt_rope dt_call_rope_of(const struct dt_exec *x, const struct dt_node *n)
{
	bool local = n->attr.local && x->local_cos;

	return (struct dt_rope){.rot_heads = n->attr.heads + n->attr.kv_heads,
				.head_dim = n->attr.head_dim,
				.rot_dim = dt_rope_dim(x->c),
				.pairing = (enum dt_rope_pairing)x->c->rope_pairing,
				.cos = local ? x->local_cos : x->rope_cos,
				.sin = local ? x->local_sin : x->rope_sin,
				.positions = x->positions};
}

static int rotate(struct dt_exec *x, const struct dt_node *n, bool inverse, struct dt_err *err)
{
	const struct dt_rope rope = dt_call_rope_of(x, n);

	TRY(dt_call_moved(x, n->out[0], n->in[0]));
	TRY(x->dev->ops->rope(x->dev, dt_call_mat(x, n->out[0]), &rope, dt_call_pos(x), inverse));
	return 0;
}

int dt_call_rope(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return rotate(x, n, false, err);
}

int dt_call_rope_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return rotate(x, n, true, err);
}

int dt_call_act(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->act_forward(x->dev, dt_call_live(x, n, n->out[0], n->in[1]),
				     dt_call_live(x, n, n->in[0], n->in[1]), (enum dt_act_fn)n->attr.act));
	return 0;
}

int dt_call_act_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->act_backward(x->dev, dt_call_live(x, n, n->out[0], n->in[2]),
				      dt_call_live(x, n, n->in[0], n->in[2]),
				      dt_call_live(x, n, n->in[1], n->in[2]), (enum dt_act_fn)n->attr.act));
	return 0;
}

int dt_call_gated(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->gated_forward(x->dev, dt_call_live(x, n, n->out[0], n->in[1]),
				       dt_call_live(x, n, n->in[0], n->in[1]), (enum dt_act_fn)n->attr.act));
	return 0;
}

int dt_call_gated_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->gated_backward(x->dev, dt_call_live(x, n, n->out[0], n->in[2]),
					dt_call_live(x, n, n->in[0], n->in[2]),
					dt_call_live(x, n, n->in[1], n->in[2]), (enum dt_act_fn)n->attr.act));
	return 0;
}

int dt_call_add(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->add(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
			     dt_call_mat(x, n->in[1])));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
