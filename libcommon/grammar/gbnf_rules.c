/*
 * GBNF's rules as rules over bytes. A repetition of something that may be empty would be ambiguous without
 * end: it repeats the texts that are not empty, for which rules have a second form.
 */
#include "grammar/gbnf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lower {
	struct dt_gbnf *x;
	struct dt_grammar *g;
	bool *empty; /* [nrule] may match the empty text */
	int *rule;   /* [nrule] rule of g; -1: none yet */
	int *full;   /* [nrule] rule of g for all texts but the empty one; -1: none yet */
	int *set;    /* [nset] rule or, as -2 - i, class of g; -1: none yet */
	int *todo;   /* [2 * nrule] rules of x to be filled in; + nrule: their full form */
	int ntodo;
};

static bool may_be_empty(const struct lower *l, struct dt_gbnf_item i)
{
	const struct dt_gbnf_many *m;

	for (; i.kind == DT_GBNF_MANY; i = m->of) {
		m = &l->x->many[i.at];
		if (m->min == 0)
			return true;
	}
	return i.kind == DT_GBNF_RULE && l->empty[i.at];
}

static bool alt_empty(const struct lower *l, const struct dt_gbnf_alt *a)
{
	for (int i = 0; i < a->n; i++)
		if (!may_be_empty(l, l->x->item[a->first + i]))
			return false;
	return true;
}

static bool rule_empty(const struct lower *l, int r)
{
	for (int a = l->x->rule[r].alt; a >= 0; a = l->x->alt[a].next)
		if (alt_empty(l, &l->x->alt[a]))
			return true;
	return false;
}

/* Finds the rules that may be empty, by passes over all rules, forward and backward in turn. */
static bool find_empty(struct lower *l)
{
	const int n = l->x->nrule;
	bool more = true;

	for (int pass = 0; more; pass++) {
		more = false;
		if (!dt_gbnf_work(l->x, (int64_t)n + l->x->nitem))
			return false;
		for (int i = 0; i < n; i++) {
			const int r = pass % 2 ? n - 1 - i : i;

			if (l->empty[r] || !rule_empty(l, r))
				continue;
			l->empty[r] = more = true;
		}
	}
	return true;
}

/* ---- left recursion ---- */

struct walk { /* a depth-first search along the rules that rules can begin with */
	struct step {
		int rule, alt, item; /* the next item to look at */
	} * step;		     /* [nrule] */
	int n;
	uint8_t *seen; /* [nrule] 1: on the way, 2: done */
};

/* The next rule that the walk's last one can begin with; -1: none. */
static int next_first(const struct lower *l, struct step *s)
{
	while (s->alt >= 0) {
		const struct dt_gbnf_alt *a = &l->x->alt[s->alt];

		while (s->item < a->n) {
			struct dt_gbnf_item i = l->x->item[a->first + s->item];
			const bool empty = may_be_empty(l, i);

			while (i.kind == DT_GBNF_MANY)
				i = l->x->many[i.at].of;
			s->item = empty ? s->item + 1 : a->n;
			if (i.kind == DT_GBNF_RULE)
				return i.at;
		}
		s->alt = a->next;
		s->item = 0;
	}
	return -1;
}

static bool refuse_recursion(const struct lower *l, const struct walk *w, int rule)
{
	int i = w->n - 1;

	while (!l->x->rule[rule].name) { /* a group: name a rule around it */
		i = i < 0 ? w->n - 1 : i;
		rule = w->step[i--].rule;
	}
	return dt_gbnf_fail(l->x, l->x->rule[rule].defined, -EINVAL,
			    "the rule '%.*s' can begin with itself; write left recursion as a repetition",
			    (int)(l->x->rule[rule].n < 60 ? l->x->rule[rule].n : 60), l->x->rule[rule].name);
}

static bool walk_from(struct lower *l, struct walk *w, int rule)
{
	w->step[w->n++] = (struct step){rule, l->x->rule[rule].alt, 0};
	w->seen[rule] = 1;
	while (w->n > 0) {
		struct step *s = &w->step[w->n - 1];
		const int next = next_first(l, s);

		if (next < 0) {
			w->seen[s->rule] = 2;
			w->n--;
		} else if (w->seen[next] == 1) {
			return refuse_recursion(l, w, next);
		} else if (w->seen[next] == 0) {
			w->seen[next] = 1;
			w->step[w->n++] = (struct step){next, l->x->rule[next].alt, 0};
		}
	}
	return true;
}

static bool check_recursion(struct lower *l)
{
	const size_t n = (size_t)l->x->nrule;
	struct walk w = {.step = calloc(n + 1, sizeof(*w.step)), .seen = calloc(n + 1, sizeof(*w.seen))};
	bool ok = w.step && w.seen;

	if (!ok)
		l->g->no_memory = true;
	for (int r = 0; r < l->x->nrule && ok; r++)
		ok = w.seen[r] || walk_from(l, &w, r);
	free(w.step);
	free(w.seen);
	return ok;
}

/* ---- elements ---- */

static int by_first(const void *a, const void *b)
{
	const struct dt_gbnf_range *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

/* Adds code points first to last to a set: to c, or to rule r. */
static void add_points(struct dt_grammar *g, struct dt_class *c, int r, uint32_t first, uint32_t last)
{
	for (uint32_t b = first; b <= last && b < 0x80; b++)
		c->bit[b / 64] |= 1ull << b % 64;
	if (last >= 0x80)
		dt_gr_wide(g, r, first < 0x80 ? 0x80 : first, last);
}

static struct dt_elem make_set(struct lower *l, const struct dt_gbnf_set *s)
{
	struct dt_gbnf_range *r = l->x->range + s->first;
	struct dt_grammar *g = l->g;
	const int rule = dt_gr_rule(g);
	struct dt_class c = {0};
	uint32_t at = 0; /* code points below it are done */

	qsort(r, (size_t)s->n, sizeof(*r), by_first);
	for (int i = 0; i < s->n; i++) {
		if (s->negated && r[i].first > at)
			add_points(g, &c, rule, at, r[i].first - 1);
		else if (!s->negated && r[i].last >= at)
			add_points(g, &c, rule, r[i].first > at ? r[i].first : at, r[i].last);
		at = r[i].last >= at ? r[i].last + 1 : at;
	}
	if (s->negated && at <= 0x10ffff)
		add_points(g, &c, rule, at, 0x10ffff);
	if (g->no_memory || g->rule[rule].n == 0)
		return dt_gr_c(dt_gr_add_class(g, c));
	if (c.bit[0] || c.bit[1])
		dt_gr_alt(g, rule, DT_SEQ(dt_gr_c(dt_gr_add_class(g, c))));
	return dt_gr_r(rule);
}

static struct dt_elem set_elem(struct lower *l, int set)
{
	if (l->set[set] == -1) {
		const struct dt_elem e = make_set(l, &l->x->set[set]);

		l->set[set] = e.type == DT_ELEM_RULE ? e.index : -2 - e.index;
	}
	return l->set[set] >= 0 ? dt_gr_r(l->set[set]) : dt_gr_c(-2 - l->set[set]);
}

/* The rule of g for rule r of x, or for its texts that are not empty; it is filled in later. */
static struct dt_elem rule_elem(struct lower *l, int r, bool full)
{
	int *to;

	full = full && l->empty[r];
	to = full ? &l->full[r] : &l->rule[r];
	if (*to < 0) {
		*to = dt_gr_rule(l->g);
		l->todo[l->ntodo++] = full ? r + l->x->nrule : r;
	}
	return dt_gr_r(*to);
}

static struct dt_elem elem(struct lower *l, struct dt_gbnf_item i, bool full);

static struct dt_elem many_elem(struct lower *l, const struct dt_gbnf_many *m, bool full)
{
	const bool empty = may_be_empty(l, m->of);
	int min = empty ? 0 : m->min;

	min = full && min == 0 ? 1 : min;
	if (m->max == 0 || (m->max > 0 && m->max < min)) {
		const int r = dt_gr_rule(l->g);

		if (!full)
			dt_gr_alt(l->g, r, NULL, 0);
		return dt_gr_r(r); /* full: no text is left */
	}
	if (!dt_gbnf_work(l->x, 8 * dt_gr_many_rules(min, m->max)))
		return dt_gr_r(0);
	return dt_gr_r(dt_gr_many(l->g, elem(l, m->of, true), min, m->max));
}

/* What matches the item, or (full) its texts that are not empty. Charges what it added to g. */
static struct dt_elem elem(struct lower *l, struct dt_gbnf_item i, bool full)
{
	const int before = l->g->nelem;
	struct dt_elem e;

	switch (i.kind) {
	case DT_GBNF_BYTE:
		e = dt_gr_byte(l->g, i.at);
		break;
	case DT_GBNF_SET:
		e = set_elem(l, i.at);
		break;
	case DT_GBNF_TOKEN:
		e = (struct dt_elem){.type = DT_ELEM_TOKEN, .index = i.at};
		break;
	case DT_GBNF_RULE:
		return rule_elem(l, i.at, full);
	default:
		e = many_elem(l, &l->x->many[i.at], full);
	}
	dt_gbnf_work(l->x, (int64_t)(1 + l->g->nelem - before) * (1 + l->g->nclass));
	return e;
}

/* Adds items [from, n) of an alternative; full: the first of them is not empty. */
static void add_alt(struct lower *l, int rule, const struct dt_gbnf_alt *a, int from, bool full)
{
	struct dt_elem *e = malloc(((size_t)a->n + 1) * sizeof(*e));

	if (!e) {
		l->g->no_memory = true;
		return;
	}
	for (int i = from; i < a->n; i++)
		e[i] = elem(l, l->x->item[a->first + i], full && i == from);
	dt_gr_alt(l->g, rule, e + from, a->n - from);
	free(e);
}

static void fill(struct lower *l, int r, bool full)
{
	const int rule = full ? l->full[r] : l->rule[r];

	for (int at = l->x->rule[r].alt; at >= 0 && l->x->rc == 0; at = l->x->alt[at].next) {
		const struct dt_gbnf_alt *a = &l->x->alt[at];
		bool go_on = full;

		if (!full)
			add_alt(l, rule, a, 0, false);
		for (int i = 0; i < a->n && go_on && dt_gbnf_work(l->x, a->n); i++) {
			add_alt(l, rule, a, i, true); /* the items before i are empty */
			go_on = may_be_empty(l, l->x->item[a->first + i]);
		}
	}
}

bool dt_gbnf_rules(struct dt_gbnf *x, struct dt_grammar *g)
{
	const size_t n = (size_t)x->nrule + 1;
	struct lower l = {.x = x,
			  .g = g,
			  .empty = calloc(n, sizeof(*l.empty)),
			  .rule = malloc(n * sizeof(*l.rule)),
			  .full = malloc(n * sizeof(*l.full)),
			  .set = malloc(((size_t)x->nset + 1) * sizeof(*l.set)),
			  .todo = malloc(2 * n * sizeof(*l.todo))};
	int root = 0;

	while (root < x->nrule && (x->rule[root].n != 4 || memcmp(x->rule[root].name, "root", 4)))
		root++;
	if (!l.empty || !l.rule || !l.full || !l.set || !l.todo) {
		g->no_memory = true;
	} else if (find_empty(&l) && check_recursion(&l)) {
		memset(l.rule, -1, n * sizeof(*l.rule));
		memset(l.full, -1, n * sizeof(*l.full));
		memset(l.set, -1, ((size_t)x->nset + 1) * sizeof(*l.set));
		g->root = rule_elem(&l, root, false).index;
		while (l.ntodo > 0 && x->rc == 0 && !g->no_memory) {
			const int r = l.todo[--l.ntodo];

			fill(&l, r % x->nrule, r >= x->nrule);
		}
	}
	free(l.empty);
	free(l.rule);
	free(l.full);
	free(l.set);
	free(l.todo);
	return x->rc == 0 && !g->no_memory;
}
/* SPDX-License-Identifier: Apache-2.0 */
