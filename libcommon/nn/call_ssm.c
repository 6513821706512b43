/* Mamba-2's mixer between its projections (model/op/ssm.c). */
#include "nn/call.h"

#include "base/progress.h"

static struct dt_ssm ssm_of(const struct dt_exec *x, const struct dt_node *n)
{
	return (struct dt_ssm){.batch = x->batch,
			       .seq = x->seq,
			       .heads = n->attr.heads,
			       .head_dim = n->attr.head_dim,
			       .groups = n->attr.kv_heads,
			       .state = n->attr.value_dim,
			       .kernel = n->attr.taps,
			       .first = x->flight->first};
}

int dt_call_ssm_conv(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ssm p = ssm_of(x, n);

	TRY(x->dev->ops->ssm_conv(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				  dt_call_joined(x->w, n->param), dt_call_joined(x->w, n->param + 3), &p));
	return 0;
}

int dt_call_ssm_conv_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ssm p = ssm_of(x, n);

	TRY(x->dev->ops->ssm_conv_backward(x->dev, dt_call_mat(x, n->out[0]), dt_call_joined(x->g, n->param),
					   dt_call_joined(x->g, n->param + 3), dt_call_mat(x, n->in[0]),
					   dt_call_mat(x, n->in[1]), dt_call_joined(x->w, n->param),
					   dt_call_joined(x->w, n->param + 3), &p));
	return 0;
}

int dt_call_ssm_scan(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ssm p = ssm_of(x, n);

	TRY(x->dev->ops->ssm_scan(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				  dt_call_mat(x, n->in[1]), x->w[n->param[0]], x->w[n->param[1]],
				  x->w[n->param[2]], &p));
	return 0;
}

int dt_call_ssm_scan_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ssm p = ssm_of(x, n);

	TRY(x->dev->ops->ssm_scan_backward(
		x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->out[1]), x->g[n->param[0]],
		x->g[n->param[1]], x->g[n->param[2]], dt_call_mat(x, n->in[0]), dt_call_mat(x, n->in[1]),
		dt_call_mat(x, n->in[2]), x->w[n->param[0]], x->w[n->param[1]], x->w[n->param[2]], &p));
	return 0;
}

int dt_call_ssm_gate(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->ssm_gate(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				  dt_call_mat(x, n->in[1])));
	return 0;
}

int dt_call_ssm_gate_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->ssm_gate_backward(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->out[1]),
					   dt_call_mat(x, n->in[0]), dt_call_mat(x, n->in[1]),
					   dt_call_mat(x, n->in[2])));
	return 0;
}

/* One group's norm: its columns, and what of the weight and of rstd [groups, rows] is its. */
struct group {
	struct dt_heads at;
	struct dt_tensor w, g, rstd;
};

static struct dt_tensor part(struct dt_tensor t, int64_t first, int64_t n)
{
	return t.data ? dt_t1((char *)t.data + first * dt_dtype_size(t.dtype), t.dtype, n) : t;
}

/* sums: scratch, if the group is that of all ranks; else -1. */
static struct group group_of(const struct dt_exec *x, const struct dt_node *n, int64_t i, int rstd, int sums)
{
	const int64_t cols = n->attr.heads * n->attr.head_dim / n->attr.kv_heads,
		      rows = x->p->rows[DT_ROWS_ALL];
	struct group r = {.at = {i, 1, cols},
			  .w = part(x->w[n->param[0]], i * cols, cols),
			  .rstd = rstd < 0 ? DT_NONE : part(dt_call_vec(x, rstd), i * rows, rows)};

	if (x->g) /* not in serving */
		r.g = part(x->g[n->param[0]], i * cols, cols);
	if (sums >= 0) {
		r.at.sums = dt_call_mat(x, sums);
		r.at.over = cols * dt_comm_size(x->tp);
	}
	return r;
}

/* All-reduces a group's sums over tp: of squares, or (dy) what backward needs. */
static int sum(struct dt_exec *x, const struct dt_node *n, const struct group *g, int sums,
	       struct dt_tensor in, struct dt_tensor dy, struct dt_err *err)
{
	double t0;
	int rc;

	if (sums < 0)
		return 0;
	TRY(x->dev->ops->heads_sums(x->dev, g->at.sums, in, dy, g->rstd, g->w, false, &g->at));
	t0 = dt_now();
	rc = dt_all_reduce(x->tp, dt_call_at(x, sums), NULL, (size_t)x->p->rows[DT_ROWS_ALL], DT_F32, DT_SUM,
			   n->name, err);
	x->comm_s += dt_now() - t0;
	return rc;
}

int dt_call_ssm_norm(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_tensor y = dt_call_mat(x, n->out[0]), v = dt_call_mat(x, n->in[0]);

	for (int64_t i = 0; i < n->attr.kv_heads; i++) {
		const struct group g = group_of(x, n, i, n->out[1], n->out[2]);
		const int rc = sum(x, n, &g, n->out[2], v, DT_NONE, err);

		if (rc < 0)
			return rc;
		TRY(x->dev->ops->heads_norm_forward(x->dev, y, g.rstd, DT_NONE, v, g.w, false, n->attr.eps,
						    &g.at));
	}
	return 0;
}

int dt_call_ssm_norm_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_tensor dv = dt_call_mat(x, n->out[0]), dy = dt_call_mat(x, n->in[0]),
			       v = dt_call_mat(x, n->in[1]);

	for (int64_t i = 0; i < n->attr.kv_heads; i++) {
		const struct group g = group_of(x, n, i, n->in[2], n->out[1]);
		const int rc = sum(x, n, &g, n->out[1], v, dy, err);

		if (rc < 0)
			return rc;
		TRY(x->dev->ops->heads_norm_backward(x->dev, dv, g.g, dy, v, g.rstd, g.w, false, &g.at));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
