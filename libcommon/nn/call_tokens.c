/* Tokens of images, and the row of a sample that a classifier reads. */
#include "nn/call.h"

int dt_call_tokens(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->image_tokens(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				      x->w[n->param[0]], x->w[n->param[1]]));
	return 0;
}

int dt_call_tokens_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	TRY(x->dev->ops->image_tokens_backward(x->dev, dt_call_mat(x, n->out[0]), x->g[n->param[0]],
					       x->g[n->param[1]], dt_call_mat(x, n->in[0]),
					       x->p->value[n->in[0]].mul));
	return 0;
}

/*
 * Rows of `few`, one a sample, and where they are among those of all tokens: the first of an image, the last
 * of a text.
 */
static struct dt_latent_heads rows_of(const struct dt_exec *x, const struct dt_node *n, struct dt_tensor few,
				      bool out)
{
	const int64_t cols = few.dim[1], tokens = n->attr.tokens ? n->attr.tokens : x->seq;
	const struct dt_latent_place one = {0, cols, 0},
				     all = {n->attr.tokens ? 0 : (tokens - 1) * cols, tokens * cols, 0};

	return (struct dt_latent_heads){few.dim[0], 1, few.dim[1], out ? one : all, out ? all : one, false};
}

int dt_call_class_row(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_tensor y = dt_call_mat(x, n->out[0]);
	const struct dt_latent_heads p = rows_of(x, n, y, true);

	TRY(x->dev->ops->latent_heads(x->dev, y, dt_call_mat(x, n->in[0]), &p));
	return 0;
}

int dt_call_class_row_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_tensor dx = dt_call_mat(x, n->out[0]), dy = dt_call_mat(x, n->in[0]);
	const struct dt_latent_heads p = rows_of(x, n, dy, false);

	TRY(dt_dev_clear(x->dev, dx.data, (size_t)dt_numel(dx) * (size_t)dt_dtype_size(dx.dtype)));
	TRY(x->dev->ops->latent_heads(x->dev, dx, dy, &p));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
