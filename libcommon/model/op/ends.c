/* The ends of a model: token embeddings, and the head with its loss. */
#include "model/op/rule.h"
#include "model/op/timed.h"

#include <math.h>

void dt_shape_embed(struct dt_lower *lo, struct dt_node *n)
{
	bool cut = dt_lo_cut(lo, n->param[0]) == 0;

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute,
				cut ? DT_ROWS_ALL : DT_ROWS_STREAM, 1, dt_lo_dim(lo, n->param[0], 1));
	lo->info[n->out[0]].partial = cut;
	lo->info[n->out[0]].whole = !cut;
	/* positions (in serving) and types are looked up separately and added */
	if ((dt_lo_serves(lo) && n->param[1] >= 0) || (!dt_lo_serves(lo) && dt_config_has_types(lo->s->c)))
		n->out[4] = dt_lo_room(lo, dt_lo_serves(lo) ? "positions" : "types", n->unit, lo->s->compute,
				       lo->p->value[n->out[0]].rows, 1, dt_lo_dim(lo, n->param[0], 1));
}

void dt_back_embed(struct dt_lower *lo, const struct dt_node *n)
{
	struct dt_node *m = dt_lo_emit(lo, DT_OP_EMBED_B, n);

	m->in[0] = dt_lo_grad(lo, n->out[0]);
	for (int i = 0; i < 3; i++)
		m->param[i] = n->param[i];
}

/*
 * Logits exist for loss_chunk rows at a time, and their gradient is computed before the next chunk, so the
 * node returns the gradient of its input and adds to the head's. Rows of both are padded to a multiple of 8
 * columns, as GPU products prefer, on all devices, so that plans do not depend on the device. param[2]: a
 * bias of the logits.
 */
void dt_shape_loss(struct dt_lower *lo, struct dt_node *n)
{
	int64_t chunk = lo->s->loss_chunk, wide = (dt_lo_dim(lo, n->param[0], 0) + 7) / 8 * 8;
	/* In place only if the logits are not read after their gradient is written. */
	bool narrow = lo->s->compute != DT_F32 || n->attr.cap > 0;

	n->out[0] = dt_lo_like(lo, "d.norm", n->unit, n->in[0]);
	n->out[1] = dt_lo_room(lo, "logits", n->unit, DT_F32, DT_ROWS_NONE, chunk, wide);
	n->out[2] =
		narrow ? dt_lo_room(lo, "d.logits", n->unit, lo->s->compute, DT_ROWS_NONE, chunk, wide) : -1;
	n->out[3] = dt_lo_room(lo, "loss rows", n->unit, DT_F32, DT_ROWS_NONE,
			       lo->s->teacher ? DT_LOSS_ROWS_TAUGHT : DT_LOSS_ROWS, chunk);
	lo->p->value[n->out[0]].gradient = true;
	n->attr.frozen = lo->s->graph->params.p[n->param[0]].frozen;
}

void dt_back_loss(struct dt_lower *lo, const struct dt_node *n)
{
	dt_lo_add_grad(lo, n->in[0], n->out[0]);
}

/*
 * Serving: picks the rows that need logits, unless they are the first. Logits go to the caller's memory,
 * except on a stage that sends them to the first. If the vocabulary is cut, each rank computes its part, and
 * the first rank gathers them. Parts may differ by one row: all have room for the larger.
 */
void dt_shape_head(struct dt_lower *lo, struct dt_node *n)
{
	const struct dt_value x = lo->p->value[n->in[0]];
	int64_t outputs = lo->s->outputs, vocab = lo->s->graph->params.p[n->param[0]].shape[0];
	int64_t tp = lo->s->tp, most = (vocab + tp - 1) / tp;
	bool cut = dt_lo_cut(lo, n->param[0]) == 0, first = lo->s->tp_rank == 0;

	n->out[0] = dt_lo_room(lo, "picked rows", n->unit, x.dtype, DT_ROWS_NONE, outputs, x.cols);
	if (cut)
		n->out[1] = dt_lo_room(lo, "logits here", n->unit, DT_F32, DT_ROWS_NONE, outputs, most);
	if (cut && first)
		n->out[2] =
			dt_lo_room(lo, "logits gathered", n->unit, DT_F32, DT_ROWS_NONE, tp * outputs, most);
	if (first && lo->s->first_unit >= 0)
		n->out[3] = dt_lo_room(lo, "logits sent", n->unit, DT_F32, DT_ROWS_NONE, outputs, vocab);
}

/* The end of a model whose final hidden states the caller reads: it computes nothing. */
void dt_shape_states(struct dt_lower *lo, struct dt_node *n)
{
	(void)lo;
	(void)n;
}

/* Reads one row of each table for every row; multiplying by a scale is one more pass. */
struct dt_node_cost dt_cost_embed(const struct dt_cost_site *s, const struct dt_node *n)
{
	double y = dt_cost_bytes(s, n->out[0]), passes = (n->attr.scale != 1) + (n->param[2] >= 0);

	return (struct dt_node_cost){.read = y * (1 + (n->param[1] >= 0) + passes),
				     .written = y * (1 + passes)};
}

struct dt_node_cost dt_cost_embed_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	double dy = dt_cost_bytes(s, n->in[0]), passes = n->attr.scale != 1 ? 1 : 0;
	double grads = 4 * (double)dt_value_numel(s->p, n->in[0]) * (1 + (n->param[1] >= 0));

	if (n->param[2] >= 0)
		grads += dy;
	return (struct dt_node_cost){.read = dy * (1 + passes) + grads, .written = dy * passes + grads};
}

/* Rows of which the loss is computed. */
static int64_t loss_rows(const struct dt_cost_site *s, const struct dt_node *n)
{
	const int64_t all = dt_value_rows(s->p, n->in[0]);

	return s->picks ? dt_cost_picked(s, all) : all;
}

/*
 * For each chunk: logits, two passes over them, their gradient, and both backward products. The first chunk
 * overwrites the head's gradient; the others add to it. MFU counts rows
 * with a target, where their number is fixed.
 */
struct dt_node_cost dt_cost_loss(const struct dt_cost_site *s, const struct dt_node *n)
{
	double all = (double)dt_value_rows(s->p, n->in[0]), rows = (double)loss_rows(s, n),
	       in = dt_cost_bytes(s, n->in[0]) * rows / all, needed = s->targets ? (double)s->targets : all;
	double head = dt_cost_numel(s, n, 0, 1), logits = rows * (double)s->param[n->param[0]][0];
	double chunks = (double)((loss_rows(s, n) + s->loss_chunk - 1) / s->loss_chunk);
	double e = dt_dtype_size(s->compute), dlogits = logits * e;
	bool taught = s->p->value[n->out[3]].mul == DT_LOSS_ROWS_TAUGHT;
	struct dt_node_cost r = {.read = 2 * in + 2 * chunks * head * e + 2 * 4 * logits + 2 * dlogits +
					 4 * (chunks - 1) * head,
				 .written = 4 * logits + dlogits + 4 * chunks * head +
					    dt_cost_bytes(s, n->out[0])};

	if (n->attr.frozen) {
		r.read -= in + 4 * (chunks - 1) * head;
		r.written -= 4 * chunks * head;
	}
	r = dt_cost_product(r, (n->attr.frozen ? 2 : 3) * rows, head);
	r.model_flops *= needed / rows;
	r.passes = 2 * 4 * logits + dlogits; /* logits are read for maximum and sum, and for the gradient */
	if (n->attr.scale != 1) {
		r.read += 4 * logits;
		r.written += 4 * logits;
		r.passes += 2 * 4 * logits;
	}
	if (taught) { /* once more for the divergence */
		r.read += 4 * logits;
		r.passes += 4 * logits;
	}
	/* a row's maximum, sum and target logit; with a teacher also three sums of the divergence */
	if (s->tp > 1) {
		r.message = DT_MSG_ALL_REDUCE;
		r.message_bytes = (taught ? 6 : 3) * 4 * rows;
	}
	return r;
}

/* Logits of the rows that need them, written to the caller's memory. */
struct dt_node_cost dt_cost_head(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);
	double rows = (double)dt_value_rows(s->p, n->out[0]);

	if (n->out[1] >= 0) {
		r.message = DT_MSG_GATHER;
		r.message_bytes = dt_cost_bytes(s, n->out[1]) * s->tp;
	}
	r.written += 4 * rows * (double)s->param[n->param[0]][0];
	return dt_cost_product(r, rows, dt_cost_numel(s, n, 0, 1));
}

/* ---- as measured ---- */

void dt_timed_embed(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_EMBED, n->out[0]);
}

void dt_timed_embed_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_EMBED_B, n->in[0]);
}

/* Full chunks of rows, and the remainder. */
void dt_timed_loss(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	double h = (double)s->p->value[n->in[0]].cols, v = (double)s->param[n->param[0]][0];
	double all = (double)loss_rows(s, n), chunk = (double)s->loss_chunk;
	double whole = floor(all / chunk), rest = all - whole * chunk;
	bool taught = s->p->value[n->out[3]].mul == DT_LOSS_ROWS_TAUGHT;

	for (int i = 0; i < 2; i++) {
		double times = i ? rest > 0 : whole, rows = i ? rest : chunk;

		if (times <= 0)
			continue;
		dt_timed_put(t, DT_T_HEAD, times, rows, v, h);
		dt_timed_put(t, DT_T_CE, taught ? 2 * times : times, rows, v,
			     1); /* a divergence costs the same again */
		dt_timed_put(t, DT_T_HEAD_X, times, rows, v, h);
		if (n->attr.frozen)
			continue;
		dt_timed_put(t, DT_T_HEAD_W, times, rows, v, h);
		t->part[t->n - 1].more = DT_T_HEAD_ADD;
	}
}
/* SPDX-License-Identifier: Apache-2.0 */
