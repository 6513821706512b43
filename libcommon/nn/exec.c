#include "nn/call.h"

#include "nn/watch.h"

int dt_exec_unit(const struct dt_exec *x, int layer)
{
	const struct dt_local *l = &x->stage->local;

	for (int u = 0; u < l->nunit; u++)
		if (l->unit[u].layer == layer)
			return u;
	return -1;
}

static int hook(int (*call)(void *, int, bool, struct dt_err *), const struct dt_hooks *h,
		const struct dt_exec *x, const struct dt_segment *s, bool backward, struct dt_err *err)
{
	const struct dt_local *l = &x->stage->local;
	int rc = 0;

	for (int u = 0; call && u < l->nunit && rc == 0; u++) /* the frozen unit, then the trained one */
		if (l->unit[u].layer == s->unit)
			rc = call(h->arg, u, backward, err);
	return rc;
}

/*
 * Whether step n can be skipped in a pass without rows, which a serving rank makes only to serve other ranks'
 * rows. Never in training: gradients become 0, and batch norms communicate.
 */
static bool is_idle(const struct dt_exec *x, const struct dt_node *n)
{
	const struct dt_prog *p = x->p;

	if (p->rows[DT_ROWS_ALL] > 0 || x->training)
		return false;
	for (int i = 0; i < DT_NODE_IN; i++)
		if (n->in[i] >= 0 && p->rows[p->value[n->in[i]].rows] > 0)
			return false;
	for (int i = 0; i < DT_NODE_OUT; i++)
		if (n->out[i] >= 0 && !p->value[n->out[i]].room && p->rows[p->value[n->out[i]].rows] > 0)
			return false;
	return true;
}

/* Computes step k together with following steps, if the device can; returns how many, 0: not done. */
static int joined(struct dt_exec *x, int k, struct dt_err *err)
{
	const enum dt_op op = x->p->step[k].n.op;
	int rc;

	if (!x->joins || !x->joins[op] || x->watch || x->trace || x->ahead)
		return 0;
	rc = x->joins[op](x, k, err);
	if (rc > 0)
		x->done = k + rc;
	return rc;
}

static int run_node(struct dt_exec *x, int k, struct dt_err *err)
{
	const struct dt_node *n = &x->p->step[k].n;
	int rc;

	if (k < x->done || is_idle(x, n))
		return 0;
	rc = joined(x, k, err);
	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = x->ahead ? x->ahead(x->ahead_arg, x, n, err) : 0;

	if (rc == 0)
		rc = x->trace ? dt_call_traced(x, k, err) : x->calls[n->op](x, n, err);
	if (rc == 0 && x->mixture.some_way)
		dt_call_exchange_on(x);
	if (rc == 0 && x->stream.under_way)
		dt_stream_move(x);
	return rc == 0 && x->watch ? dt_watch_look(x, k, err) : rc;
}

int dt_exec_run_segment(struct dt_exec *x, const struct dt_flight *f, int i, const struct dt_hooks *h,
			struct dt_err *err)
{
	const struct dt_segment *s = &x->stage->chunk[f->chunk].segment[i];
	bool backward = s->backward && !s->again;
	double began = dt_trace_now(x->trace);
	int rc = 0;

	x->p = &x->stage->chunk[f->chunk];
	x->flight = f;
	x->at = x->plan->value[f->chunk];
	if (h && h->segment)
		rc = h->segment(h->arg, f, i, false, err);
	if (rc == 0 && h && s->before)
		rc = hook(h->before, h, x, s, backward, err);
	for (int k = s->first; k < s->first + s->n && rc == 0; k++)
		rc = run_node(x, k, err);
	if (rc < 0 && x->mixture.some_way) /* its messages use memory until they complete */
		dt_call_exchange_wait(x, NULL, NULL);
	if (rc < 0 && x->stream.under_way)
		dt_stream_drop(x);
	if (rc == 0 && h && s->after)
		rc = hook(h->after, h, x, s, backward, err);
	if (rc == 0 && h && h->segment)
		rc = h->segment(h->arg, f, i, true, err);
	if (x->trace)
		dt_call_trace_unit(x, s, began);
	return rc;
}

int dt_exec_run(struct dt_exec *x, const struct dt_flight *f, enum dt_list list, const struct dt_hooks *h,
		struct dt_err *err)
{
	const struct dt_prog *p = &x->stage->chunk[f->chunk];
	int rc = 0;

	x->done = 0;
	for (int i = p->segment_start[list]; i < p->segment_start[list + 1] && rc == 0; i++)
		rc = dt_exec_run_segment(x, f, i, h, err);
	return rc;
}

int dt_exec_gradients(const struct dt_node *n)
{
	const unsigned flags = dt_node_op_flags(n->op);

	return flags & DT_OPF_SETS ? 3 : flags & DT_OPF_ADDS ? DT_NODE_PARAM : 0;
}

#define SPANS 128 /* in one call; more take several calls */

/* Ranges of a gradient buffer to be zeroed, as offsets from base. */
struct spans {
	float *base;
	int n;
	int64_t end, span[2 * SPANS];
};

static int fill(struct dt_exec *x, struct spans *s, struct dt_err *err)
{
	const int n = s->n;

	s->n = 0;
	TRY(x->dev->ops->fill_spans(x->dev, dt_t1(s->base, DT_F32, s->end), n, s->span, 0.0f));
	return 0;
}

/* Adjacent ranges are merged. */
static int add_span(struct dt_exec *x, struct spans *s, struct dt_tensor g, struct dt_err *err)
{
	const int64_t from = (float *)g.data - s->base, to = from + dt_numel(g);
	int rc = 0;

	s->end = to > s->end ? to : s->end;
	if (s->n && s->span[2 * s->n - 1] == from) {
		s->span[2 * s->n - 1] = to;
		return 0;
	}
	if (s->n == SPANS)
		rc = fill(x, s, err);
	s->span[2 * s->n] = from;
	s->span[2 * s->n++ + 1] = to;
	return rc;
}

static bool is_zeroed(const struct dt_exec *x, int i, int first, int n)
{
	const int u = x->stage->local.p[i].unit;

	return u >= first && u < first + n && !x->overwritten[i] && x->g[i].data;
}

int dt_exec_zero_grads(struct dt_exec *x, int first, int n, struct dt_err *err)
{
	const struct dt_local *l = &x->stage->local;
	struct spans s = {0};
	int rc = 0;

	for (int i = 0; i < l->n; i++)
		if (is_zeroed(x, i, first, n) && (!s.base || (float *)x->g[i].data < s.base))
			s.base = x->g[i].data;
	for (int i = 0; i < l->n && rc == 0; i++)
		if (is_zeroed(x, i, first, n))
			rc = add_span(x, &s, x->g[i], err);
	return rc == 0 ? fill(x, &s, err) : rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
