/* Derives a program from a graph: puts forward nodes on a tape, then applies the ops' rules. */
#include "model/op/rule.h"

#include "base/room.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- forward ---- */

/* Appends a node to the tape, from which backward is derived. */
static void record(struct dt_lower *lo, const struct dt_node *n)
{
	if (!DT_ROOM(lo->tape, lo->ntape, lo->tape_cap, 256)) {
		lo->failed = true;
		return;
	}
	for (int i = 0; i < DT_NODE_IN; i++)
		if (n->in[i] >= 0)
			lo->info[n->in[i]].uses++;
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] >= 0)
			lo->info[n->out[i]].from = lo->ntape;
	lo->tape[lo->ntape++] = *n;
}

static int put_node(struct dt_lower *lo, struct dt_node *n)
{
	dt_op_rules[n->op].shape(lo, n);
	record(lo, n);
	dt_lo_forward(lo, n);
	return n->out[0];
}

/*
 * Adds a node that only a program has: one that enters or leaves a tensor-parallel region, or an addition. It
 * has the name of `like`.
 */
static int cut_node(struct dt_lower *lo, enum dt_op op, const struct dt_node *like, int a, int b, int unit)
{
	struct dt_node n = dt_node_blank(op, unit, like->name);

	n.ahead = like->ahead;
	n.in[0] = a;
	n.in[1] = b;
	return put_node(lo, &n);
}

static bool enters(const struct dt_lower *lo, const struct dt_node *n)
{
	unsigned flags = dt_node_op_flags(n->op);

	return (flags & DT_OPF_INSIDE && lo->s->tp > 1) ||
	       (flags & DT_OPF_ENTERS && dt_lo_cut(lo, n->param[0]) == 0) ||
	       (flags & DT_OPF_BESIDE && dt_lo_cut(lo, n->param[3]) == 0);
}

static bool is_partial(const struct dt_lower *lo, int graph_value)
{
	return graph_value >= 0 && lo->map[graph_value] >= 0 && lo->info[lo->map[graph_value]].partial;
}

/* Whether n can read sums over tp that are still to be made: one sum is made of two that are added. */
static bool takes_partial(const struct dt_lower *lo, const struct dt_node *n)
{
	return dt_node_op_flags(n->op) & DT_OPF_PARTIAL ||
	       (n->op == DT_OP_ADD && is_partial(lo, n->in[0]) && is_partial(lo, n->in[1]));
}

/* The program's value of a graph value as n needs it: after LEAVE if a sum over tp is pending, or ENTER. */
static int operand(struct dt_lower *lo, int *entered, const struct dt_node *n, int graph_value)
{
	int v = graph_value < 0 ? -1 : lo->map[graph_value];

	if (v < 0)
		return -1;
	if (lo->info[v].partial && !takes_partial(lo, n)) {
		v = cut_node(lo, DT_OP_LEAVE, dt_lo_from(lo, v), v, -1, lo->p->value[v].unit);
		lo->map[graph_value] = v;
	}
	if (!lo->info[v].whole || !enters(lo, n))
		return v;
	if (entered[graph_value] < 0)
		entered[graph_value] = cut_node(lo, DT_OP_ENTER, n, v, -1, n->unit);
	return entered[graph_value];
}

/* Rank r's share of n: the first n % tp ranks get one more. */
static int64_t share(int64_t n, int tp, int r)
{
	return n / tp + (r < n % tp);
}

static void localise(const struct dt_lower *lo, struct dt_attr *a)
{
	int tp = lo->s->tp, r = lo->s->tp_rank;

	a->heads = share(a->heads, tp, r);
	a->kv_heads = a->kv_heads >= tp || a->kv_heads == 0 ? share(a->kv_heads, tp, r) : 1;
	if (a->experts) {
		double even = (double)(a->used * lo->p->rows[DT_ROWS_ALL]) / (double)a->experts;

		a->expert_n = a->experts / tp;
		a->expert_begin = a->expert_n * r;
		if (dt_lo_gathers(lo)) {
			a->expert_n /= lo->s->ep;
			a->expert_begin += a->expert_n * lo->s->ep_rank;
		}
		a->capacity = lo->s->capacity > 0 ? (int64_t)ceil(even * lo->s->capacity) : 0;
	}
}

static int context_node(struct dt_lower *lo, enum dt_op op, const struct dt_node *like, int in,
			int64_t kv_heads)
{
	struct dt_node n = dt_node_blank(op, like->unit, like->name);

	n.attr = like->attr;
	n.ahead = like->ahead;
	n.attr.kv_heads = kv_heads;
	if (!kv_heads) /* this is attention's output */
		n.attr.head_dim = n.attr.value_dim;
	n.in[0] = in;
	return put_node(lo, &n);
}

/*
 * Inserts communication of context-parallel attention. With Ulysses the output is cut by heads; the caller
 * adds the node that exchanges it back.
 */
static void open_context(struct dt_lower *lo, struct dt_node *n)
{
	int cp = lo->s->cp;

	switch (lo->s->cp_comm) {
	case DT_CP_RING:
		n->op = DT_OP_RING;
		break;
	case DT_CP_ULYSSES:
		n->in[0] = context_node(lo, DT_OP_TO_HEADS, n, n->in[0], n->attr.kv_heads);
		n->attr.heads /= cp;
		n->attr.kv_heads = n->attr.kv_heads >= cp ? n->attr.kv_heads / cp : 1;
		break;
	default:
		n->in[1] = context_node(lo, DT_OP_KV_GATHER, n, n->in[0], n->attr.kv_heads);
	}
}

/* Serving caches the latents themselves: all heads share one key, whose latent is also the value. */
static bool compressed(const struct dt_lower *lo, const struct dt_node *n)
{
	return dt_lo_serves(lo) && n->attr.latent_dim && (n->op == DT_OP_ROPE || n->op == DT_OP_ATTENTION);
}

/* Whether n computes keys and values from latents and next joins them to the queries. */
static bool absorbs(const struct dt_lower *lo, const struct dt_node *n, const struct dt_node *next,
		    const struct dt_node *end)
{
	return dt_lo_serves(lo) && n->op == DT_OP_LINEAR && next < end && next->op == DT_OP_LATENT_JOIN &&
	       next->in[2] == n->out[0];
}

/* Each head's values, from attention n's output in latent space, by the weight that its queries absorbed. */
static int latent_values(struct dt_lower *lo, const struct dt_node *n, const struct dt_attr *a)
{
	const struct dt_node *rope = dt_lo_from(lo, n->in[0]), *absorb = dt_lo_from(lo, rope->in[0]);
	struct dt_node v = dt_node_blank(DT_OP_LATENT_VALUES, n->unit, "values");

	v.in[0] = n->out[0];
	v.param[0] = absorb->param[0];
	v.attr = *a;
	return put_node(lo, &v);
}

/* Adds a graph node to the program. */
static void take(struct dt_lower *lo, int *entered, const struct dt_node *from)
{
	struct dt_node n = *from;
	struct dt_attr heads;
	int beside;
	bool cut;

	for (int i = 0; i < DT_NODE_IN; i++)
		n.in[i] = operand(lo, entered, from, from->in[i]);
	if (n.op == DT_OP_NORM && n.in[1] < 0 && n.out[1] >= 0) { /* the sum is the received input */
		lo->map[n.out[1]] = n.in[0];
		n.out[1] = -1;
	}
	if (n.op == DT_OP_ADD && n.in[1] < 0) { /* the same; there is nothing to add */
		lo->map[n.out[0]] = n.in[0];
		return;
	}
	if (n.op == DT_OP_LOSS && dt_lo_serves(lo))
		n.op = DT_OP_HEAD;
	localise(lo, &n.attr);
	heads = n.attr;
	if (compressed(lo, &n)) {
		n.attr.kv_heads = 1;
		n.attr.head_dim = n.attr.rope_dim + n.attr.latent_dim;
		n.attr.value_dim = n.attr.latent_dim;
	}
	dt_lo_choose_rows(lo, &n);
	cut = n.op == DT_OP_ATTENTION && lo->s->cp > 1;
	if (cut)
		open_context(lo, &n);
	beside = n.op == DT_OP_COMBINE && dt_lo_gathers(lo) ? n.in[3] : -1;
	if (beside >= 0)
		n.in[3] = -1;
	put_node(lo, &n);
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (from->out[i] >= 0 && n.out[i] >= 0)
			lo->map[from->out[i]] = n.out[i];
	if (n.op == DT_OP_COMBINE && dt_lo_gathers(lo))
		lo->map[from->out[0]] = dt_lo_own_rows(lo, &n, beside, from->out[0]);
	if (compressed(lo, &n) && n.op == DT_OP_ATTENTION)
		lo->map[from->out[0]] = latent_values(lo, &n, &heads);
	if (cut && lo->s->cp_comm == DT_CP_ULYSSES) {
		n.attr.heads *= lo->s->cp;
		lo->map[from->out[0]] = context_node(lo, DT_OP_TO_TOKENS, &n, n.out[0], 0);
	}
}

/*
 * Whether a linear and the activation that is its only reader become one node: not in 8 bits. In serving,
 * whose weights are packed, this is done for gated activations instead.
 */
static bool fuses(const struct dt_lower *lo, const struct dt_node *n, const struct dt_node *next,
		  const struct dt_node *end)
{
	enum dt_op with = dt_lo_serves(lo) ? DT_OP_GATED : DT_OP_ACT;

	return n->op == DT_OP_LINEAR && next < end && next->op == with && next->in[0] == n->out[0] &&
	       !dt_lo_in_8_bits(lo, n);
}

static bool in_chunk(const struct dt_prog_spec *s, int unit)
{
	return unit >= s->first_unit && unit <= s->last_unit;
}

/* Adds the stage's input at its first reader n: the previous stage's residual stream, delta already added. */
static void find_input(struct dt_lower *lo, const struct dt_node *n)
{
	int v = n->in[0];

	if (v < 0 || lo->map[v] >= 0 || lo->p->input >= 0)
		return;
	lo->p->input = dt_lo_value(lo, dt_lo_name(lo, v), n->unit, lo->s->compute, DT_ROWS_STREAM, 1,
				   lo->s->c->hidden);
	lo->info[lo->p->input].whole = true;
	lo->map[v] = lo->p->input;
}

/* Adds the stage's output for the next stage: x + delta. */
static void make_output(struct dt_lower *lo, int *entered, const struct dt_node *next)
{
	int x = operand(lo, entered, next, next->in[0]), d = operand(lo, entered, next, next->in[1]);

	lo->p->output = cut_node(lo, DT_OP_ADD, &(struct dt_node){.name = "output"}, x, d, lo->s->last_unit);
}

static void forward(struct dt_lower *lo)
{
	const struct dt_graph *g = lo->s->graph;
	const struct dt_node *end = g->node + g->nnode;
	int *entered = malloc((size_t)g->nvalue * sizeof(*entered));

	if (!entered) {
		lo->failed = true;
		return;
	}
	for (int i = 0; i < g->nvalue; i++)
		entered[i] = -1;
	for (const struct dt_node *n = g->node; n < end && !lo->failed; n++) {
		if (!in_chunk(lo->s, n->unit)) {
			if (n->unit > lo->s->last_unit) {
				make_output(lo, entered, n);
				break;
			}
			continue;
		}
		if (lo->s->first_unit >= 0)
			find_input(lo, n);
		if (n->op == DT_OP_STATES && !dt_lo_serves(lo) && dt_config_has_labels(lo->s->c))
			continue;
		if (dt_lo_is_loss(n) || n->op == DT_OP_STATES)
			lo->to = DT_LIST_LOSS;
		if (absorbs(lo, n, n + 1, end)) {
			struct dt_node both = n[1];

			both.op = DT_OP_LATENT_ABSORB;
			both.in[2] = n->in[0];
			both.param[0] = n->param[0];
			take(lo, entered, &both);
			n++;
			continue;
		}
		if (fuses(lo, n, n + 1, end)) {
			struct dt_node both = *n;

			both.op = dt_lo_serves(lo) ? DT_OP_LINEAR_GATED : DT_OP_LINEAR_ACT;
			both.out[1] = n[1].out[0];
			both.attr.act = n[1].attr.act;
			take(lo, entered, &both);
			n++;
			continue;
		}
		take(lo, entered, n);
		if (n->op == DT_OP_STATES) /* the caller computes what stands behind them */
			break;
	}
	free(entered);
}

/* ---- backward ---- */

static bool has_grad(const struct dt_lower *lo, const struct dt_node *n)
{
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] >= 0 && lo->info[n->out[i]].grad >= 0)
			return true;
	return dt_lo_is_loss(n);
}

static void backward(struct dt_lower *lo)
{
	struct dt_prog *p = lo->p;

	lo->to = DT_LIST_BACKWARD;
	if (p->output >= 0) {
		p->grad_in = dt_lo_like(lo, "d.output", lo->s->last_unit, p->output);
		dt_lo_set_grad(lo, p->output, p->grad_in);
	}
	for (int i = lo->ntape - 1; i >= 0 && !lo->failed; i--) {
		const struct dt_node n = lo->tape[i];

		lo->unit = n.unit;
		if (has_grad(lo, &n))
			dt_op_rules[n.op].backward(lo, &n);
	}
	if (p->input >= 0)
		p->grad_out = lo->info[p->input].grad;
}

/* ---- */

static int join_lists(struct dt_lower *lo)
{
	struct dt_prog *p = lo->p;
	int64_t shape[2], off[2];
	int n = 0;

	for (int l = 0; l < DT_LIST_N; l++)
		n += lo->n[l];
	p->step = malloc((size_t)(n + 1) * sizeof(*p->step));
	if (!p->step)
		return -ENOMEM;
	for (int l = 0; l < DT_LIST_N; l++) {
		p->start[l] = p->nstep;
		if (lo->n[l])
			memcpy(p->step + p->nstep, lo->list[l], (size_t)lo->n[l] * sizeof(*p->step));
		p->nstep += lo->n[l];
	}
	p->start[DT_LIST_N] = p->nstep;
	for (int i = 0; i < p->nstep; i++)
		for (int k = 0; k < DT_NODE_PARAM; k++)
			if (p->step[i].n.param[k] >= 0)
				p->step[i].n.param[k] =
					lo->s->local(lo->s->local_arg, p->step[i].n.param[k], shape, off);
	return 0;
}

int dt_prog_build(const struct dt_prog_spec *s, struct dt_prog *ret, struct dt_err *err)
{
	struct dt_prog p = {.input = -1, .output = -1, .grad_in = -1, .grad_out = -1};
	struct dt_lower lo = {.s = s, .p = &p, .value_cap = 512, .linear8 = dt_lo_linear8, .put = put_node};
	int rc = -ENOMEM;

	p.rows[DT_ROWS_NONE] = 1;
	p.rows[DT_ROWS_SAMPLES] = s->microbatch;
	p.rows[DT_ROWS_SEQ] = s->microbatch * s->seq;
	p.rows[DT_ROWS_ALL] = s->microbatch * s->seq / (s->cp > 1 ? s->cp : 1);
	p.rows[DT_ROWS_EXPERTS] = p.rows[DT_ROWS_ALL] * (dt_lo_gathers(&lo) ? s->ep : 1);
	p.rows[DT_ROWS_JOINED] = s->c->sees ? p.rows[DT_ROWS_ALL] / dt_tower_joined(&s->c->tower) : 0;
	p.rows[DT_ROWS_STREAM] = s->seq_parallel ? p.rows[DT_ROWS_ALL] / s->tp : p.rows[DT_ROWS_ALL];
	p.value = malloc((size_t)lo.value_cap * sizeof(*p.value));
	lo.info = malloc((size_t)lo.value_cap * sizeof(*lo.info));
	lo.map = malloc((size_t)(s->graph->nvalue + 1) * sizeof(*lo.map));
	if (p.value && lo.info && lo.map) {
		for (int i = 0; i < s->graph->nvalue; i++)
			lo.map[i] = -1;
		forward(&lo);
		if (s->backward)
			backward(&lo);
		dt_lo_prune(&lo);
		if (s->overlap && !dt_lo_serves(&lo))
			dt_lo_overlap(&lo);
		if (s->stream_overlap && s->backward)
			dt_lo_stream(&lo);
		rc = lo.failed ? -ENOMEM : join_lists(&lo);
	}
	if (rc == 0)
		rc = dt_prog_finish(&p);
	for (int l = 0; l < DT_LIST_N; l++)
		free(lo.list[l]);
	free(lo.tape);
	free(lo.info);
	free(lo.map);
	if (rc < 0) {
		dt_prog_release(&p);
		return dt_err_sys(err, rc, "cannot derive the program of '%s'", s->c->name);
	}
	*ret = p;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
