/*
 * Deterministic finite automata over Unicode code points, for the regular parts of a schema: patterns,
 * lengths, formats, property names, numbers. Several constraints on one text are combined by the product of
 * their automata. So no text that the resulting grammar allows leads to a point from which it cannot be
 * completed.
 *
 * The automata have no dead states. Code points are divided into classes of consecutive ones. A text is
 * accepted when it ends in an accepting state. Sizes and work are bounded: -E2BIG past the limits.
 */
#ifndef DT_GRAMMAR_AUTOMATON_H
#define DT_GRAMMAR_AUTOMATON_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DT_AUTO_LAST	0x10ffffu /* last code point */
#define DT_AUTO_STATES	(1 << 16)
#define DT_AUTO_ENTRIES (1 << 22) /* states times classes */

struct dt_auto {
	int nstate;	 /* 0: it accepts nothing; state 0 is the initial one */
	int nclass;	 /* class k: code points from first[k] up to first[k + 1] - 1, or DT_AUTO_LAST */
	uint32_t *first; /* [nclass], ascending from 0 */
	int32_t *next;	 /* [nstate][nclass], -1: rejected */
	bool *accept;	 /* [nstate] */
};

/* Steps that construction may still take; shared by all automata of a schema. -E2BIG when used up. */
struct dt_auto_budget {
	int64_t steps;
};

struct dt_auto *dt_auto_new(int nstate, int nclass); /* all of next is -1; NULL: out of memory */
void dt_auto_free(struct dt_auto *a);		     /* NULL is allowed */

/* Intersection, or (minus) the texts of a that b does not accept. */
int dt_auto_product(const struct dt_auto *a, const struct dt_auto *b, bool minus, struct dt_auto_budget *work,
		    struct dt_auto **ret);
/* Merges equivalent states and drops dead ones. */
int dt_auto_minimise(struct dt_auto *a, struct dt_auto_budget *work);

/* Texts of min to max (-1: any number) code points. */
int dt_auto_length(int64_t min, int64_t max, struct dt_auto_budget *work, struct dt_auto **ret);
/* Exactly these texts, UTF-8. */
int dt_auto_words(const char *const *word, int n, struct dt_auto_budget *work, struct dt_auto **ret);
/*
 * Texts in which a regular expression of ECMA-262 matches somewhere: alternatives, groups, brackets, . \d \w
 * \s and their negations, repetition, ^ and $ at the ends of an alternative. _whole: texts that it matches as
 * a whole. Errors, which err names: -ENOTSUP for other syntax, -EINVAL for a malformed expression.
 */
int dt_auto_regex(const char *pattern, struct dt_auto_budget *work, struct dt_auto **ret, struct dt_err *err);
int dt_auto_regex_whole(const char *pattern, struct dt_auto_budget *work, struct dt_auto **ret,
			struct dt_err *err);

bool dt_auto_accepts(const struct dt_auto *a, const char *utf8);

/*
 * A set of decimal numbers: bounds, and the number that they are multiples of. Values are integers in units
 * of 10^-DT_DECIMALS.
 */
#define DT_DECIMALS 15
struct dt_numbers {
	__int128 lo, hi, step; /* step 0: any number */
	bool has_lo, has_hi, integer;
};
/* Texts of these numbers: no exponent, at most 16 digits before the point unless the bounds have more. */
int dt_auto_numbers(const struct dt_numbers *n, struct dt_auto_budget *work, struct dt_auto **ret);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
