/* The derivation of a program: forward nodes on a tape, and what the rules of ops append. */
#include "model/op/rule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct dt_rule dt_rules[DT_OP_N] = {
	[DT_OP_EMBED] = {dt_shape_embed, dt_back_embed},
	[DT_OP_NORM] = {dt_shape_norm, dt_back_norm},
	[DT_OP_LINEAR] = {dt_shape_linear, dt_back_linear},
	[DT_OP_LINEAR_ACT] = {dt_shape_linear_act, dt_back_linear_act},
	[DT_OP_HEADS_NORM] = {dt_shape_heads_norm, dt_back_heads_norm},
	[DT_OP_ROPE] = {dt_shape_rope, dt_back_rope},
	[DT_OP_ATTENTION] = {dt_shape_attention, dt_back_attention},
	[DT_OP_ACT] = {dt_shape_act, dt_back_act},
	[DT_OP_GATED] = {dt_shape_gated, dt_back_gated},
	[DT_OP_LATENT_JOIN] = {dt_shape_latent_join, dt_back_latent_join},
	[DT_OP_ROUTE] = {dt_shape_route, dt_back_route},
	[DT_OP_EXPERTS] = {dt_shape_experts, dt_back_experts},
	[DT_OP_COMBINE] = {dt_shape_combine, dt_back_combine},
	[DT_OP_LOSS] = {dt_shape_loss, dt_back_loss},
	[DT_OP_ENTER] = {dt_shape_enter, dt_back_enter},
	[DT_OP_LEAVE] = {dt_shape_leave, dt_back_leave},
	[DT_OP_ADD] = {dt_shape_add, dt_back_add},
};

/* ---- values ---- */

static int fallen(struct dt_lower *lo)
{
	lo->failed = true;
	return 0; /* a value there is, so that rules need not look */
}

int dt_lo_value(struct dt_lower *lo, const char *name, int unit, enum dt_dtype dtype, enum dt_rows rows,
		int64_t mul, int64_t cols)
{
	struct dt_prog *p = lo->p;
	struct dt_info *info;

	if (p->nvalue == lo->value_cap) {
		int cap = 2 * lo->value_cap;
		struct dt_value *v = realloc(p->value, (size_t)cap * sizeof(*v));

		if (v)
			p->value = v;
		info = realloc(lo->info, (size_t)cap * sizeof(*info));
		if (info)
			lo->info = info;
		if (!v || !info)
			return fallen(lo);
		lo->value_cap = cap;
	}
	p->value[p->nvalue] = (struct dt_value){.name = name,
						.unit = unit,
						.dtype = dtype,
						.rows = rows,
						.mul = mul,
						.cols = cols,
						.over = -1,
						.def = -1,
						.last = -1,
						.again = lo->again};
	info = &lo->info[p->nvalue];
	*info = (struct dt_info){.from = -1, .grad = -1, .same = -1};
	for (int i = 0; i < DT_LIST_N; i++)
		info->copy[i] = -1;
	return p->nvalue++;
}

int dt_lo_like(struct dt_lower *lo, const char *name, int unit, int v)
{
	const struct dt_value like = lo->p->value[v];
	int r = dt_lo_value(lo, name, unit, like.dtype, like.rows, like.mul, like.cols);

	lo->p->value[r].extra = like.extra;
	return r;
}

int dt_lo_room(struct dt_lower *lo, const char *name, int unit, enum dt_dtype dtype, enum dt_rows rows,
	       int64_t mul, int64_t cols)
{
	int v = dt_lo_value(lo, name, unit, dtype, rows, mul, cols);

	lo->p->value[v].room = true;
	return v;
}

int dt_lo_real(const struct dt_lower *lo, int v)
{
	while (v >= 0 && lo->info[v].same >= 0)
		v = lo->info[v].same;
	return v;
}

void dt_lo_set_grad(struct dt_lower *lo, int v, int g)
{
	lo->info[v].grad = g;
	if (g >= 0)
		lo->p->value[g].gradient = true;
}

void dt_lo_add_grad(struct dt_lower *lo, int v, int g)
{
	struct dt_node *a;
	int sum;

	if (lo->info[v].grad < 0) {
		dt_lo_set_grad(lo, v, g);
		return;
	}
	sum = dt_lo_like(lo, "d.sum", lo->p->value[v].unit, v);
	a = dt_lo_emit(lo, DT_OP_ADD, &(struct dt_node){.unit = lo->p->value[v].unit, .name = "d.sum"});
	a->in[0] = lo->info[v].grad;
	a->in[1] = g;
	a->out[0] = sum;
	dt_lo_set_grad(lo, v, sum);
}

const struct dt_node *dt_lo_from(const struct dt_lower *lo, int v)
{
	v = v < 0 ? -1 : lo->info[v].from;
	return v < 0 ? NULL : &lo->tape[v];
}

/* ---- tensors ---- */

int64_t dt_lo_dim(const struct dt_lower *lo, int param, int dim)
{
	int64_t shape[2], off[2];

	if (param < 0 || lo->s->local(lo->s->local_arg, param, shape, off) < 0)
		return 0;
	return shape[dim];
}

int dt_lo_cut(const struct dt_lower *lo, int param)
{
	const struct dt_param *p = &lo->s->graph->params.p[param];

	return lo->s->tp == 1 || p->cut == DT_CUT_NONE ? -1 : p->cut_dim;
}

void dt_lo_linear_dims(const struct dt_lower *lo, const struct dt_node *n, int64_t *out, int64_t *in)
{
	*out = 0;
	*in = dt_lo_dim(lo, n->param[0], 1);
	for (int i = 0; i < 3; i++)
		*out += dt_lo_dim(lo, n->param[i], 0);
}

bool dt_lo_in_8_bits(const struct dt_lower *lo, const struct dt_node *n)
{
	return lo->s->in_8_bits && (n->op == DT_OP_LINEAR || n->op == DT_OP_LINEAR_ACT) &&
	       lo->s->in_8_bits(lo->s->fp8_arg, n);
}

/* ---- steps ---- */

static struct dt_node *add_step(struct dt_lower *lo)
{
	static struct dt_step sink; /* where a step goes that there is no memory for */
	enum dt_list l = lo->to;

	if (lo->n[l] == lo->cap[l]) {
		int cap = lo->cap[l] ? 2 * lo->cap[l] : 256;
		struct dt_step *bigger = realloc(lo->list[l], (size_t)cap * sizeof(*bigger));

		if (!bigger) {
			lo->failed = true;
			return &sink.n;
		}
		lo->list[l] = bigger;
		lo->cap[l] = cap;
	}
	lo->list[l][lo->n[l]] = (struct dt_step){.list = l, .again = lo->again};
	return &lo->list[l][lo->n[l]++].n;
}

struct dt_node *dt_lo_emit(struct dt_lower *lo, enum dt_op op, const struct dt_node *like)
{
	struct dt_node *n = add_step(lo);

	*n = (struct dt_node){.op = op, .unit = like->unit, .name = like->name, .attr = like->attr};
	for (int i = 0; i < DT_NODE_IN; i++)
		n->in[i] = -1;
	for (int i = 0; i < DT_NODE_OUT; i++)
		n->out[i] = -1;
	for (int i = 0; i < DT_NODE_PARAM; i++)
		n->param[i] = -1;
	return n;
}

void dt_lo_forward(struct dt_lower *lo, const struct dt_node *n)
{
	struct dt_node *step;

	if (n->op == DT_OP_ENTER && lo->info[n->out[0]].same >= 0)
		return;
	if (dt_lo_in_8_bits(lo, n)) {
		dt_lo_linear8(lo, n);
		return;
	}
	step = add_step(lo);
	*step = *n;
	for (int i = 0; i < DT_NODE_IN; i++)
		step->in[i] = dt_lo_real(lo, n->in[i]);
	/* what is added once, before the sum over ranks */
	if (lo->s->tp_rank > 0 && n->op == DT_OP_LINEAR && dt_lo_cut(lo, n->param[0]) == 1)
		for (int i = 3; i < 6; i++)
			step->param[i] = -1;
	if (lo->s->tp_rank > 0 && n->op == DT_OP_EMBED)
		step->param[1] = -1;
}

/* ---- what backward needs ---- */

static bool kept(const struct dt_lower *lo, int v)
{
	const struct dt_node *n = dt_lo_from(lo, v);

	if (!n)
		return true;
	if (dt_node_op_flags(n->op) & DT_OPF_GATHER)
		return false;
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] == v)
			return lo->s->keep(lo->s->keep_arg, n, i, n->unit);
	return true;
}

static bool at_hand(const struct dt_lower *lo, int v)
{
	return v >= 0 && (kept(lo, v) || lo->info[v].copy[lo->to] >= 0);
}

/* A copy of the tape's node with fresh results; the cheaper form where what it needs is at hand. */
static void again(struct dt_lower *lo, const struct dt_node *n)
{
	struct dt_node c = *n;
	bool outer = lo->again;
	int sum = -1;

	if (n->op == DT_OP_NORM && n->out[1] >= 0 && at_hand(lo, n->out[1])) {
		sum = c.in[0] = dt_lo_need(lo, n->out[1]);
		c.in[1] = c.out[1] = -1;
	} else if (n->op == DT_OP_LINEAR_ACT && at_hand(lo, n->out[0])) {
		c.op = DT_OP_ACT;
		c.in[0] = dt_lo_need(lo, n->out[0]);
		c.out[0] = n->out[1];
		c.out[1] = -1;
		memset(c.param, -1, sizeof(c.param));
	} else {
		for (int i = 0; i < DT_NODE_IN; i++)
			if (c.in[i] >= 0)
				c.in[i] = dt_lo_need(lo, n->in[i]);
	}
	lo->again = true;
	for (int i = 0; i < DT_NODE_OUT; i++) {
		int v = c.out[i], r;

		if (v < 0)
			continue;
		r = dt_lo_like(lo, lo->p->value[v].name, n->unit, v);
		lo->p->value[r].room = lo->p->value[v].room;
		c.out[i] = lo->info[v].copy[lo->to] = r;
		lo->info[v].copied_for = lo->unit;
	}
	if (n->op == DT_OP_NORM && sum >= 0)
		lo->info[n->out[1]].copy[lo->to] = sum;
	dt_lo_forward(lo, &c);
	lo->again = outer;
}

/* What was gathered for the backward of one unit is gathered again for another's: it is large. */
static bool has_copy(const struct dt_lower *lo, int v)
{
	const struct dt_node *n = dt_lo_from(lo, v);

	return lo->info[v].copy[lo->to] >= 0 &&
	       (lo->info[v].copied_for == lo->unit || !n || !(dt_node_op_flags(n->op) & DT_OPF_GATHER));
}

int dt_lo_need(struct dt_lower *lo, int v)
{
	v = dt_lo_real(lo, v);
	if (lo->to == DT_LIST_FORWARD || lo->to == DT_LIST_LOSS)
		return v;
	if (has_copy(lo, v))
		return lo->info[v].copy[lo->to];
	if (!kept(lo, v))
		again(lo, dt_lo_from(lo, v));
	return lo->info[v].copy[lo->to] >= 0 ? lo->info[v].copy[lo->to] : v;
}

/* ---- forward ---- */

static void record(struct dt_lower *lo, const struct dt_node *n)
{
	if (lo->ntape == lo->tape_cap) {
		int cap = lo->tape_cap ? 2 * lo->tape_cap : 256;
		struct dt_node *bigger = realloc(lo->tape, (size_t)cap * sizeof(*bigger));

		if (!bigger) {
			lo->failed = true;
			return;
		}
		lo->tape = bigger;
		lo->tape_cap = cap;
	}
	for (int i = 0; i < DT_NODE_IN; i++)
		if (n->in[i] >= 0)
			lo->info[n->in[i]].uses++;
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] >= 0)
			lo->info[n->out[i]].from = lo->ntape;
	lo->tape[lo->ntape++] = *n;
}

/* A node of the program alone: entering or leaving a cut part, or adding up what is sent. */
static int cut_node(struct dt_lower *lo, enum dt_op op, int a, int b, int unit)
{
	struct dt_node n = {.op = op, .unit = unit, .name = lo->p->value[a].name};

	for (int i = 0; i < DT_NODE_IN; i++)
		n.in[i] = -1;
	for (int i = 0; i < DT_NODE_OUT; i++)
		n.out[i] = -1;
	for (int i = 0; i < DT_NODE_PARAM; i++)
		n.param[i] = -1;
	n.in[0] = a;
	n.in[1] = b;
	dt_rules[op].shape(lo, &n);
	record(lo, &n);
	dt_lo_forward(lo, &n);
	return n.out[0];
}

static bool enters(const struct dt_lower *lo, const struct dt_node *n)
{
	switch (n->op) {
	case DT_OP_LINEAR:
	case DT_OP_LINEAR_ACT:
	case DT_OP_EXPERTS:
	case DT_OP_LOSS:
		return dt_lo_cut(lo, n->param[0]) == 0;
	case DT_OP_ROUTE:
		return lo->s->tp > 1;
	default:
		return false;
	}
}

/* The program's value of the graph's, whole or entered as its reader wants it. */
static int operand(struct dt_lower *lo, int *entered, const struct dt_node *n, int graph_value)
{
	int v = graph_value < 0 ? -1 : lo->map[graph_value];

	if (v < 0)
		return -1;
	if (lo->info[v].partial && n->op != DT_OP_COMBINE && !(n->op == DT_OP_EXPERTS)) {
		v = cut_node(lo, DT_OP_LEAVE, v, -1, lo->p->value[v].unit);
		lo->map[graph_value] = v;
	}
	if (!lo->info[v].whole || !enters(lo, n))
		return v;
	if (entered[graph_value] < 0)
		entered[graph_value] = cut_node(lo, DT_OP_ENTER, v, -1, n->unit);
	return entered[graph_value];
}

/* Units of n that rank r of tp gets: the first n % tp ranks one more. */
static int64_t share(int64_t n, int tp, int r)
{
	return n / tp + (r < n % tp);
}

static void localise(const struct dt_lower *lo, struct dt_attr *a)
{
	int tp = lo->s->tp, r = lo->s->tp_rank;

	a->heads = share(a->heads, tp, r);
	a->kv_heads = a->kv_heads >= tp || a->kv_heads == 0 ? share(a->kv_heads, tp, r) : 1;
}

/* The graph's node as the program has it. */
static void take(struct dt_lower *lo, int *entered, const struct dt_node *from)
{
	struct dt_node n = *from;

	for (int i = 0; i < DT_NODE_IN; i++)
		n.in[i] = operand(lo, entered, from, from->in[i]);
	if (n.op == DT_OP_NORM && n.in[1] < 0 && n.out[1] >= 0) { /* the sum was received */
		lo->map[n.out[1]] = n.in[0];
		n.out[1] = -1;
	}
	localise(lo, &n.attr);
	dt_rules[n.op].shape(lo, &n);
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (from->out[i] >= 0 && n.out[i] >= 0)
			lo->map[from->out[i]] = n.out[i];
	record(lo, &n);
	dt_lo_forward(lo, &n);
}

/* A linear and the activation that alone reads it are one product, but in 8 bits. */
static bool fuses(const struct dt_lower *lo, const struct dt_node *n, const struct dt_node *next,
		  const struct dt_node *end)
{
	return n->op == DT_OP_LINEAR && next < end && next->op == DT_OP_ACT && next->in[0] == n->out[0] &&
	       !dt_lo_in_8_bits(lo, n);
}

static bool in_chunk(const struct dt_prog_spec *s, int unit)
{
	return unit >= s->first_unit && unit <= s->last_unit;
}

/* What the first nodes read of the stages before: the stream, whose delta has been added already. */
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

/* What the stage after reads: x + delta. */
static void make_output(struct dt_lower *lo, int *entered, const struct dt_node *next)
{
	int x = operand(lo, entered, next, next->in[0]), d = operand(lo, entered, next, next->in[1]);

	lo->p->output = cut_node(lo, DT_OP_ADD, x, d, lo->s->last_unit);
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
		if (n->op == DT_OP_LOSS)
			lo->to = DT_LIST_LOSS;
		if (fuses(lo, n, n + 1, end)) {
			struct dt_node both = *n;

			both.op = DT_OP_LINEAR_ACT;
			both.out[1] = n[1].out[0];
			both.attr.act = n[1].attr.act;
			take(lo, entered, &both);
			n++;
			continue;
		}
		take(lo, entered, n);
	}
	free(entered);
}

/* ---- backward ---- */

static bool has_grad(const struct dt_lower *lo, const struct dt_node *n)
{
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] >= 0 && lo->info[n->out[i]].grad >= 0)
			return true;
	return n->op == DT_OP_LOSS;
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
			dt_rules[n.op].backward(lo, &n);
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
				p->step[i].n.param[k] = lo->s->local(lo->s->local_arg,
								     p->step[i].n.param[k], shape, off);
	return 0;
}

int dt_prog_build(const struct dt_prog_spec *s, struct dt_prog *ret, struct dt_err *err)
{
	struct dt_prog p = {.input = -1, .output = -1, .grad_in = -1, .grad_out = -1};
	struct dt_lower lo = {.s = s, .p = &p, .value_cap = 512};
	int rc = -ENOMEM;

	p.rows[DT_ROWS_NONE] = 1;
	p.rows[DT_ROWS_ALL] = s->microbatch * s->seq;
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
