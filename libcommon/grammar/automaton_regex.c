/*
 * Regular expressions: parsed to a tree, the tree to a nondeterministic automaton (Thompson 1968, built from
 * the end), that to a deterministic one by sets of states.
 */
#include "base/utf8.h"
#include "grammar/automaton.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64
#define MAX_TIMES 65535
#define MAX_NODES (1 << 15)
#define MAX_SETS  (1 << 15)

enum kind { EMPTY, SET, CAT, ALT, REP };

struct range {
	uint32_t first, last;
};

struct tree {
	enum kind kind;
	int a, b;     /* nodes; of a SET a: its first range and b: how many */
	int min, max; /* of REP */
};

struct nfa { /* set < 0: goes on to out and out2 (-1: none) without a character */
	int set, out, out2;
};

struct regex {
	const char *at;
	int depth;
	struct tree *tree;
	struct range *range;
	struct nfa *nfa;
	int ntree, tree_cap, nrange, range_cap, nnfa, nfa_cap;
	bool no_memory, too_large;
	struct dt_err *err;
};

static int refuse(struct regex *x, const char *what)
{
	return dt_err_set(x->err, -ENOTSUP, "the schema's pattern has %s, which is not supported", what);
}

static bool room(struct regex *x, void **p, int n, int *cap, size_t size)
{
	int more = *cap ? 2 * *cap : 32;
	void *q;

	if (n < *cap)
		return true;
	q = n < MAX_NODES ? realloc(*p, (size_t)more * size) : NULL;
	if (!q) {
		x->no_memory |= n < MAX_NODES;
		x->too_large |= n >= MAX_NODES;
		return false;
	}
	*p = q;
	*cap = more;
	return true;
}

static int node(struct regex *x, enum kind kind, int a, int b)
{
	if (!room(x, (void **)&x->tree, x->ntree, &x->tree_cap, sizeof(*x->tree)))
		return 0;
	x->tree[x->ntree] = (struct tree){.kind = kind, .a = a, .b = b};
	return x->ntree++;
}

/* ---- sets of characters: runs of ranges at the end of x->range ---- */

static void add(struct regex *x, uint32_t first, uint32_t last)
{
	if (room(x, (void **)&x->range, x->nrange, &x->range_cap, sizeof(*x->range)))
		x->range[x->nrange++] = (struct range){first, last};
}

static int by_first(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

/* Makes the ranges since `from` rising and apart, or what they leave out. */
static void tidy(struct regex *x, int from, bool negated)
{
	int n = from, m;
	uint32_t at = 0;

	if (x->no_memory || x->too_large)
		return;
	if (x->nrange > from)
		qsort(x->range + from, (size_t)(x->nrange - from), sizeof(*x->range), by_first);
	for (int i = from; i < x->nrange; i++) {
		struct range r = x->range[i];

		if (n > from && r.first <= x->range[n - 1].last + 1)
			x->range[n - 1].last = r.last > x->range[n - 1].last ? r.last : x->range[n - 1].last;
		else
			x->range[n++] = r;
	}
	m = n;
	x->nrange = n;
	if (!negated)
		return;
	for (int i = from; i < m; i++) {
		struct range r = x->range[i];

		if (r.first > at)
			add(x, at, r.first - 1);
		at = r.last + 1;
	}
	if (at <= DT_AUTO_LAST)
		add(x, at, DT_AUTO_LAST);
	if (x->no_memory || x->too_large)
		return;
	memmove(x->range + from, x->range + m, (size_t)(x->nrange - m) * sizeof(*x->range));
	x->nrange -= m - from;
}

/* \d, \w, \s and their opposites (ECMA-262, 22.2.2.9); false: another letter. */
static bool add_named(struct regex *x, char c)
{
	static const struct range digit[] = {{'0', '9'}},
				  word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
				  space[] = {{9, 13},	       {' ', ' '},	 {0xa0, 0xa0},
					     {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
					     {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
					     {0xfeff, 0xfeff}};
	char low = (char)(c | 32);
	const struct range *r = low == 'd' ? digit : low == 'w' ? word : space;
	int n = low == 'd' ? 1 : low == 'w' ? 4 : 10;
	uint32_t at = 0;

	if (low != 'd' && low != 'w' && low != 's')
		return false;
	for (int i = 0; i < n; i++) {
		if (c == low)
			add(x, r[i].first, r[i].last);
		else if (r[i].first > at)
			add(x, at, r[i].first - 1);
		at = r[i].last + 1;
	}
	if (c != low)
		add(x, at, DT_AUTO_LAST);
	return true;
}

static int hex(struct regex *x, int digits)
{
	int value = 0;

	for (int i = 0; i < digits; i++) {
		static const char set[] = "0123456789abcdef";
		char c = x->at[i];
		const char *p = c ? strchr(set, c >= 'A' && c <= 'F' ? c | 32 : c) : NULL;

		if (!p)
			return refuse(x, "an unknown escape");
		value = 16 * value + (int)(p - set);
	}
	x->at += digits;
	return value;
}

/* The character after a backslash. */
static int escaped(struct regex *x)
{
	static const char letters[] = "nrtfv0", control[] = "\n\r\t\f\v";
	char c = *x->at;
	const char *p = c ? strchr(letters, c) : NULL;

	if (p && (c != '0' || x->at[1] < '0' || x->at[1] > '9')) {
		x->at++;
		return control[p - letters];
	}
	if (c == 'x' || c == 'u') {
		x->at++;
		return hex(x, c == 'x' ? 2 : 4);
	}
	if (!(c > ' ' && c < 0x7f) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	    (c >= 'A' && c <= 'Z'))
		return refuse(x, "an unknown escape");
	x->at++;
	return c;
}

static int plain(struct regex *x)
{
	uint32_t c;

	x->at += dt_utf8_decode(x->at, strlen(x->at), &c);
	return (int)c;
}

/* One member of [...]; -1: a named set was added. */
static int member(struct regex *x)
{
	if (!*x->at)
		return refuse(x, "an open bracket");
	if (*x->at != '\\')
		return plain(x);
	x->at++;
	if (*x->at == 'b') {
		x->at++;
		return '\b';
	}
	if (add_named(x, *x->at)) {
		x->at++;
		return -1;
	}
	return escaped(x);
}

static int bracket(struct regex *x)
{
	bool negated = *x->at == '^';
	int from = x->nrange;

	x->at += negated;
	while (*x->at != ']') {
		int first = member(x), last = first;

		if (first < -1)
			return first;
		if (first >= 0 && *x->at == '-' && x->at[1] != ']') {
			x->at++;
			last = member(x);
			if (last < first)
				return last < -1 ? last : refuse(x, "a range that ends before it begins");
		}
		if (first >= 0)
			add(x, (uint32_t)first, (uint32_t)last);
	}
	x->at++;
	tidy(x, from, negated);
	return node(x, SET, from, x->nrange - from);
}

static int one(struct regex *x, uint32_t first, uint32_t last)
{
	int from = x->nrange;

	add(x, first, last);
	return node(x, SET, from, 1);
}

/* ---- the tree ---- */

static int alternatives(struct regex *x);

static int group(struct regex *x)
{
	int r;

	if (*x->at == '?' && x->at[1] == '<' && x->at[2] != '=' && x->at[2] != '!') { /* a name */
		x->at += strcspn(x->at, ">");
		x->at += *x->at == '>';
	} else if (*x->at == '?') {
		if (x->at[1] != ':')
			return refuse(x, "a look ahead or behind");
		x->at += 2;
	}
	r = alternatives(x);
	if (r >= 0 && *x->at++ != ')')
		return refuse(x, "an open group");
	return r;
}

static int atom(struct regex *x)
{
	unsigned char c = (unsigned char)*x->at++;
	int e, from = x->nrange;

	if (c == '(')
		return group(x);
	if (c == '[')
		return bracket(x);
	if (c == '.') {
		add(x, '\n', '\n');
		add(x, '\r', '\r');
		add(x, 0x2028, 0x2029);
		tidy(x, from, true);
		return node(x, SET, from, x->nrange - from);
	}
	if (c == '\\') {
		if (add_named(x, *x->at)) {
			x->at++;
			tidy(x, from, false);
			return node(x, SET, from, x->nrange - from);
		}
		e = escaped(x);
		return e < 0 ? e : one(x, (uint32_t)e, (uint32_t)e);
	}
	if (c == '^' || c == '$')
		return refuse(x, "^ or $ within an alternative");
	if (strchr("*+?{}]", c))
		return refuse(x, "a sign in an unexpected place");
	x->at--;
	e = plain(x);
	return one(x, (uint32_t)e, (uint32_t)e);
}

/* How often what came is repeated; false: {} is not as it should be. */
static bool times(struct regex *x, int *min, int *max)
{
	char c = *x->at;
	int end = 0;

	*min = c == '+' || c != '*';
	*max = c == '*' || c == '+' ? -1 : 1;
	if (c == '?')
		*min = 0;
	if (c == '*' || c == '+' || c == '?')
		x->at++;
	if (c != '{')
		return true;
	if (sscanf(x->at, "{%6d,%6d}%n", min, max, &end) == 2 && end > 0) {
	} else if (sscanf(x->at, "{%6d,}%n", min, &end) == 1 && end > 0) {
		*max = -1;
	} else if (sscanf(x->at, "{%6d}%n", min, &end) == 1 && end > 0) {
		*max = *min;
	} else {
		return false;
	}
	x->at += end;
	return *min >= 0 && *min <= MAX_TIMES && *max <= MAX_TIMES && (*max < 0 || *max >= *min);
}

/* What stands between two bars. */
static int sequence(struct regex *x)
{
	int all = node(x, EMPTY, 0, 0);

	while (*x->at && *x->at != '|' && *x->at != ')' &&
	       !(*x->at == '$' && x->depth == 1 && (!x->at[1] || x->at[1] == '|'))) {
		int r = atom(x), min, max;

		if (r < 0)
			return r;
		if (*x->at && strchr("*+?{", *x->at)) {
			if (!times(x, &min, &max))
				return refuse(x, "braces that are not {n}, {n,} or {n,m} up to 65535");
			x->at += *x->at == '?'; /* lazy: the same texts */
			r = node(x, REP, r, 0);
			if (!x->no_memory && !x->too_large) {
				x->tree[r].min = min;
				x->tree[r].max = max;
			}
		}
		all = node(x, CAT, all, r);
		if (x->no_memory || x->too_large)
			return 0;
	}
	return all;
}

/* Anything at all: what may stand before and after what is not tied to an end. */
static int anything(struct regex *x)
{
	int r = node(x, REP, one(x, 0, DT_AUTO_LAST), 0);

	if (!x->no_memory && !x->too_large)
		x->tree[r].max = -1;
	return r;
}

static int alternatives(struct regex *x)
{
	int all = -1;

	if (++x->depth > MAX_DEPTH)
		return refuse(x, "too many groups in groups");
	for (;;) {
		bool outer = x->depth == 1, begins = outer && *x->at == '^';
		int r;

		x->at += begins;
		r = sequence(x);
		if (r < 0)
			return r;
		if (outer && !begins)
			r = node(x, CAT, anything(x), r);
		if (outer && *x->at == '$')
			x->at++;
		else if (outer)
			r = node(x, CAT, r, anything(x));
		all = all < 0 ? r : node(x, ALT, all, r);
		if (*x->at != '|')
			break;
		x->at++;
	}
	x->depth--;
	return all;
}

/* ---- automata ---- */

static int nfa(struct regex *x, int set, int out, int out2)
{
	if (!room(x, (void **)&x->nfa, x->nnfa, &x->nfa_cap, sizeof(*x->nfa)))
		return 0;
	x->nfa[x->nnfa] = (struct nfa){set, out, out2};
	return x->nnfa++;
}

/* The state at which t begins that goes on at `after`. */
static int states(struct regex *x, int t, int after)
{
	struct tree n = x->tree[t];
	int s;

	if (x->no_memory || x->too_large)
		return 0;
	switch (n.kind) {
	case EMPTY:
		return after;
	case SET:
		return nfa(x, t, after, -1);
	case CAT:
		return states(x, n.a, states(x, n.b, after));
	case ALT:
		s = states(x, n.a, after);
		return nfa(x, -1, s, states(x, n.b, after));
	case REP:
		break;
	}
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

struct sets { /* sets of states of the nfa, each rising */
	int32_t *member, *from, *table;
	int n, nmember, member_cap;
	uint32_t mask;
};

/* The number of the set of the m states that are marked; -1: too many. */
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

struct closure { /* states being collected, without those that only lead on */
	int32_t *state, *mark, *todo;
	int n, round;
};

static void collect(const struct regex *x, struct closure *c, int s)
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

/* The first code points of classes that no set of the tree divides. */
static struct dt_auto *with_classes(const struct regex *x, int nstate)
{
	uint32_t *edge = malloc((2 * (size_t)x->nrange + 1) * sizeof(*edge));
	struct range *r = malloc((2 * (size_t)x->nrange + 1) * sizeof(*r));
	struct dt_auto *a = NULL;
	int n = 0, k = 0;

	if (edge && r) {
		r[n++] = (struct range){0, 0};
		for (int i = 0; i < x->nrange; i++) {
			r[n++].first = x->range[i].first;
			r[n++].first = x->range[i].last + 1;
		}
		qsort(r, (size_t)n, sizeof(*r), by_first);
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

static bool in_set(const struct regex *x, int t, uint32_t c)
{
	const struct range *r = x->range + x->tree[t].a;
	int lo = 0, hi = x->tree[t].b;

	while (lo < hi) {
		int mid = (lo + hi) / 2;

		if (r[mid].last < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < x->tree[t].b && r[lo].first <= c;
}

/* Goes through all sets that can be reached; *a has its classes and grows. */
static int determine(const struct regex *x, struct sets *d, struct closure *c, int start,
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
				const struct nfa *f = &x->nfa[d->member[d->from[s] + i]];

				if (f->set >= 0 && in_set(x, f->set, a->first[k])) {
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

static int make(struct regex *x, int root, struct dt_auto_budget *work, struct dt_auto **ret)
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

int dt_auto_regex(const char *pattern, struct dt_auto_budget *work, struct dt_auto **ret, struct dt_err *err)
{
	struct regex x = {.at = pattern, .err = err};
	int r = alternatives(&x);

	if (r >= 0 && *x.at && !x.no_memory && !x.too_large)
		r = refuse(&x, "a closing parenthesis too many");
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
