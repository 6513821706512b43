/* Adapters (model/op/lora.c): products with the a and b of one to three joined linears. */
#include "base/rng.h"
#include "nn/call.h"

#include "base/progress.h"

#include <errno.h>

/* One of the node's linears: its columns of h and of y. */
struct lane {
	struct dt_tensor b;
	int param;
	int64_t h, y; /* first column */
	bool alone;   /* no other linear has columns */
};

/* Lane i of the node, placed after the lanes before it; false if that linear has no adapter. */
static bool lane_of(const struct dt_exec *x, const struct dt_node *n, int i, struct lane *l)
{
	*l = (struct lane){.param = n->param[i], .alone = n->out[2] < 0};
	for (int k = 0; k < i; k++) {
		l->h += n->param[k] < 0 ? 0 : x->w[n->param[k]].dim[1];
		l->y += n->param[3 + k] < 0 ? 0 : x->w[n->param[3 + k]].dim[0];
	}
	if (l->param >= 0)
		l->b = x->w[l->param];
	return l->param >= 0;
}

/* A scratch value of the node as a matrix of this size. */
static struct dt_tensor room(const struct dt_exec *x, int v, struct dt_tensor like, int64_t cols)
{
	return dt_t2(dt_call_at(x, v), like.dtype, like.dim[0], cols);
}

/* y = x in evaluation; in training dropout(x), added to y with add. */
static int drop(struct dt_exec *x, const struct dt_node *n, int to, int from, bool add, struct dt_err *err)
{
	const struct dt_local_param *lp = &x->stage->local.p[n->param[3]];
	const struct dt_param *w = &x->stage->graph.params.p[lp->index];
	struct dt_tensor y = dt_call_mat(x, to);
	const bool part = x->seq_parallel && x->p->value[to].rows == DT_ROWS_STREAM;
	const double odds = (double)n->attr.drop;
	const struct dt_dropout d = {
		.stream = dt_rng_make(x->seed, DT_RNG_DROPOUT, dt_hash_str(w->name)).stream,
		.below = (uint32_t)(odds * 0x1p32),
		.scale = (float)(1 / (1 - odds)),
		.sample = x->flight->number,
		.row = part ? dt_comm_rank(x->tp) * y.dim[0] : 0,
		.seq = x->seq,
		.positions = x->positions,
		.pos = x->pos,
		.cols = w->shape[1],
		.col = lp->off[1],
	};

	TRY(x->dev->ops->dropout(x->dev, y, dt_call_mat(x, from), &d, add));
	return 0;
}

int dt_call_dropout(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	if (x->adapters_off) /* its result is not used */
		return 0;
	if (!x->training)
		return dt_call_moved(x, n->out[0], n->in[0]);
	return drop(x, n, n->out[0], n->in[0], false, err);
}

int dt_call_dropout_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	if (n->in[0] >= 0)
		TRY(dt_call_moved(x, n->out[0], n->in[0]));
	return drop(x, n, n->out[0], n->in[1], n->in[0] >= 0, err);
}

int dt_call_lora_down(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor h = dt_call_mat(x, n->out[0]);

	if (x->adapters_off)
		return 0;
	TRY(x->dev->ops->matmul(x->dev, h, dt_call_mat(x, n->in[0]), false, dt_call_joined(x->w, n->param),
				true, DT_NONE, false));
	TRY(x->dev->ops->scale(x->dev, h, n->attr.scale));
	return 0;
}

/* A product on columns in place (kernels/columns.h): 1, or 0 if the device has no such kernel. */
static int in_place(struct dt_exec *x, struct dt_columns_product p, struct dt_err *err)
{
	const int rc = dt_dev_columns_matmul(x->dev, &p);

	if (rc == -ENOTSUP)
		return 0;
	TRY(rc);
	return 1;
}

static int lane_up(struct dt_exec *x, const struct dt_node *n, const struct lane *l, struct dt_tensor y,
		   struct dt_tensor h, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor part, cols;
	int rc;

	if (l->alone) {
		TRY(o->matmul(x->dev, y, h, false, l->b, true, DT_NONE, true));
		return 0;
	}
	rc = in_place(x, (struct dt_columns_product){DT_COLUMNS_Y, y, h, l->b, l->y, l->h, true}, err);
	if (rc)
		return rc < 0 ? rc : 0;
	part = room(x, n->out[1], h, l->b.dim[1]);
	cols = room(x, n->out[2], y, l->b.dim[0]);
	TRY(o->columns(x->dev, part, 0, h, l->h, l->b.dim[1], false));
	TRY(o->matmul(x->dev, cols, part, false, l->b, true, DT_NONE, false));
	TRY(o->columns(x->dev, y, l->y, cols, 0, l->b.dim[0], true));
	return 0;
}

int dt_call_lora_up(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor y = dt_call_mat(x, n->out[0]), h = dt_call_mat(x, n->in[1]);
	struct lane l;
	int rc = 0;

	TRY(dt_call_moved(x, n->out[0], n->in[0]));
	for (int i = 0; i < 3 && rc == 0 && !x->adapters_off; i++)
		if (lane_of(x, n, i, &l))
			rc = lane_up(x, n, &l, y, h, err);
	return rc;
}

/* Backward for one of several joined linears; h absent: no db; dh absent: not needed. */
static int lane_up_b(struct dt_exec *x, const struct dt_node *n, const struct lane *l, struct dt_tensor dy,
		     struct dt_tensor h, struct dt_tensor dh, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	const struct dt_tensor db = x->g[l->param], part = room(x, n->out[1], dy, l->b.dim[1]),
			       cols = room(x, n->out[2], dy, l->b.dim[0]);
	int have_db = 1, have_dh = 1;

	if (h.data)
		have_db = in_place(
			x, (struct dt_columns_product){DT_COLUMNS_B, dy, h, db, l->y, l->h, x->accumulate},
			err);
	if (have_db >= 0 && dh.data)
		have_dh = in_place(
			x, (struct dt_columns_product){DT_COLUMNS_H, dy, dh, l->b, l->y, l->h, false}, err);
	if (have_db < 0 || have_dh < 0)
		return have_db < 0 ? have_db : have_dh;
	if (!have_db || !have_dh)
		TRY(o->columns(x->dev, cols, 0, dy, l->y, l->b.dim[0], false));
	if (!have_db) {
		TRY(o->columns(x->dev, part, 0, h, l->h, l->b.dim[1], false));
		TRY(o->matmul(x->dev, db, cols, true, part, false, DT_NONE, x->accumulate));
	}
	if (!have_dh) {
		TRY(o->matmul(x->dev, part, cols, false, l->b, false, DT_NONE, false));
		TRY(o->columns(x->dev, dh, l->h, part, 0, l->b.dim[1], false));
	}
	return 0;
}

/* db += dy^T h if h is present, dh = s dy b if needed. */
int dt_call_lora_up_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor dy = dt_call_mat(x, n->in[0]), h = dt_call_mat(x, n->in[1]),
			 dh = dt_call_mat(x, n->out[0]);
	struct lane l;
	int rc = 0;

	for (int i = 0; i < 3 && rc == 0; i++) {
		if (!lane_of(x, n, i, &l))
			continue;
		if (!l.alone) {
			rc = lane_up_b(x, n, &l, dy, h, dh, err);
			continue;
		}
		if (h.data)
			TRY(o->matmul(x->dev, x->g[l.param], dy, true, h, false, DT_NONE, x->accumulate));
		if (dh.data)
			TRY(o->matmul(x->dev, dh, dy, false, l.b, false, DT_NONE, false));
	}
	if (rc == 0 && dh.data)
		TRY(o->scale(x->dev, dh, n->attr.scale));
	return rc;
}

int dt_call_lora_dx(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	if (n->in[0] >= 0)
		TRY(dt_call_moved(x, n->out[0], n->in[0]));
	TRY(x->dev->ops->matmul(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[1]), false,
				dt_call_joined(x->w, n->param), false, DT_NONE, n->in[0] >= 0));
	return 0;
}
/* Whether a tensor's columns are sharded: its products are then partial sums. */
static bool is_row_cut(const struct dt_exec *x, int param)
{
	const struct dt_param *w = &x->stage->graph.params.p[x->stage->local.p[param].index];

	return x->tp && w->cut != DT_CUT_NONE && w->cut_dim == 1;
}

int dt_call_lora_norm(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor r = dt_call_mat(x, n->out[0]);
	double t0;

	if (x->adapters_off)
		return 0;
	TRY(o->dora_norms(x->dev, r, x->w[n->param[0]], x->w[n->param[1]], x->w[n->param[2]], n->attr.scale));
	if (is_row_cut(x, n->param[0])) {
		int rc;

		t0 = dt_now();
		rc = dt_all_reduce(x->tp, r.data, NULL, (size_t)dt_numel(r), DT_F32, DT_SUM, "norms of rows",
				   err);
		x->comm_s += dt_now() - t0;
		if (rc < 0)
			return rc;
	}
	TRY(o->dora_ratio(x->dev, r, x->w[n->param[3]]));
	return 0;
}

/* Returns the first column of y of linear i. *bias: its bias, which the first rank of a sum adds. */
static int64_t scaled(const struct dt_exec *x, const struct dt_node *n, int i, struct dt_tensor *bias)
{
	int64_t at = 0;

	for (int k = 0; k < i; k++)
		at += n->param[3 + k] < 0 ? 0 : x->w[n->param[3 + k]].dim[0];
	*bias = dt_call_param(x->w, n->param[6 + i]);
	if (is_row_cut(x, n->param[3 + i]) && dt_comm_rank(x->tp) > 0)
		*bias = DT_NONE;
	return at;
}

int dt_call_lora_scale(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(dt_call_moved(x, n->out[0], n->in[0]));
	for (int i = 0; i < 3 && !x->adapters_off; i++) {
		struct dt_tensor bias, g;
		int64_t at;

		if (n->param[i] < 0)
			continue;
		at = scaled(x, n, i, &bias);
		g = dt_call_mat(x, n->in[1 + i]);
		TRY(x->dev->ops->dora_scale(x->dev, dt_call_mat(x, n->out[0]), at,
					    dt_t1(g.data, DT_F32, g.dim[1]), bias));
	}
	return 0;
}

int dt_call_lora_scale_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(dt_call_moved(x, n->out[0], n->in[0]));
	for (int i = 0; i < 3; i++) {
		struct dt_tensor bias;
		int64_t at;

		if (n->param[i] < 0)
			continue;
		at = scaled(x, n, i, &bias);
		TRY(x->dev->ops->dora_backward(x->dev, dt_call_mat(x, n->out[0]), at, x->g[n->param[i]],
					       dt_call_mat(x, n->in[1]), dt_call_mat(x, n->in[2 + i]), bias));
	}
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
