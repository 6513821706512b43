/*
 * Seconds of nodes: from measured operations if there are any (plan/optimes.h), else the roofline; messages
 * from the links. A layer's time is the sum over its nodes.
 */
#include "plan/stepcost.h"

#include <math.h>

struct dt_device dt_device_for(const struct dt_cluster *c, int n, enum dt_dtype compute)
{
	struct dt_device d = dt_cluster_rank_device(c, n);

	if (compute == DT_F32) /* half the SIMD width, a third of the rate of 16-bit units */
		d.peak_flops *= c->cores ? 0.5 : 0.0625;
	return d;
}

void dt_step_model_init(struct dt_step_model *m, const struct dt_cluster *c, const struct dt_run *s,
			const struct dt_stack *stack, const struct dt_work *work)
{
	int world = dt_layout_world(&s->layout);

	*m = (struct dt_step_model){.c = c, .s = s, .stack = stack, .work = work};
	m->here = world < c->gpus_a_node ? world : c->gpus_a_node;
	m->dev = dt_device_for(c, m->here, s->compute);
	/* Operations of latent attention have other shapes; f16 and 8 bits use other code. */
	m->measured = c->ops && c->cores && !s->config->kv_rank && s->compute != DT_F16 && !s->fp8;
}

static double flops_a_second(const struct dt_device *d, enum dt_cost_kind kind)
{
	switch (kind) {
	case DT_COST_PRODUCT8:
		return d->peak_fp8 * d->matmul_eff;
	case DT_COST_ATTENTION:
		return d->peak_flops * d->attention_eff;
	default:
		return d->peak_flops * d->matmul_eff;
	}
}

double dt_node_seconds(const struct dt_device *d, const struct dt_node_cost *cost)
{
	double bw = d->mem_bw * d->mem_eff, bytes = cost->read + cost->written - cost->passes;

	return fmax(cost->flops / flops_a_second(d, cost->kind), bytes / bw) + cost->passes / bw + d->op_s;
}

double dt_message_seconds(const struct dt_cluster *c, const struct dt_node_cost *cost,
			  const struct dt_layout *l)
{
	static const enum dt_collective as[] = {[DT_MSG_ALL_REDUCE] = DT_COLL_ALL_REDUCE,
						[DT_MSG_GATHER] = DT_COLL_ALL_GATHER,
						[DT_MSG_REDUCE_SCATTER] = DT_COLL_REDUCE_SCATTER,
						[DT_MSG_ALL_TO_ALL] = DT_COLL_ALL_TO_ALL,
						[DT_MSG_RING] = DT_COLL_ALL_GATHER};

	if (!cost->message)
		return 0;
	return dt_collective_time(c, as[cost->message], cost->message_bytes,
				  cost->over_ep	  ? l->ep
				  : cost->over_cp ? l->cp
						  : l->tp,
				  cost->over_ep || cost->over_cp ? l->tp : 1);
}

/*
 * Time of a node's measured operations. Weight gradients of the first microbatch overwrite, those of the
 * others accumulate; with ZeRO 2 and 3, none accumulates.
 */
static double measured(const struct dt_step_model *m, const struct dt_timed_list *t)
{
	double sum = 0, uses = 0;

	for (int i = 0; i < t->n; i++)
		uses += t->part[i].more != t->part[i].op ? t->part[i].times : 0;
	uses *= (double)dt_run_accumulation(m->s);
	for (int i = 0; i < t->n; i++) {
		const struct dt_timed_part *p = &t->part[i];
		double s = dt_op_seconds(m->c->ops, m->here, p->op, m->s->compute, p->a, p->b, p->c);

		if (p->more != p->op && uses > 1 && m->s->layout.zero < 2)
			s = (s + (uses - 1) * dt_op_seconds(m->c->ops, m->here, p->more, m->s->compute, p->a,
							    p->b, p->c)) /
			    uses;
		sum += p->times * s;
	}
	return sum;
}

/* Attention that materialises scores: softmax, dropout and re-reading are 6.5 passes over all pairs. */
static double attention_with_scores(const struct dt_step_model *m, const struct dt_work_node *n)
{
	const struct dt_config *c = m->s->config;
	double bytes = 6.5 * (double)c->heads / m->s->layout.tp * (double)m->s->seq * m->work->tokens *
		       dt_dtype_size(m->s->compute);
	bool forward = n->list == DT_LIST_FORWARD || n->again;
	/* Twice the pairs that the mask allows; backward's five products less the one that was kept. */
	double flops = (forward ? 2 : 1.6) * n->cost.flops;

	return flops / (m->dev.peak_flops * m->dev.matmul_eff) +
	       (forward ? 1 : 2) * (bytes / (m->dev.mem_bw * m->dev.mem_eff) + 4 * m->dev.op_s);
}

static double seconds(const struct dt_step_model *m, const struct dt_work_node *n)
{
	bool product = n->cost.kind == DT_COST_PRODUCT || n->cost.kind == DT_COST_PRODUCT8;

	if (m->measured && n->timed.n)
		return measured(m, &n->timed);
	if (n->cost.waits)
		return 0;
	if (n->cost.message && n->cost.flops <= 0) /* its bytes are those of the message */
		return 0;
	if (m->stack->scores && n->cost.kind == DT_COST_ATTENTION)
		return attention_with_scores(m, n);
	/* Backward's two products take backward_ratio of forward's one; the loss has all three. */
	return dt_node_seconds(&m->dev, &n->cost) *
	       (!product || n->again	     ? 1
		: n->list == DT_LIST_LOSS    ? (1 + m->dev.backward_ratio) / 3
		: n->list == DT_LIST_FORWARD ? 1
					     : m->dev.backward_ratio / 2);
}

/*
 * Messages that overlap computation, if other hardware than the computing cores moves them: the rank waits
 * for what computation does not hide. A product on one tp rank's rows after another overlaps with all but one
 * of them.
 */
struct under_way {
	double left[4]; /* seconds left, oldest first */
	int n;
	double hidden; /* seconds since the product whose sums are sent */
};

static double end(struct under_way *u)
{
	return u->n ? u->left[--u->n] : 0;
}

static void pass(struct under_way *u, double t)
{
	for (int i = 0; i < u->n; i++) {
		double some = fmin(t, u->left[i]);

		u->left[i] -= some;
		t -= some;
	}
}

/* Seconds that node n, which computes for t, waits for messages; sent: time of its own message. */
static double waited(const struct dt_step_model *m, struct under_way *u, const struct dt_work_node *n,
		     double t, double sent)
{
	const struct dt_layout *l = &m->s->layout;
	const struct dt_node_cost *c = &n->cost;
	double beside = c->parts || c->sends ? t * (l->tp - 1) / l->tp : t;
	/* On GPUs stream gathers are sequential; on CPUs, copies within a machine use the computing cores. */
	bool hides = c->over_ep ? !m->c->cores : m->c->cores && l->tp > m->c->gpus_a_node;

	pass(u, beside);
	u->hidden = c->sends ? beside : u->hidden + t;
	if (c->message == DT_MSG_RING) /* the part that its own attention does not hide */
		return fmax(0, sent - t);
	if (c->begins && hides && u->n < 4)
		u->left[u->n++] = sent;
	else if (c->ends && hides)
		return fmax(0, sent - u->hidden);
	else
		return sent + (c->waits || c->parts ? end(u) : 0);
	return 0;
}

static struct dt_layer_cost unit_time(const struct dt_step_model *m, const struct dt_work_unit *u, bool apart)
{
	struct dt_layer_cost r = {0};
	struct dt_cost again = {0};
	struct under_way way = {0};

	for (int i = u->first; i < u->first + u->n; i++) {
		const struct dt_work_node *n = &m->work->node[i];
		struct dt_cost *to = n->again ? &again : n->list == DT_LIST_FORWARD ? &r.f : &r.b;
		double t = seconds(m, n), sent = dt_message_seconds(m->c, &n->cost, &m->s->layout);

		*(n->cost.over_ep   ? &to->ep
		  : n->cost.over_cp ? &to->cp
				    : &to->tp) += waited(m, &way, n, t, sent);
		if (n->weights && apart)
			r.w += t;
		else if (n->cost.kind == DT_COST_ATTENTION)
			to->attention += t;
		else if (n->cost.kind == DT_COST_PASS)
			to->memory += t;
		else
			to->matmul += t;
	}
	r.again = dt_cost_sum(&again);
	return r;
}

struct dt_layer_cost dt_layer_time(const struct dt_step_model *m, int layer)
{
	struct dt_layer_cost r = unit_time(m, dt_work_unit(m->work, layer), dt_run_splits(m->s));

	if (m->stack->scores) /* recomputes attention alone, or the whole layer with its last product */
		r.again = m->s->recompute.mode == DT_RECOMPUTE_SELECTIVE ? r.f.attention
			  : m->s->recompute.mode == DT_RECOMPUTE_FULL	 ? dt_cost_sum(&r.f)
									 : 0;
	if (m->stack->tp_hidden) /* hidden by weight gradients, half of backward's products */
		r.b.tp = fmax(0, r.b.tp - (r.w > 0 ? r.w : r.b.matmul / 2));
	return r;
}

struct dt_pipe_cost dt_ends_time(const struct dt_step_model *m, bool head)
{
	const struct dt_layer_cost r =
		unit_time(m, dt_work_unit(m->work, head ? m->s->config->layers : -1), false);

	return (struct dt_pipe_cost){.f = dt_cost_sum(&r.f), .b = dt_cost_sum(&r.b)};
}
/* SPDX-License-Identifier: Apache-2.0 */
