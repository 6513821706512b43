/*
 * Latent attention: the ops between its products and the scores (kernels/latent.h).
 *
 * Training computes each head's keys and values from the latents. Serving caches the latent and the rotated
 * part of the key, which all heads share (DeepSeek-V2, 2024, section 2.1.2): each head's queries are
 * multiplied by the matrix of its keys (absorb) and attend to latents; the result is multiplied by the matrix
 * of its values (values). With R columns of the latent, n and r of a head's plain and rotated part and v of
 * its values, one head's query on S keys costs
 *   absorbed             2 (n R + R v + S (2 R + r))
 *   keys made each time  2 S ((n + v) R + n + r + v)
 * when a pass has one query a sequence: 1088 against 131392 per key for DeepSeek-V3. For a prompt of T
 * tokens, making the keys once costs T^2 (2 R - n - v) less than absorbing. Prompts are absorbed too: then a
 * row has the same bits however its prompt was chunked or cached.
 */
#include "model/op/cost.h"
#include "model/op/rule.h"

/* Splits off the latent, of which keys and values are made, and the part of the key that all heads share. */
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

/* Joins queries, and keys and values made from a latent, as attention reads them: [q k v] of every head. */
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

/* Scratch in head-major order, before or after the per-head products. */
static int by_head(struct dt_lower *lo, const char *name, const struct dt_node *n, int64_t cols)
{
	return dt_lo_room(lo, name, n->unit, lo->s->compute, DT_ROWS_ALL, n->attr.heads, cols);
}

static int first_rows(struct dt_lower *lo, const struct dt_node *n)
{
	return dt_lo_room(lo, "first rows", n->unit, DT_I32, DT_ROWS_NONE, n->attr.heads + 1, 1);
}

/* Serving: queries in latent space, and the key that all heads share: [rotated, latent] for each. */
void dt_shape_latent_absorb(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_attr *a = &n->attr;

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute, DT_ROWS_ALL, 1,
				(a->heads + 1) * (a->rope_dim + a->latent_dim));
	n->out[1] = first_rows(lo, n);
	n->out[2] = by_head(lo, "plain q", n, a->head_dim - a->rope_dim);
	n->out[3] = by_head(lo, "absorbed q", n, a->latent_dim);
}

/* Serving: each head's values from attention's output in latent space. */
void dt_shape_latent_values(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_attr *a = &n->attr;

	n->out[0] =
		dt_lo_value(lo, "values", n->unit, lo->s->compute, DT_ROWS_ALL, 1, a->heads * a->value_dim);
	n->out[1] = first_rows(lo, n);
	n->out[2] = by_head(lo, "latents by head", n, a->latent_dim);
	n->out[3] = by_head(lo, "values by head", n, a->value_dim);
}

/* One product for each head, with the part of the tensor that has `cols` columns. */
static struct dt_node_cost part(const struct dt_cost_site *s, const struct dt_node *n, int64_t cols)
{
	double numel = (double)(n->attr.heads * n->attr.latent_dim * cols);
	struct dt_node_cost r = dt_cost_move(s, n);

	r.read += (numel - dt_cost_numel(s, n, 0, 1)) * dt_cost_weight(s);
	return dt_cost_product(r, (double)dt_value_rows(s->p, n->out[0]), numel);
}

struct dt_node_cost dt_cost_latent_absorb(const struct dt_cost_site *s, const struct dt_node *n)
{
	return part(s, n, n->attr.head_dim - n->attr.rope_dim);
}

struct dt_node_cost dt_cost_latent_values(const struct dt_cost_site *s, const struct dt_node *n)
{
	return part(s, n, n->attr.value_dim);
}
/* SPDX-License-Identifier: Apache-2.0 */
