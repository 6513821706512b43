/* Latent attention: what stands between its products and the scores (kernels/latent.h). */
#include "model/op/rule.h"

/* The latent that keys and values are made from, and the part of the key that all heads share. */
void dt_shape_latent_split(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];

	for (int i = 0; i < 2; i++) {
		n->out[i] = dt_lo_value(lo, dt_lo_name(lo, n->out[i]), n->unit, x.dtype, x.rows, x.mul,
					i ? n->attr.rope_dim : n->attr.latent_dim);
		lo->info[n->out[i]].whole = lo->info[n->in[0]].whole;
	}
}

void dt_back_latent_split(struct dt_lower *lo, const struct dt_node *n)
{
	int latent = dt_lo_grad(lo, n->out[0]), key = dt_lo_grad(lo, n->out[1]);
	int dx = dt_lo_like(lo, "d.split", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_LATENT_SPLIT_B, n);

	m->in[0] = latent;
	m->in[1] = key;
	m->out[0] = dx;
	dt_lo_add_grad(lo, n->in[0], dx);
}

/* Queries, and keys and values made from a latent, as attention reads them: [q k v] of every head. */
void dt_shape_latent_join(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute, DT_ROWS_ALL, 1,
				n->attr.heads * (2 * n->attr.head_dim + n->attr.value_dim));
}

void dt_back_latent_join(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), d[3];
	struct dt_node *m;

	for (int i = 0; i < 3; i++)
		d[i] = dt_lo_like(lo, "d.join", n->unit, n->in[i]);
	m = dt_lo_emit(lo, DT_OP_LATENT_JOIN_B, n);
	m->in[0] = dy;
	for (int i = 0; i < 3; i++)
		m->out[i] = d[i];
	for (int i = 0; i < 3; i++)
		dt_lo_add_grad(lo, n->in[i], d[i]);
}
/* SPDX-License-Identifier: Apache-2.0 */
