/* The embedding of a model; its loss is in call_loss.c. */
#include "nn/call.h"

static int64_t vocab_first(const struct dt_exec *x, int param)
{
	return x->stage->local.p[param].off[0];
}

static const int32_t *ids(const struct dt_exec *x, const struct dt_node *n)
{
	return n->ahead ? x->flight->ids_ahead : x->flight->ids;
}

struct dt_tensor dt_call_positions(const struct dt_exec *x, const struct dt_tensor *t,
				   const struct dt_node *n)
{
	struct dt_tensor p = dt_call_param(t, n->param[1]);
	const int64_t first = x->c->pos_first;

	return p.data ? dt_call_rows_of(p, first, p.dim[0] - first) : p;
}

/* The table's first row is added like a bias: a product without a k. */
int dt_call_first_type(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_err *err)
{
	TRY(x->dev->ops->matmul(x->dev, y, dt_t2(y.data, y.dtype, y.dim[0], 0), false,
				dt_t2(y.data, y.dtype, y.dim[1], 0), true,
				dt_t1(x->w[n->param[2]].data, y.dtype, y.dim[1]), true));
	return 0;
}

/* Adds the row of each token's type. at: room for them. */
static int add_types(struct dt_exec *x, const struct dt_node *n, struct dt_tensor y, struct dt_tensor at,
		     struct dt_err *err)
{
	if (!x->flight->types)
		return dt_call_first_type(x, n, y, err);
	TRY(x->dev->ops->embedding_forward(x->dev, at, x->flight->types, NULL, x->w[n->param[2]], DT_NONE,
					   0));
	TRY(x->dev->ops->add(x->dev, y, y, at));
	return 0;
}

int dt_call_embed(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor y = dt_call_mat(x, n->out[0]);
	int rc;

	TRY(x->dev->ops->embedding_forward(x->dev, y, ids(x, n), dt_call_pos(x), x->w[n->param[0]],
					   dt_call_positions(x, x->w, n), vocab_first(x, n->param[0])));
	if (n->param[2] >= 0 && (rc = add_types(x, n, y, dt_call_mat(x, n->out[4]), err)) < 0)
		return rc;
	/* With a sharded vocabulary the ranks' rows are summed: only one of them adds the noise. */
	if (x->training && x->noise.width && !n->ahead && vocab_first(x, n->param[0]) == 0)
		TRY(x->dev->ops->noise(x->dev, y, &x->noise));
	if (n->attr.scale != 1)
		TRY(x->dev->ops->scale(x->dev, y, n->attr.scale));
	return 0;
}

int dt_call_embed_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	struct dt_tensor dy = dt_call_mat(x, n->in[0]);

	if (n->attr.scale != 1) /* dy is not used after this */
		TRY(x->dev->ops->scale(x->dev, dy, n->attr.scale));
	TRY(x->dev->ops->embedding_backward(x->dev, x->g[n->param[0]], dt_call_positions(x, x->g, n), dy,
					    ids(x, n), dt_call_pos(x), vocab_first(x, n->param[0])));
	if (n->param[2] >= 0 && x->flight->types && x->g[n->param[2]].data)
		TRY(x->dev->ops->embedding_backward(x->dev, x->g[n->param[2]], DT_NONE, dy, x->flight->types,
						    NULL, 0));
	else if (n->param[2] >= 0 && x->g[n->param[2]].data)
		TRY(x->dev->ops->colsum(x->dev, dt_t1(x->g[n->param[2]].data, DT_F32, dy.dim[1]), dy));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
