/* Latent attention: what stands between its products and the scores. */
#include "nn/call.h"

int dt_call_latent_split(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor in = dt_call_mat(x, n->in[0]), latent = dt_call_mat(x, n->out[0]),
			 key = dt_call_mat(x, n->out[1]);

	TRY(o->columns(x->dev, latent, 0, in, 0, latent.dim[1], false));
	TRY(o->columns(x->dev, key, 0, in, latent.dim[1], key.dim[1], false));
	return 0;
}

int dt_call_latent_split_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor latent = dt_call_mat(x, n->in[0]), key = dt_call_mat(x, n->in[1]),
			 dx = dt_call_mat(x, n->out[0]);

	TRY(o->columns(x->dev, dx, 0, latent, 0, latent.dim[1], false));
	TRY(o->columns(x->dev, dx, latent.dim[1], key, 0, key.dim[1], false));
	return 0;
}

static struct dt_latent heads_of(const struct dt_node *n)
{
	const struct dt_attr *a = &n->attr;

	return (struct dt_latent){a->heads, a->head_dim - a->rope_dim, a->rope_dim, a->value_dim};
}

int dt_call_latent_join(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_latent p = heads_of(n);

	TRY(x->dev->ops->latent_join(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->in[0]),
				     dt_call_mat(x, n->in[1]), dt_call_mat(x, n->in[2]), &p));
	return 0;
}

int dt_call_latent_join_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_latent p = heads_of(n);

	TRY(x->dev->ops->latent_join_backward(x->dev, dt_call_mat(x, n->out[0]), dt_call_mat(x, n->out[1]),
					      dt_call_mat(x, n->out[2]), dt_call_mat(x, n->in[0]), &p));
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
