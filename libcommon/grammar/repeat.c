/*
 * Repetition up to large numbers: a chain of one rule for each number would be as long as the number. Blocks
 * of BLOCK elements are one rule, which further rules repeat. A text is then read in two ways at a time: as
 * the beginning of a block, and as the end of the text.
 */
#include "grammar/priv.h"

#define BLOCK 4096

/* ret[i], i <= n: i times e; fewer: or less. */
static void chain(struct dt_grammar *g, struct dt_elem e, int n, bool fewer, int *ret)
{
	for (int i = 0; i <= n; i++) {
		ret[i] = dt_gr_rule(g);
		if (i > 0)
			dt_gr_alt(g, ret[i], DT_SEQ(e, dt_gr_r(ret[i - 1])));
		if (i == 0 || fewer)
			dt_gr_alt(g, ret[i], NULL, 0);
	}
}

/* n blocks and then `rest`; below >= 0: or less than a block in place of a block and what follows it. */
static int blocks(struct dt_grammar *g, int block, int n, int rest, int below)
{
	for (; n > 0; n--) {
		const int r = dt_gr_rule(g);

		dt_gr_alt(g, r, DT_SEQ(dt_gr_r(block), dt_gr_r(rest)));
		if (below >= 0)
			dt_gr_alt(g, r, DT_SEQ(dt_gr_r(below)));
		rest = r;
	}
	return rest;
}

int dt_gr_many(struct dt_grammar *g, struct dt_elem e, int min, int max)
{
	int exact[BLOCK + 1], most[BLOCK];
	int rest;

	if (min <= DT_GR_CHAIN && max <= DT_GR_CHAIN)
		return dt_gr_repeat(g, e, -1, min, max);
	chain(g, e, BLOCK, false, exact);
	if (max < 0) {
		rest = dt_gr_repeat(g, e, -1, 0, -1);
	} else {
		chain(g, e, BLOCK - 1, true, most);
		rest = blocks(g, exact[BLOCK], (max - min) / BLOCK, most[(max - min) % BLOCK],
			      most[BLOCK - 1]);
	}
	if (min % BLOCK > 0) {
		const int r = dt_gr_rule(g);

		dt_gr_alt(g, r, DT_SEQ(dt_gr_r(exact[min % BLOCK]), dt_gr_r(rest)));
		rest = r;
	}
	return blocks(g, exact[BLOCK], min / BLOCK, rest, -1);
}

int64_t dt_gr_many_rules(int64_t min, int64_t max)
{
	const int64_t n = max < 0 ? min : max;

	return n <= DT_GR_CHAIN ? n : 2 * BLOCK + n / BLOCK;
}
/* SPDX-License-Identifier: Apache-2.0 */
