/* Latent attention: the operations between its projections and the scores; and values side by side. */
#include "nn/call.h"

/* The columns of parts a and b side by side in whole, or (split) those of whole in a and b. */
static int side_by_side(struct dt_exec *x, int whole, int a, int b, bool split, struct dt_err *err)
{
	const struct dt_ops *o = x->dev->ops;
	struct dt_tensor w = dt_call_mat(x, whole), part[2] = {dt_call_mat(x, a), dt_call_mat(x, b)};

	for (int i = 0; i < 2; i++) {
		const int64_t at = i ? part[0].dim[1] : 0, n = part[i].dim[1];

		if (split)
			TRY(o->columns(x->dev, part[i], 0, w, at, n, false));
		else
			TRY(o->columns(x->dev, w, at, part[i], 0, n, false));
	}
	return 0;
}

int dt_call_latent_split(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return side_by_side(x, n->in[0], n->out[0], n->out[1], true, err);
}

int dt_call_latent_split_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return side_by_side(x, n->out[0], n->in[0], n->in[1], false, err);
}

int dt_call_join(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return side_by_side(x, n->out[0], n->in[0], n->in[1], false, err);
}

int dt_call_join_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return side_by_side(x, n->in[0], n->out[0], n->out[1], true, err);
}

/*
 * qkv has all heads of q, then of k, then of v, as attention reads them. A head of q and of k begins with its
 * rotary part; in the operands (q, the key that all heads share, [plain k, v] per head) that part is last.
 * Backward splits the same columns, and the shared key's gradient is the sum over heads.
 */
static int join(struct dt_exec *x, const struct dt_node *n, struct dt_tensor qkv, const int operand[3],
		bool back, struct dt_err *err)
{
	const struct dt_attr *a = &n->attr;
	const int64_t H = a->heads, r = a->rope_dim, d = a->head_dim, p = d - r, v = a->value_dim,
		      wide = qkv.dim[1];
	const struct {
		int operand;
		int64_t n;
		struct dt_latent_place in, at; /* places in the operand, and in qkv */
	} part[] = {
		{0, r, {p, H * d, d}, {0, wide, d}},
		{0, p, {0, H * d, d}, {r, wide, d}},
		{1, r, {0, r, 0}, {H * d, wide, d}},
		{2, p, {0, H * (p + v), p + v}, {H * d + r, wide, d}},
		{2, v, {p, H * (p + v), p + v}, {2 * H * d, wide, v}},
	};

	for (int i = 0; i < 5; i++) {
		const struct dt_tensor t = dt_call_mat(x, operand[part[i].operand]);
		const struct dt_latent_heads c = {.rows = qkv.dim[0],
						  .heads = H,
						  .n = part[i].n,
						  .to = back ? part[i].in : part[i].at,
						  .from = back ? part[i].at : part[i].in,
						  .sum = back && part[i].operand == 1};

		TRY(x->dev->ops->latent_heads(x->dev, back ? t : qkv, back ? qkv : t, &c));
	}
	return 0;
}

int dt_call_latent_join(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return join(x, n, dt_call_mat(x, n->out[0]), n->in, false, err);
}

int dt_call_latent_join_b(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	return join(x, n, dt_call_mat(x, n->in[0]), n->out, true, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
