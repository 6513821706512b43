/* What grammar*.c and matcher.c share; not for others. */
#ifndef DT_SERVE_GRAMMAR_PRIV_H
#define DT_SERVE_GRAMMAR_PRIV_H

#include "serve/grammar.h"

#include <stdatomic.h>

enum { DT_ELEM_END, DT_ELEM_CLASS, DT_ELEM_RULE };

struct dt_elem {
	uint8_t type;
	int32_t index; /* of the class or the rule */
};

struct dt_class { /* a set of bytes */
	uint64_t bit[4];
};

struct dt_rule {
	int32_t *alt; /* each the number of its first element */
	int n, cap;
};

struct dt_grammar {
	atomic_int refs;
	struct dt_elem *elem;
	struct dt_class *class;
	struct dt_rule *rule;
	int nelem, elem_cap, nclass, class_cap, nrule, rule_cap;
	int root;
	bool no_memory; /* something is missing */
};

/* grammar.c: building. Nothing fails; whoever is done looks at no_memory. */
struct dt_grammar *dt_grammar_new(void);
int dt_gr_rule(struct dt_grammar *g);
int dt_gr_class(struct dt_grammar *g, const char *members); /* "a-z_": ranges and bytes */
struct dt_elem dt_gr_range(struct dt_grammar *g, int first, int last);
/* Adds an alternative of n elements to a rule. */
void dt_gr_alt(struct dt_grammar *g, int rule, const struct dt_elem *e, int n);
/* A rule that is these bytes. */
int dt_gr_literal(struct dt_grammar *g, const char *s, size_t n);
/* A rule of min to max (-1: any number) times e, with sep (a rule, -1: none) in between. */
int dt_gr_repeat(struct dt_grammar *g, struct dt_elem e, int sep, int min, int max);

/* grammar_text.c: decimals from lo to hi; fraction: a rule of what may follow the point, -1: integers. */
int dt_gr_between(struct dt_grammar *g, int64_t lo, int64_t hi, int fraction);

struct dt_gr_chars { /* rules of one character of a JSON string */
	int any, beyond_ascii;
};
/* The inside of a JSON string that matches a regular expression. -ENOTSUP for what is not done, by name. */
int dt_gr_pattern(struct dt_grammar *g, struct dt_gr_chars chars, const char *pattern, struct dt_err *err);
/* The expression of a format of JSON schema; NULL: none of those known. */
const char *dt_gr_format(const char *name);

static inline struct dt_elem dt_gr_r(int rule)
{
	return (struct dt_elem){DT_ELEM_RULE, rule};
}

static inline struct dt_elem dt_gr_c(int class)
{
	return (struct dt_elem){DT_ELEM_CLASS, class};
}

#endif
