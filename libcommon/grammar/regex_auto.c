/*
 * Converts the tree of a regular expression to an NFA (Thompson 1968, built from the end), and that to a DFA
 * by the subset construction.
 */
#include "grammar/regex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SETS (1 << 15)

static int nfa(struct dt_regex *x, int set, int out, int out2)
{
	if (!dt_regex_room(x, (void **)&x->nfa, x->nnfa, &x->nfa_cap, sizeof(*x->nfa)))
		return 0;
	x->nfa[x->nnfa] = (struct dt_regex_nfa){set, out, out2};
	return x->nnfa++;
}

static int states(struct dt_regex *x, int t, int after);

/* The start state of alternatives, which are a chain of nodes as long as the pattern has bars. */
static int choices(struct dt_regex *x, int t, int after)
{
	int first = -1, last = -1, s;

	for (; x->tree[t].kind == DT_REGEX_ALT; t = x->tree[t].a) {
		s = nfa(x, -1, -1, states(x, x->tree[t].b, after));
		if (x->no_memory || x->too_large)
			return 0;
		if (last >= 0)
			x->nfa[last].out = s;
		first = last < 0 ? s : first;
		last = s;
	}
	s = states(x, t, after);
	if (!x->no_memory && !x->too_large)
		x->nfa[last].out = s;
	return first;
}

/*
 * The start state of t when the text after it continues at state `after`. Recursion is only as deep as groups
 * are nested.
 */
static int states(struct dt_regex *x, int t, int after)
{
	struct dt_regex_tree n;
	int s;

	for (; x->tree[t].kind == DT_REGEX_CAT && !x->no_memory && !x->too_large; t = x->tree[t].a)
		after = states(x, x->tree[t].b, after);
	n = x->tree[t];
	if (x->no_memory || x->too_large || n.kind == DT_REGEX_EMPTY)
		return after;
	if (n.kind == DT_REGEX_SET)
		return nfa(x, t, after, -1);
	if (n.kind == DT_REGEX_ALT)
		return choices(x, t, after);
	if (n.max < 0) {
		s = nfa(x, -1, after, -1);
		after = states(x, n.a, s);
		if (!x->no_memory && !x->too_large)
			x->nfa[s].out2 = after;
		after = s;
	}
	if (n.max > n.min) {
		int end = after;

		for (int i = n.min; i < n.max && !x->too_large && !x->no_memory; i++)
			after = nfa(x, -1, states(x, n.a, after), end);
	}
	for (int i = 0; i < n.min && !x->too_large && !x->no_memory; i++)
		after = states(x, n.a, after);
	return after;
}

struct sets { /* sets of NFA states, each ascending */
	int32_t *member, *from, *table;
	int n, nmember, member_cap;
	uint32_t mask;
};

/* The number of the set of these m states; -1: too many sets. */
static int set_number(struct sets *d, const int32_t *state, int m)
{
	uint64_t h = (uint64_t)m;
	uint32_t at;

	for (int i = 0; i < m; i++)
		h = (h ^ (uint64_t)state[i]) * 0x9e3779b97f4a7c15u + (h >> 31);
	for (at = (uint32_t)(h >> 32) & d->mask; d->table[at] >= 0; at = (at + 1) & d->mask) {
		int32_t k = d->table[at];

		if (d->from[k + 1] - d->from[k] == m &&
		    !memcmp(d->member + d->from[k], state, (size_t)m * sizeof(*state)))
			return k;
	}
	if (d->n == MAX_SETS)
		return -E2BIG;
	if (d->nmember + m > d->member_cap) {
		int cap = 2 * (d->nmember + m);
		void *p = realloc(d->member, (size_t)cap * sizeof(*d->member));

		if (!p)
			return -ENOMEM;
		d->member = p;
		d->member_cap = cap;
	}
	if (m)
		memcpy(d->member + d->nmember, state, (size_t)m * sizeof(*state));
	d->nmember += m;
	d->table[at] = d->n;
	d->from[d->n + 1] = d->nmember;
	return d->n++;
}

struct closure { /* states being collected, without those that have only empty transitions */
	int32_t *state, *mark, *todo;
	int n, round;
};

static void collect(const struct dt_regex *x, struct closure *c, int s)
{
	int n = 0;

	c->todo[n++] = s;
	while (n > 0) {
		s = c->todo[--n];
		if (s < 0 || c->mark[s] == c->round)
			continue;
		c->mark[s] = c->round;
		if (x->nfa[s].set == -1) {
			c->todo[n++] = x->nfa[s].out;
			c->todo[n++] = x->nfa[s].out2;
		} else {
			c->state[c->n++] = s;
		}
	}
}

static int by_number(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

static int close_set(struct closure *c, struct sets *d)
{
	if (c->n > 1)
		qsort(c->state, (size_t)c->n, sizeof(*c->state), by_number);
	return set_number(d, c->state, c->n);
}

/* An automaton with the coarsest classes that no set of the tree divides. */
static struct dt_auto *with_classes(const struct dt_regex *x, int nstate)
{
	uint32_t *edge = malloc((2 * (size_t)x->nrange + 1) * sizeof(*edge));
	struct dt_regex_range *r = malloc((2 * (size_t)x->nrange + 1) * sizeof(*r));
	struct dt_auto *a = NULL;
	int n = 0, k = 0;

	if (edge && r) {
		r[n++] = (struct dt_regex_range){0, 0};
		for (int i = 0; i < x->nrange; i++) {
			r[n++].first = x->range[i].first;
			r[n++].first = x->range[i].last + 1;
		}
		qsort(r, (size_t)n, sizeof(*r), dt_regex_by_first);
		for (int i = 0; i < n; i++)
			if (r[i].first <= DT_AUTO_LAST && (k == 0 || r[i].first != edge[k - 1]))
				edge[k++] = r[i].first;
		a = dt_auto_new(nstate, k);
		if (a)
			memcpy(a->first, edge, (size_t)k * sizeof(*edge));
	}
	free(edge);
	free(r);
	return a;
}

/* Visits all reachable sets; *a has its classes and grows. */
static int determine(const struct dt_regex *x, struct sets *d, struct closure *c, int start,
		     struct dt_auto_budget *work, struct dt_auto *a)
{
	size_t cap = 0, width = (size_t)a->nclass;
	int rc;

	c->round = 1;
	collect(x, c, start);
	rc = close_set(c, d);
	for (int s = 0; rc >= 0 && s < d->n; s++) {
		if (((size_t)s + 1) * width > cap) {
			int32_t *q;

			cap = cap ? 2 * cap : 16 * width;
			q = cap > (1 << 23) ? NULL : realloc(a->next, cap * sizeof(*q));
			if (!q)
				return cap > (1 << 23) ? -E2BIG : -ENOMEM;
			a->next = q;
		}
		for (size_t k = 0; k < width && rc >= 0; k++) {
			int m = d->from[s + 1] - d->from[s];

			work->steps -= m + 1;
			c->n = 0;
			c->round++;
			for (int i = 0; i < m; i++) {
				const struct dt_regex_nfa *f = &x->nfa[d->member[d->from[s] + i]];

				if (f->set >= 0 && dt_regex_in_set(x, f->set, a->first[k])) {
					work->steps--;
					collect(x, c, f->out);
				}
			}
			work->steps -= c->n;
			rc = work->steps < 0 ? -E2BIG : c->n ? close_set(c, d) : 0;
			a->next[(size_t)s * width + k] = c->n ? rc : -1;
		}
	}
	return rc < 0 ? rc : 0;
}

static int make(struct dt_regex *x, int root, struct dt_auto_budget *work, struct dt_auto **ret)
{
	int end = nfa(x, -2, -1, -1), start = states(x, root, end), rc = -ENOMEM;
	size_t n = (size_t)x->nnfa + 1;
	struct sets d = {.mask = 2 * MAX_SETS - 1};
	struct closure c = {0};
	struct dt_auto *a = NULL;

	if (x->no_memory || x->too_large)
		return x->no_memory ? -ENOMEM : -E2BIG;
	d.from = calloc(MAX_SETS + 1, sizeof(*d.from));
	d.table = malloc(((size_t)d.mask + 1) * sizeof(*d.table));
	c.state = malloc(n * sizeof(*c.state));
	c.mark = calloc(n, sizeof(*c.mark));
	c.todo = malloc(2 * n * sizeof(*c.todo));
	a = with_classes(x, 0);
	if (d.from && d.table && c.state && c.mark && c.todo && a) {
		memset(d.table, -1, ((size_t)d.mask + 1) * sizeof(*d.table));
		rc = determine(x, &d, &c, start, work, a);
	}
	if (rc >= 0) {
		free(a->accept);
		a->accept = calloc((size_t)d.n + 1, sizeof(*a->accept));
		a->nstate = d.n;
		for (int s = 0; a->accept && s < d.n; s++)
			for (int i = d.from[s]; i < d.from[s + 1]; i++)
				a->accept[s] |= x->nfa[d.member[i]].set == -2;
		rc = a->accept ? dt_auto_minimise(a, work) : -ENOMEM;
	}
	free(d.member);
	free(d.from);
	free(d.table);
	free(c.state);
	free(c.mark);
	free(c.todo);
	if (rc < 0)
		dt_auto_free(a);
	else
		*ret = a;
	return rc;
}

static int of_pattern(const char *pattern, bool whole, struct dt_auto_budget *work, struct dt_auto **ret,
		      struct dt_err *err)
{
	struct dt_regex x = {.at = pattern, .whole = whole, .err = err};
	int r = dt_regex_parse(&x);

	if (r >= 0) {
		r = x.no_memory ? -ENOMEM : x.too_large ? -E2BIG : make(&x, r, work, ret);
		if (r < 0)
			dt_err_set(err, r,
				   r == -ENOMEM ? "cannot read the schema: out of memory"
						: "the schema's pattern is too large");
	}
	free(x.tree);
	free(x.range);
	free(x.nfa);
	return r;
}

int dt_auto_regex(const char *pattern, struct dt_auto_budget *work, struct dt_auto **ret, struct dt_err *err)
{
	return of_pattern(pattern, false, work, ret, err);
}

int dt_auto_regex_whole(const char *pattern, struct dt_auto_budget *work, struct dt_auto **ret,
			struct dt_err *err)
{
	return of_pattern(pattern, true, work, ret, err);
}
/* SPDX-License-Identifier: Apache-2.0 */
