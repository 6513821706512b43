/*
 * Latent attention in serving (model/op/latent.c): a product per head before attention over latents, and one
 * after it. Heads are the weights of a set (kernels/quant.h), whose rows are stored one head after another.
 * The first rows of heads are among the tables of a step on a device, where recorded steps read them.
 */
#include "nn/infer_priv.h"

/* y [heads rows, cols] = each head's rows times its weight. */
static int product(struct dt_exec *x, const struct dt_node *n, const struct dt_packed_set *w, int y, int from,
		   struct dt_err *err)
{
	const int64_t rows = x->p->rows[DT_ROWS_ALL];
	const struct dt_infer *m = x->owner;
	int32_t *first = dt_call_at(x, n->out[1]);
	const struct dt_meet each = {.first = m->side.head ? dt_infer_there(m, m->side.head) : first};

	for (int64_t h = 0; !m->side.head && h <= n->attr.heads; h++)
		first[h] = (int32_t)(h * rows);
	TRY(x->dev->ops->packed_set_matmul(x->dev, dt_call_mat(x, y), dt_call_mat(x, from), w, &each));
	return 0;
}

struct move {
	int to, from; /* values */
	int64_t heads, n;
	struct dt_latent_place at, in;
};

static int move(struct dt_exec *x, const struct move *m, struct dt_err *err)
{
	const struct dt_latent_heads c = {
		.rows = x->p->rows[DT_ROWS_ALL], .heads = m->heads, .n = m->n, .to = m->at, .from = m->in};

	TRY(x->dev->ops->latent_heads(x->dev, dt_call_mat(x, m->to), dt_call_mat(x, m->from), &c));
	return 0;
}

static const struct dt_infer_heads *heads_of(const struct dt_exec *x, const struct dt_node *n)
{
	const struct dt_infer *m = x->owner;

	return &m->heads[n->param[0]];
}

int dt_serve_latent_absorb(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_attr *a = &n->attr;
	const int64_t H = a->heads, r = a->rope_dim, p = a->head_dim - r, R = a->latent_dim, D = r + R;
	const int64_t rows = x->p->rows[DT_ROWS_ALL], wide = (H + 1) * D;
	const int qkv = n->out[0], plain = n->out[2], absorbed = n->out[3];
	const struct move apart = {plain, n->in[0], H, p, {0, p, rows * p}, {0, H * (p + r), p + r}};
	const struct move join[] = {
		{qkv, absorbed, H, R, {r, wide, D}, {0, R, rows * R}},
		{qkv, n->in[0], H, r, {0, wide, D}, {p, H * (p + r), p + r}},
		{qkv, n->in[1], 1, r, {H * D, wide, 0}, {0, r, 0}},
		{qkv, n->in[2], 1, R, {H * D + r, wide, 0}, {0, R, 0}},
	};
	int rc = move(x, &apart, err);

	if (rc == 0)
		rc = product(x, n, heads_of(x, n)->keys, absorbed, plain, err);
	for (int i = 0; i < 4 && rc == 0; i++)
		rc = move(x, &join[i], err);
	return rc;
}

int dt_serve_latent_values(struct dt_exec *x, const struct dt_node *n, struct dt_err *err)
{
	const struct dt_attr *a = &n->attr;
	const int64_t H = a->heads, R = a->latent_dim, v = a->value_dim, rows = x->p->rows[DT_ROWS_ALL];
	const struct move apart = {n->out[2], n->in[0], H, R, {0, R, rows * R}, {0, H * R, R}},
			  join = {n->out[0], n->out[3], H, v, {0, H * v, v}, {0, v, rows * v}};
	int rc = move(x, &apart, err);

	if (rc == 0)
		rc = product(x, n, heads_of(x, n)->values, n->out[3], n->out[2], err);
	return rc == 0 ? move(x, &join, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
