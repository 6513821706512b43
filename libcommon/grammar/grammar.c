#include "grammar/matcher_priv.h"

#include <stdlib.h>
#include <string.h>

struct dt_grammar *dt_grammar_new(void)
{
	struct dt_grammar *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	atomic_init(&g->refs, 1);
	pthread_mutex_init(&g->mu, NULL);
	return g;
}

struct dt_grammar *dt_grammar_ref(struct dt_grammar *g)
{
	if (g)
		atomic_fetch_add(&g->refs, 1);
	return g;
}

void dt_grammar_drop(struct dt_grammar *g)
{
	if (!g || atomic_fetch_sub(&g->refs, 1) != 1)
		return;
	for (int i = 0; i < g->nrule; i++)
		free(g->rule[i].alt);
	dt_matchers_sweep(g, false);
	dt_parser_free(g->parser);
	pthread_mutex_destroy(&g->mu);
	free(g->tokens);
	free(g->rule);
	free(g->class);
	free(g->elem);
	free(g);
}

size_t dt_grammar_bytes(struct dt_grammar *g)
{
	size_t sum = sizeof(*g) + (size_t)g->elem_cap * sizeof(*g->elem) +
		     (size_t)g->class_cap * sizeof(*g->class) + (size_t)g->rule_cap * sizeof(*g->rule) +
		     ((size_t)g->ntokens + 31) / 32 * sizeof(*g->tokens);

	for (int i = 0; i < g->nrule; i++)
		sum += (size_t)g->rule[i].cap * sizeof(*g->rule[i].alt);
	return sum + atomic_load(&g->parser_bytes); /* without the lock, which a slow mask may hold */
}

/* Ensures room for one more entry of size bytes. */
static bool room(struct dt_grammar *g, void **p, int n, int *cap, size_t size)
{
	int more = *cap ? 2 * *cap : 4;
	void *q;

	if (n < *cap)
		return true;
	q = realloc(*p, (size_t)more * size);
	if (!q) {
		g->no_memory = true;
		return false;
	}
	*p = q;
	*cap = more;
	return true;
}

int dt_gr_rule(struct dt_grammar *g)
{
	if (!room(g, (void **)&g->rule, g->nrule, &g->rule_cap, sizeof(*g->rule)))
		return 0;
	g->rule[g->nrule] = (struct dt_rule){0};
	return g->nrule++;
}

int dt_gr_add_class(struct dt_grammar *g, struct dt_class c)
{
	for (int i = 0; i < g->nclass; i++)
		if (!memcmp(&g->class[i], &c, sizeof(c)))
			return i;
	if (!room(g, (void **)&g->class, g->nclass, &g->class_cap, sizeof(*g->class)))
		return 0;
	g->class[g->nclass] = c;
	return g->nclass++;
}

static void class_add(struct dt_class *c, int first, int last)
{
	for (int b = first; b <= last; b++)
		c->bit[b / 64] |= 1ull << b % 64;
}

struct dt_elem dt_gr_range(struct dt_grammar *g, int first, int last)
{
	struct dt_class c = {0};

	class_add(&c, first, last);
	return dt_gr_c(dt_gr_add_class(g, c));
}

int dt_gr_class(struct dt_grammar *g, const char *s)
{
	struct dt_class c = {0};

	while (*s) {
		bool range = s[1] == '-' && s[2];

		class_add(&c, (unsigned char)s[0], (unsigned char)s[range ? 2 : 0]);
		s += range ? 3 : 1;
	}
	return dt_gr_add_class(g, c);
}

int dt_gr_members(struct dt_grammar *g, const char *s)
{
	struct dt_class c = {0};

	for (; *s; s++)
		class_add(&c, (unsigned char)*s, (unsigned char)*s);
	return dt_gr_add_class(g, c);
}

static void add_elem(struct dt_grammar *g, struct dt_elem e)
{
	if (room(g, (void **)&g->elem, g->nelem, &g->elem_cap, sizeof(*g->elem)))
		g->elem[g->nelem++] = e;
}

void dt_gr_alt(struct dt_grammar *g, int rule, const struct dt_elem *e, int n)
{
	struct dt_rule *r;

	if (g->no_memory)
		return;
	r = &g->rule[rule];
	if (!room(g, (void **)&r->alt, r->n, &r->cap, sizeof(*r->alt)))
		return;
	r->alt[r->n++] = g->nelem;
	for (int i = 0; i < n; i++)
		add_elem(g, e[i]);
	add_elem(g, (struct dt_elem){.type = DT_ELEM_END});
}

int dt_gr_literal(struct dt_grammar *g, const char *s, size_t n)
{
	int rule = dt_gr_rule(g);

	if (g->no_memory)
		return 0;
	if (!room(g, (void **)&g->rule[rule].alt, 0, &g->rule[rule].cap, sizeof(int32_t)))
		return 0;
	g->rule[rule].alt[g->rule[rule].n++] = g->nelem;
	for (size_t i = 0; i < n; i++)
		add_elem(g, dt_gr_range(g, (unsigned char)s[i], (unsigned char)s[i]));
	add_elem(g, (struct dt_elem){.type = DT_ELEM_END});
	return rule;
}

int dt_gr_repeat(struct dt_grammar *g, struct dt_elem e, int sep, int min, int max)
{
	/* next: what may follow when there are at least `at` of them, including the separator */
	int next = dt_gr_rule(g), any = max < 0 ? next : -1;
	struct dt_elem seq[3];
	int n;

	if (max < 0) { /* next = (sep e next)? */
		n = 0;
		if (sep >= 0)
			seq[n++] = dt_gr_r(sep);
		seq[n++] = e;
		seq[n++] = dt_gr_r(any);
		dt_gr_alt(g, next, seq, n);
		dt_gr_alt(g, next, NULL, 0);
	} else {
		dt_gr_alt(g, next, NULL, 0);
	}
	for (int at = (max < 0 ? min : max) - 1; at >= 0; at--) {
		int rule = dt_gr_rule(g);

		n = 0;
		if (sep >= 0 && at > 0)
			seq[n++] = dt_gr_r(sep);
		seq[n++] = e;
		seq[n++] = dt_gr_r(next);
		dt_gr_alt(g, rule, seq, n);
		if (at >= min)
			dt_gr_alt(g, rule, NULL, 0);
		next = rule;
	}
	if (max < 0 && min == 0) { /* no separator before the first one */
		int rule = dt_gr_rule(g);

		dt_gr_alt(g, rule, (struct dt_elem[]){e, dt_gr_r(any)}, 2);
		dt_gr_alt(g, rule, NULL, 0);
		next = rule;
	}
	return next;
}

/* ---- pruning of what cannot end ---- */

struct finish {
	int32_t *rule_of, *missing; /* for each alternative: its rule; number of its rules not known to end */
	int32_t *from, *use;	    /* alternatives that use rule r: use[from[r] .. from[r + 1] - 1] */
	int32_t *todo;
	bool *ends; /* for each rule: some finite text matches it */
	int nalt;
};

static const struct dt_elem *alt_of(const struct dt_grammar *g, int rule, int i)
{
	return g->elem + g->rule[rule].alt[i];
}

/*
 * Numbers the alternatives and indexes the uses of each rule; initially those alternatives end that use no
 * rule.
 */
static int spread(const struct dt_grammar *g, struct finish *f)
{
	int alt = 0, n = 0;

	for (int r = 0; r < g->nrule; r++)
		for (int i = 0; i < g->rule[r].n; i++)
			for (const struct dt_elem *e = alt_of(g, r, i); e->type != DT_ELEM_END; e++)
				if (e->type == DT_ELEM_RULE)
					f->from[e->index]++;
	for (int r = 1; r <= g->nrule; r++)
		f->from[r] += f->from[r - 1];
	for (int r = 0; r < g->nrule; r++)
		for (int i = 0; i < g->rule[r].n; i++, alt++) {
			f->rule_of[alt] = r;
			for (const struct dt_elem *e = alt_of(g, r, i); e->type != DT_ELEM_END; e++)
				if (e->type == DT_ELEM_RULE) {
					f->missing[alt]++;
					f->use[--f->from[e->index]] = alt;
				}
			if (f->missing[alt] == 0 && !f->ends[r]) {
				f->ends[r] = true;
				f->todo[n++] = r;
			}
		}
	return n;
}

static void drop_endless(struct dt_grammar *g, const bool *ends)
{
	for (int r = 0; r < g->nrule; r++) {
		int kept = 0;

		for (int i = 0; i < g->rule[r].n; i++) {
			const struct dt_elem *e = alt_of(g, r, i);

			while (e->type == DT_ELEM_CLASS || e->type == DT_ELEM_TOKEN ||
			       (e->type == DT_ELEM_RULE && ends[e->index]))
				e++;
			if (e->type == DT_ELEM_END)
				g->rule[r].alt[kept++] = g->rule[r].alt[i];
		}
		g->rule[r].n = kept;
	}
}

bool dt_gr_prune(struct dt_grammar *g)
{
	struct finish f = {0};
	size_t uses = 1, rules = (size_t)g->nrule + 1;
	bool good = false;
	int n;

	for (int r = 0; r < g->nrule; r++)
		f.nalt += g->rule[r].n;
	for (int i = 0; i < g->nelem; i++)
		uses += g->elem[i].type == DT_ELEM_RULE;
	f.rule_of = calloc((size_t)f.nalt + 1, sizeof(*f.rule_of));
	f.missing = calloc((size_t)f.nalt + 1, sizeof(*f.missing));
	f.from = calloc(rules, sizeof(*f.from));
	f.use = calloc(uses, sizeof(*f.use));
	f.todo = calloc(rules, sizeof(*f.todo));
	f.ends = calloc(rules, sizeof(*f.ends));
	if (g->no_memory || !f.rule_of || !f.missing || !f.from || !f.use || !f.todo || !f.ends) {
		g->no_memory = true;
	} else {
		n = spread(g, &f);
		while (n > 0) {
			int r = f.todo[--n];

			for (int32_t i = f.from[r]; i < f.from[r + 1]; i++) {
				int owner = f.rule_of[f.use[i]];

				if (--f.missing[f.use[i]] > 0 || f.ends[owner])
					continue;
				f.ends[owner] = true;
				f.todo[n++] = owner;
			}
		}
		drop_endless(g, f.ends);
		good = f.ends[g->root];
	}
	free(f.rule_of);
	free(f.missing);
	free(f.from);
	free(f.use);
	free(f.todo);
	free(f.ends);
	return good;
}
/* SPDX-License-Identifier: Apache-2.0 */
