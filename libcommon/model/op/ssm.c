/*
 * Mamba-2's mixer between its projections (kernels/ssm.h): convolution, scan, gate, and a norm over the
 * columns of each group. tp cuts heads, and the groups whose B and C they read; a group that several ranks
 * read is on each of them, as keys that heads share are.
 *
 * attr: heads; kv_heads: groups; head_dim; value_dim: the state; taps: of the convolution.
 */
#include "model/op/rule.h"
#include "model/op/timed.h"

#include "kernels/ssm.h"

static int64_t inner(const struct dt_attr *a)
{
	return a->heads * a->head_dim;
}

static int columns(struct dt_lower *lo, const struct dt_node *n, int out, int64_t cols)
{
	return dt_lo_value(lo, dt_lo_name(lo, n->out[out]), n->unit, lo->s->compute, DT_ROWS_ALL, 1, cols);
}

/* xbc = silu(convolution of u) */
void dt_shape_ssm_conv(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = columns(lo, n, 0, lo->p->value[n->in[0]].cols);
}

void dt_back_ssm_conv(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), u = dt_lo_need(lo, n->in[0]),
	    du = dt_lo_like(lo, "d.in", n->unit, n->in[0]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_SSM_CONV_B, n);

	m->in[0] = dy;
	m->in[1] = u;
	m->out[0] = du;
	for (int i = 0; i < 6; i++)
		m->param[i] = n->param[i];
	dt_lo_add_grad(lo, n->in[0], du);
}

/* y of xbc and the steps t */
void dt_shape_ssm_scan(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = columns(lo, n, 0, inner(&n->attr));
}

void dt_back_ssm_scan(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), xbc = dt_lo_need(lo, n->in[0]), t = dt_lo_need(lo, n->in[1]),
	    dxbc = dt_lo_like(lo, "d.xbc", n->unit, n->in[0]), dt = dt_lo_like(lo, "d.dt", n->unit, n->in[1]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_SSM_SCAN_B, n);

	m->in[0] = dy;
	m->in[1] = xbc;
	m->in[2] = t;
	m->out[0] = dxbc;
	m->out[1] = dt;
	for (int i = 0; i < 3; i++)
		m->param[i] = n->param[i];
	dt_lo_add_grad(lo, n->in[0], dxbc);
	dt_lo_add_grad(lo, n->in[1], dt);
}

/* v = y silu(z) */
void dt_shape_ssm_gate(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = columns(lo, n, 0, inner(&n->attr));
}

void dt_back_ssm_gate(struct dt_lower *lo, const struct dt_node *n)
{
	int dv = dt_lo_grad(lo, n->out[0]), y = dt_lo_need(lo, n->in[0]), z = dt_lo_need(lo, n->in[1]),
	    dy = dt_lo_like(lo, "d.scan", n->unit, n->in[0]), dz = dt_lo_like(lo, "d.z", n->unit, n->in[1]);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_SSM_GATE_B, n);

	m->in[0] = dv;
	m->in[1] = y;
	m->in[2] = z;
	m->out[0] = dy;
	m->out[1] = dz;
	dt_lo_add_grad(lo, n->in[0], dy);
	dt_lo_add_grad(lo, n->in[1], dz);
}

/* Scratch for a sum a row if the one group is that of all ranks; else -1. */
static int sums(struct dt_lower *lo, const struct dt_node *n)
{
	return n->attr.whole && lo->s->tp > 1 ? dt_lo_room(lo, "ssm.sums", n->unit, DT_F32, DT_ROWS_ALL, 1, 1)
					      : -1;
}

void dt_shape_ssm_norm(struct dt_lower *lo, struct dt_node *n)
{
	n->out[0] = columns(lo, n, 0, inner(&n->attr));
	n->out[1] = dt_lo_serves(lo) ? -1
				     : dt_lo_value(lo, dt_lo_name(lo, n->out[1]), n->unit, DT_F32,
						   DT_ROWS_ALL, n->attr.kv_heads, 1);
	n->out[2] = sums(lo, n);
}

void dt_back_ssm_norm(struct dt_lower *lo, const struct dt_node *n)
{
	int dy = dt_lo_grad(lo, n->out[0]), v = dt_lo_need(lo, n->in[0]), rstd = dt_lo_need(lo, n->out[1]),
	    dv = dt_lo_like(lo, "d.gate", n->unit, n->in[0]), room = sums(lo, n);
	struct dt_node *m = dt_lo_emit(lo, DT_OP_SSM_NORM_B, n);

	m->in[0] = dy;
	m->in[1] = v;
	m->in[2] = rstd;
	m->out[0] = dv;
	m->out[1] = room;
	m->param[0] = n->param[0];
	dt_lo_add_grad(lo, n->in[0], dv);
}

/* ---- costs ---- */

/*
 * Products of the scan of a row. With Q rows of a chunk, N of the state, P of a head, and of each head:
 * M x, C S and B^T x forward, and of each group C B^T. Backward the last one and B^T x again, dy x^T and
 * M^T dy of Q x P, four of N x P, and two of Q x N for each group.
 */
static struct dt_node_cost scan(const struct dt_cost_site *s, const struct dt_node *n, bool backward)
{
	const struct dt_attr *a = &n->attr;
	const double rows = (double)s->p->rows[DT_ROWS_ALL], h = (double)a->heads, g = (double)a->kv_heads,
		     d = (double)a->head_dim, state = (double)a->value_dim,
		     q = s->context > 0			  ? 1
			 : s->seq < (int64_t)DT_SSM_CHUNK ? (double)s->seq
							  : (double)DT_SSM_CHUNK;
	struct dt_node_cost r = backward ? dt_cost_move_add(s, n) : dt_cost_move(s, n);

	r.kind = DT_COST_ATTENTION;
	r.flops = 2 * rows *
		  (backward ? h * (2 * q * d + 5 * state * d) + g * 3 * q * state
			    : h * (q * d + 2 * state * d) + g * q * state);
	if (s->context > 0) { /* each row's own state, f32 */
		r.read += 4 * rows * h * d * state;
		r.written += 4 * rows * h * d * state;
	}
	/* of the recurrence: the state's update and what is read of it */
	r.model_flops = (backward ? 2 : 1) * 4 * rows * h * d * state;
	return r;
}

struct dt_node_cost dt_cost_ssm_scan(const struct dt_cost_site *s, const struct dt_node *n)
{
	return scan(s, n, false);
}

struct dt_node_cost dt_cost_ssm_scan_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	return scan(s, n, true);
}

/* If the group is that of all ranks, its columns are read once more for the sums, which are all-reduced. */
static struct dt_node_cost norm(const struct dt_cost_site *s, struct dt_node_cost r, int room, double bytes)
{
	if (room < 0)
		return r;
	r.read += bytes;
	r.message = DT_MSG_ALL_REDUCE;
	r.message_bytes = dt_cost_bytes(s, room);
	return r;
}

struct dt_node_cost dt_cost_ssm_norm(const struct dt_cost_site *s, const struct dt_node *n)
{
	return norm(s, dt_cost_move(s, n), n->out[2], dt_cost_bytes(s, n->in[0]));
}

struct dt_node_cost dt_cost_ssm_norm_b(const struct dt_cost_site *s, const struct dt_node *n)
{
	return norm(s, dt_cost_move_add(s, n), n->out[1],
		    dt_cost_bytes(s, n->in[0]) + dt_cost_bytes(s, n->in[1]));
}

void dt_timed_ssm_norm(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_RMSNORM, n->in[0]);
}

void dt_timed_ssm_norm_b(const struct dt_cost_site *s, const struct dt_node *n, struct dt_timed_list *t)
{
	dt_timed_over(s, t, DT_T_RMSNORM_B, n->in[1]);
}
/* SPDX-License-Identifier: Apache-2.0 */
