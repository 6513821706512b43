/* Grammar of schema values with fixed text around them. */
#include "grammar/priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Most elements of an alternative copied at a time; the rest goes into a rule of its own. */
#define PART 32

static void add_alt(struct dt_grammar *g, int rule, const struct dt_grammar *from, const struct dt_elem *e,
		    int base)
{
	struct dt_elem part[PART + 1];
	int n = 0;

	for (; e->type != DT_ELEM_END && n < PART; e++)
		part[n++] = e->type == DT_ELEM_CLASS   ? dt_gr_c(dt_gr_add_class(g, from->class[e->index]))
			    : e->type == DT_ELEM_TOKEN ? *e
						       : dt_gr_r(base + e->index);
	if (e->type != DT_ELEM_END) {
		int rest = dt_gr_rule(g);

		part[n++] = dt_gr_r(rest);
		add_alt(g, rest, from, e, base);
	}
	dt_gr_alt(g, rule, part, n);
}

/* Takes the set of tokens from `from`; that of all heads is the same. */
static void take_tokens(struct dt_grammar *g, const struct dt_grammar *from)
{
	const size_t words = ((size_t)from->ntokens + 31) / 32;

	if (!from->tokens || g->tokens)
		return;
	g->tokens = malloc(words * sizeof(*g->tokens));
	g->no_memory |= !g->tokens;
	if (!g->tokens)
		return;
	memcpy(g->tokens, from->tokens, words * sizeof(*g->tokens));
	g->ntokens = from->ntokens;
}

/* Copies the rules of `from` into g; returns the index of its root in g. */
static int import(struct dt_grammar *g, const struct dt_grammar *from)
{
	int base = g->nrule;

	take_tokens(g, from);
	for (int r = 0; r < from->nrule; r++)
		dt_gr_rule(g);
	for (int r = 0; r < from->nrule && !g->no_memory; r++)
		for (int i = 0; i < from->rule[r].n; i++)
			add_alt(g, base + r, from, from->elem + from->rule[r].alt[i], base);
	return base + from->root;
}

int dt_grammar_framed(const struct dt_grammar_framed *f, int n, struct dt_grammar **ret, struct dt_err *err)
{
	struct dt_grammar *g = dt_grammar_new(), *value;
	int rc = 0;

	if (!g)
		return dt_err_sys(err, -ENOMEM, "cannot read the schemas");
	g->root = dt_gr_rule(g);
	for (int i = 0; i < n && rc == 0; i++) {
		rc = dt_grammar_schema(f[i].schema, &value, err);
		if (rc < 0)
			break;
		dt_gr_alt(g, g->root,
			  DT_SEQ(dt_gr_r(f[i].head ? import(g, f[i].head)
						   : dt_gr_literal(g, f[i].before, strlen(f[i].before))),
				 dt_gr_r(import(g, value)),
				 dt_gr_r(dt_gr_literal(g, f[i].after, strlen(f[i].after)))));
		dt_grammar_drop(value);
	}
	if (rc == 0 && g->no_memory)
		rc = dt_err_sys(err, -ENOMEM, "cannot read the schemas");
	if (rc < 0) {
		dt_grammar_drop(g);
		return rc;
	}
	*ret = g;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
