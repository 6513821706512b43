/* Conversion of a regular expression to an automaton; shared by regex_*.c. */
#ifndef DT_GRAMMAR_REGEX_H
#define DT_GRAMMAR_REGEX_H

#include "grammar/automaton.h"

#define DT_REGEX_NODES (1 << 15) /* max nodes of the tree, ranges, and states of the NFA */

enum dt_regex_kind { DT_REGEX_EMPTY, DT_REGEX_SET, DT_REGEX_CAT, DT_REGEX_ALT, DT_REGEX_REP };

struct dt_regex_range {
	uint32_t first, last;
};

struct dt_regex_tree {
	enum dt_regex_kind kind;
	int a, b;     /* child nodes; for SET: first range and number of ranges */
	int min, max; /* of REP */
};

struct dt_regex_nfa { /* set < 0: an empty transition to out and out2 (-1: none) */
	int set, out, out2;
};

struct dt_regex {
	const char *at;
	int depth;
	struct dt_regex_tree *tree;
	struct dt_regex_range *range;
	struct dt_regex_nfa *nfa;
	int ntree, tree_cap, nrange, range_cap, nnfa, nfa_cap;
	bool no_memory, too_large;
	bool whole; /* the whole text matches, not a part of it */
	struct dt_err *err;
};

/*
 * Ensures room for one more entry of size bytes in a list of n; false: x->no_memory or x->too_large is set.
 */
bool dt_regex_room(struct dt_regex *x, void **list, int n, int *cap, size_t size);

/* For qsort: ranges by their first code point. */
static inline int dt_regex_by_first(const void *a, const void *b)
{
	const struct dt_regex_range *x = a, *y = b;

	return (x->first > y->first) - (x->first < y->first);
}

/*
 * regex_parse.c: parses the pattern at x->at; returns the root. -ENOTSUP for unsupported syntax, which x->err
 * names.
 */
int dt_regex_parse(struct dt_regex *x);
/* regex_set.c: adds a range at the end of x->range. */
void dt_regex_add(struct dt_regex *x, uint32_t first, uint32_t last);
/* Sorts and merges the ranges since `from`, or replaces them by their complement. */
void dt_regex_tidy(struct dt_regex *x, int from, bool negated);
/* Adds \d, \w, \s or their negations (ECMA-262, 22.2.2.9); false: another letter. */
bool dt_regex_add_named(struct dt_regex *x, char c);
/* Whether code point c is in the set of tree node t. */
bool dt_regex_in_set(const struct dt_regex *x, int t, uint32_t c);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
