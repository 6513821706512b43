/* Ops on heads: q/k norm, rotation and attention, all on one matrix of q, k and v. */
#include "model/op/rule.h"
#include "model/op/timed.h"

/* Scratch for two sums a row, of q and of k, if a norm is over heads of several ranks; else -1. */
static int heads_sums(struct dt_lower *lo, const struct dt_node *n)
{
	int v;

	if (!n->attr.whole || lo->s->tp < 2)
		return -1;
	v = dt_lo_value(lo, "qk.sums", n->unit, DT_F32, DT_ROWS_ALL, 2, 1);
	lo->p->value[v].room = true;
	return v;
}

void dt_shape_heads_norm(struct dt_lower *lo, struct dt_node *n)
{
	int64_t heads = n->attr.heads + n->attr.kv_heads;

	n->out[0] = dt_lo_like(lo, dt_lo_name(lo, n->out[0]), n->unit, n->in[0]);
	n->out[3] = heads_sums(lo, n);
	if (dt_lo_serves(lo)) {
		n->out[1] = n->out[2] = -1;
		return;
	}
	n->out[1] = dt_lo_value(lo, dt_lo_name(lo, n->out[1]), n->unit, lo->s->compute, DT_ROWS_ALL, heads,
				n->attr.head_dim);
	n->out[2] = dt_lo_value(lo, dt_lo_name(lo, n->out[2]), n->unit, DT_F32, DT_ROWS_ALL, heads, 1);
}

void dt_back_heads_norm(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), raw = dt_lo_need(lo, n->out[1]), rstd = dt_lo_need(lo, n->out[2]);
	int dx = dt_lo_like(lo, "d.qkv", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_HEADS_NORM_B, n);

	m->in[0] = dy;
	m->in[1] = raw;
	m->in[2] = rstd;
	m->out[0] = dx;
	m->out[1] = heads_sums(lo, n);
	m->param[0] = n->param[0];
	m->param[1] = n->param[1];
	dt_lo_add_grad(lo, n->in[0], dx);
}

/* If the norm spans ranks, its operand is read once more for the sums, which are all-reduced. */
static void count_sums(const struct dt_cost_site *s, int sums, double bytes, struct dt_node_cost *r)
{
	if (sums < 0)
		return;
	r->read += bytes;
	r->message = DT_MSG_ALL_REDUCE;
	r->message_bytes = dt_cost_bytes(s, sums);
}

struct dt_node_cost dt_cost_heads_norm(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move(s, n);

	count_sums(s, n->out[3], dt_cost_bytes(s, n->in[0]), &r);
	return r;
}

struct dt_node_cost dt_cost_heads_norm_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	struct dt_node_cost r = dt_cost_move_add(s, n);

	count_sums(s, n->out[1], dt_cost_bytes(s, n->in[0]) + dt_cost_bytes(s, n->in[1]), &r);
	return r;
}

void dt_shape_rope(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = dt_lo_like(lo, dt_lo_name(lo, n->out[0]), n->unit, n->in[0]);
}

void dt_back_rope(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), dx = dt_lo_like(lo, "d.qkv", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_ROPE_B, n);

	m->in[0] = dy;
	m->out[0] = dx;
	dt_lo_add_grad(lo, n->in[0], dx);
}

void dt_shape_attention(struct dt_lower *lo, struct dt_node *n)
{
	int lse = n->out[1];

	const struct dt_value x = lo->p->value[n->in[0]];
	const int64_t heads = n->attr.heads;

	n->out[0] = dt_lo_value(lo, dt_lo_name(lo, n->out[0]), n->unit, lo->s->compute, x.rows, x.mul,
				heads * n->attr.value_dim);
	/* serving has it for images and encoders alone, whose attention is training's */
	n->out[1] = dt_lo_serves(lo) && !n->attr.all
			    ? -1
			    : dt_lo_value(lo, dt_lo_name(lo, lse), n->unit, DT_F32, x.rows, x.mul * heads, 1);
}

void dt_lo_sinks(struct dt_lower *lo, const struct dt_node *n, int dy, int o, int lse)
{
	struct dt_node *m;

	if (n->param[0] < 0)
		return;
	m = dt_lo_emit(lo, DT_OP_SINK_B, n);
	m->in[0] = dy;
	m->in[1] = o;
	m->in[2] = lse;
	m->param[0] = n->param[0];
}

void dt_back_attention(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), o = dt_lo_need(lo, n->out[0]), lse = dt_lo_need(lo, n->out[1]);
	int qkv = dt_lo_need(lo, n->in[0]), dx = dt_lo_like(lo, "d.qkv", n->unit, n->in[0]), dkv = -1,
	    kv = -1;
	struct dt_node *m;

	if (n->in[1] >= 0) { /* keys and values of all context-parallel ranks */
		kv = dt_lo_need(lo, n->in[1]);
		dkv = dt_lo_like(lo, "d.kv", n->unit, n->in[1]);
		lo->p->value[dkv].dtype = DT_F32;
	}
	dt_lo_sinks(lo, n, dy, o, lse);
	m = dt_lo_emit(lo, DT_OP_ATTENTION_B, n);

	m->in[0] = dy;
	m->in[1] = o;
	m->in[2] = lse;
	m->in[3] = qkv;
	m->in[4] = kv;
	m->out[0] = dx;
	m->out[1] = dkv;
	if (dkv >= 0)
		dx = dt_lo_kv_scatter(lo, n, dx, dkv);
	dt_lo_add_grad(lo, n->in[0], dx);
}

/* Number of query-key pairs that the mask of a sequence allows: row i sees i + 1 keys, or its window's. */
static double pairs(double seq, double window)
{
	double w = window > 0 && window < seq ? window : seq;

	return w * (w + 1) / 2 + (seq - w) * w;
}

/* The same for the queries of a context-parallel rank. */
static double pairs_here(const struct dt_cost_site *s, double window)
{
	double c = (double)s->seq / (2 * s->cp), sum = 0;

	for (int i = 0; i < 2; i++)
		sum += pairs((double)s->chunk[i] + c, window) - pairs((double)s->chunk[i], window);
	return sum;
}

/*
 * Cost of attention: `keys` products with q and k and `values` products with v; model: factor for
 * model_flops.
 */
static struct dt_node_cost products(const struct dt_cost_site *s, const struct dt_node *n, double keys,
				    double values, double model)
{
	const struct dt_attr *a = &n->attr;
	double seq = (double)s->seq, rows = (double)s->p->rows[s->p->value[n->out[0]].rows];
	double span = a->tokens				    ? (double)(a->tokens * a->tokens)
		      : a->window > 0 && a->window < s->seq ? (double)a->window
							    : seq;
	double d = (double)a->head_dim, v = (double)a->value_dim, heads = (double)a->heads, met;
	bool cut = s->cp > 1 && s->p->value[n->out[0]].rows != DT_ROWS_SEQ; /* Ulysses has whole sequences */
	struct dt_node_cost r = dt_cost_move(s, n);

	r.kind = DT_COST_ATTENTION;
	if (s->context > 0) {
		span = a->window > 0 && a->window < s->context ? (double)a->window : (double)s->context;
		r.flops = r.model_flops = 2 * heads * rows * span * (d + v);
		r.read += rows * span * s->cache_row;
		return r;
	}
	met = a->tokens ? (double)(a->tokens * a->tokens) * rows
	      : a->all	? seq * rows
	      : cut	? rows * s->cp / seq * pairs_here(s, (double)a->window)
			: rows / seq * pairs(seq, (double)a->window);
	r.flops = 2 * heads * met * (keys * d + values * v);
	r.model_flops = model * 2 * heads * rows * span * (d + v);
	return r;
}

struct dt_node_cost dt_cost_attention(const struct dt_cost_site *s, const struct dt_node *n)
{
	return products(s, n, 1, 1, 1); /* q k^T, p v */
}

struct dt_node_cost dt_cost_attention_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	return products(s, n, 3, 2, 2); /* q k^T, ds k, ds^T q; do v^T, p^T do */
}

/* ---- as measured ---- */

void dt_timed_heads_norm(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_RMSNORM, n->out[1] >= 0 ? n->out[1] : n->in[0]);
}

void dt_timed_heads_norm_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_RMSNORM_B, n->in[1]);
}

void dt_timed_rope(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_put(t, DT_T_ROPE, 1, (double)dt_value_rows(s->p, n->in[0]),
		     (double)((n->attr.heads + n->attr.kv_heads) * n->attr.head_dim), 1);
}

static void attention(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t,
		      enum dt_timed op)
{
	double batch = (double)s->p->rows[DT_ROWS_ALL] / (double)s->seq;
	const int64_t rows = n->attr.tokens ? n->attr.tokens : s->seq;

	/* measured with a causal mask: half of the pairs */
	dt_timed_put(t, op, n->attr.all ? 2 : 1, batch * (double)n->attr.heads, (double)rows,
		     (double)n->attr.head_dim);
}

void dt_timed_attention(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	attention(s, n, t, DT_T_ATTENTION);
}

void dt_timed_attention_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	attention(s, n, t, DT_T_ATTENTION_B);
}
/* SPDX-License-Identifier: Apache-2.0 */
