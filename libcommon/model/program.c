/* Derived properties of a program: segments of units, lifetimes of values, values that share memory. */
#include "model/op/rule.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void dt_prog_release(struct dt_prog *p)
{
	free(p->value);
	free(p->step);
	free(p->segment);
	memset(p, 0, sizeof(*p));
}

int64_t dt_value_rows(const struct dt_prog *p, int v)
{
	return p->rows[p->value[v].rows] * p->value[v].mul;
}

int64_t dt_value_numel(const struct dt_prog *p, int v)
{
	return dt_value_rows(p, v) * p->value[v].cols + p->value[v].extra;
}

int dt_value_root(const struct dt_prog *p, int v)
{
	while (p->value[v].over >= 0)
		v = p->value[v].over;
	return v;
}

static size_t bytes_of(const struct dt_prog *p, int v)
{
	return (size_t)dt_value_numel(p, v) * (size_t)dt_dtype_size(p->value[v].dtype);
}

static void lifetimes(struct dt_prog *p)
{
	for (int i = 0; i < p->nstep; i++) {
		const struct dt_node *n = &p->step[i].n;

		for (int k = 0; k < DT_NODE_OUT; k++)
			if (n->out[k] >= 0) {
				struct dt_value *v = &p->value[n->out[k]];

				if (v->def < 0)
					v->def = i;
				v->last = i;
			}
		for (int k = 0; k < DT_NODE_IN; k++)
			if (n->in[k] >= 0)
				p->value[n->in[k]].last = i;
	}
	if (p->input >= 0)
		p->value[p->input].def = 0;
	for (int i = 0; i < p->nvalue; i++) {
		struct dt_value *v = &p->value[i];
		bool forward = v->def < p->start[DT_LIST_LOSS], apart = v->last >= p->start[DT_LIST_WEIGHTS];

		if (v->def < 0)
			continue;
		if (forward ? v->last >= p->start[DT_LIST_LOSS] : apart && v->def < p->start[DT_LIST_WEIGHTS])
			v->life = DT_LIFE_KEPT;
	}
}

/* Pins a value: other ranks read or write it between the lists. */
static void pin(struct dt_prog *p, int v)
{
	if (v < 0)
		return;
	p->value[v].life = DT_LIFE_PINNED;
	if (p->value[v].def < 0)
		p->value[v].def = 0;
}

/* The operand whose memory the first result may reuse; -1: none. */
static int over_operand(const struct dt_node *n)
{
	if (n->op == DT_OP_NORM_B)
		return n->in[1];
	return dt_node_op_flags(n->op) & DT_OPF_OVER ? n->in[0] : -1;
}

/*
 * Lets out reuse in's memory. The root of a chain of such values gets the latest end and the strictest
 * lifetime of all.
 */
static void write_over(struct dt_prog *p, int out, int in)
{
	const int root = dt_value_root(p, in);
	struct dt_value *o = &p->value[out], *r = &p->value[root];

	o->over = root; /* not in: a chain through all layers would be followed for each of its values */
	if (o->last > r->last)
		r->last = o->last;
	if (o->life > r->life)
		r->life = o->life;
}

static void find_overs(struct dt_prog *p)
{
	for (int i = 0; i < p->nstep; i++) {
		const struct dt_node *n = &p->step[i].n;
		int in = over_operand(n), out = n->out[0];

		if (in < 0 || p->value[in].last != i || p->value[dt_value_root(p, in)].last != i ||
		    p->value[in].life == DT_LIFE_KEPT || bytes_of(p, out) > bytes_of(p, in))
			continue;
		write_over(p, out, in);
	}
}

static bool starts_segment(const struct dt_prog *p, int i)
{
	const struct dt_step *s = &p->step[i], *before = s - 1;

	return i == 0 || before->list != s->list || before->n.unit != s->n.unit;
}

/*
 * Sets, for each segment, whether it is the first or the last that computes its unit in its direction. seen:
 * two flags a unit, by direction.
 */
static void find_ends(struct dt_prog *p, bool (*seen)[2], int first_unit, int nunit)
{
	memset(seen, 0, (size_t)nunit * sizeof(*seen));
	for (int i = 0; i < p->nsegment; i++) {
		struct dt_segment *s = &p->segment[i];
		bool *met = &seen[s->unit - first_unit][s->backward];

		s->before = s->again || !*met;
		*met |= !s->again;
	}
	memset(seen, 0, (size_t)nunit * sizeof(*seen));
	for (int i = p->nsegment; i-- > 0;) {
		struct dt_segment *s = &p->segment[i];
		bool *met = &seen[s->unit - first_unit][s->backward];

		s->after = !s->again && !*met;
		*met |= !s->again;
	}
}

static int find_all_ends(struct dt_prog *p)
{
	int first = INT_MAX, last = INT_MIN;
	bool(*seen)[2];

	for (int i = 0; i < p->nsegment; i++) {
		first = p->segment[i].unit < first ? p->segment[i].unit : first;
		last = p->segment[i].unit > last ? p->segment[i].unit : last;
	}
	if (last < first)
		return 0;
	seen = malloc((size_t)(last - first + 1) * sizeof(*seen));
	if (!seen)
		return -ENOMEM;
	find_ends(p, seen, first, last - first + 1);
	free(seen);
	return 0;
}

static int find_segments(struct dt_prog *p)
{
	int list = 0;

	p->segment = malloc((size_t)(p->nstep + 1) * sizeof(*p->segment));
	if (!p->segment)
		return -ENOMEM;
	for (int i = 0; i < p->nstep; i++) {
		struct dt_segment *s;

		while (list <= (int)p->step[i].list)
			p->segment_start[list++] = p->nsegment;
		if (starts_segment(p, i))
			p->segment[p->nsegment++] =
				(struct dt_segment){.unit = p->step[i].n.unit,
						    .first = i,
						    .backward = p->step[i].list != DT_LIST_FORWARD,
						    .again = true};
		s = &p->segment[p->nsegment - 1];
		s->n++;
		s->again &= p->step[i].again;
	}
	while (list <= DT_LIST_N)
		p->segment_start[list++] = p->nsegment;
	return find_all_ends(p);
}

int dt_prog_finish(struct dt_prog *p)
{
	lifetimes(p);
	pin(p, p->output);
	pin(p, p->grad_in);
	pin(p, p->grad_out);
	find_overs(p);
	for (int i = 0; i < p->nvalue; i++)
		if (p->value[i].life == DT_LIFE_PINNED && p->value[i].over < 0) {
			p->value[i].def = 0;
			p->value[i].last = p->nstep - 1;
		}
	return find_segments(p);
}
/* SPDX-License-Identifier: Apache-2.0 */
