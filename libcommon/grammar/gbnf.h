/*
 * A grammar in GBNF while it is read (gbnf.c) and turned into rules over bytes (gbnf_rules.c). Groups and
 * literals that an operator applies to are rules without a name.
 */
#ifndef DT_GRAMMAR_GBNF_H
#define DT_GRAMMAR_GBNF_H

#include "grammar/priv.h"

enum dt_gbnf_kind {
	DT_GBNF_BYTE,  /* at: the byte */
	DT_GBNF_SET,   /* at: index of the set */
	DT_GBNF_RULE,  /* at: index of the rule */
	DT_GBNF_MANY,  /* at: index of the repetition */
	DT_GBNF_TOKEN, /* at: 2 id; + 1: any other token */
};

struct dt_gbnf_item {
	enum dt_gbnf_kind kind;
	int at;
};

struct dt_gbnf_set { /* code points in ranges first to first + n - 1 */
	int first, n;
	bool negated;
};

struct dt_gbnf_many {
	struct dt_gbnf_item of;
	int min, max; /* max -1: no limit */
	int depth;    /* 1 + that of `of` if it is a repetition too */
};

struct dt_gbnf_alt {
	int first, n; /* items */
	int next;     /* alternative of the same rule, -1: none */
};

struct dt_gbnf_rule {
	const char *name; /* in the text; NULL: a group or literal */
	size_t n;
	const char *seen, *defined; /* where the name is used first; where it is defined, NULL: nowhere */
	int alt, last;		    /* first and last alternative, -1: none */
};

struct dt_gbnf {
	const char *text, *end, *at;
	const struct dt_grammar_tokens *tokens; /* NULL: none may be named */
	bool has_tokens;
	struct dt_gbnf_item *item;
	struct dt_gbnf_set *set;
	struct dt_gbnf_many *many;
	struct dt_gbnf_alt *alt;
	struct dt_gbnf_rule *rule;
	struct dt_gbnf_range {
		uint32_t first, last;
	} * range;
	int32_t *table; /* hash table of named rules (open addressing), -1: free; twice rule_cap */
	int nitem, item_cap, nset, set_cap, nmany, many_cap, nalt, alt_cap, nrule, rule_cap, nrange,
		range_cap;
	int depth;    /* of nested parentheses */
	int64_t work; /* steps left */
	struct dt_err *err;
	int rc; /* sticky */
};

/* Sets rc and the message, which begins with the line and column of `at`; returns false. */
bool dt_gbnf_fail(struct dt_gbnf *x, const char *at, int code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* Charges n steps. false: there was an error, or the grammar is too large. */
bool dt_gbnf_work(struct dt_gbnf *x, int64_t n);

void dt_gbnf_release(struct dt_gbnf *x);
bool dt_gbnf_too_large(struct dt_gbnf *x);
/* Ensures room for one more entry of size bytes. */
bool dt_gbnf_room(struct dt_gbnf *x, void **list, int n, int *cap, size_t size);
/* A new rule; name NULL: without a name. rule_of: that of a name, made at its first use. -1: failed. */
int dt_gbnf_new_rule(struct dt_gbnf *x, const char *name, size_t n);
int dt_gbnf_rule_of(struct dt_gbnf *x, const char *name, size_t n);
/* Adds an alternative of n items to a rule. */
bool dt_gbnf_add_alt(struct dt_gbnf *x, int rule, const struct dt_gbnf_item *item, int n);

/* Index of a new repetition of `of`, whose operator is at `at`; -1: failed. */
int dt_gbnf_add_many(struct dt_gbnf *x, const char *at, struct dt_gbnf_item of, int min, int max);
/* Whether every rule is defined, and there is one called root. */
bool dt_gbnf_check_names(struct dt_gbnf *x);

/* gbnf_read.c: reads the text; then every rule is defined, and there is one called root. */
bool dt_gbnf_read(struct dt_gbnf *x);
/* gbnf_token.c: reads a reference to a token: at of DT_GBNF_TOKEN; -1: failed. */
int dt_gbnf_read_token(struct dt_gbnf *x);
/* Sets the tokens of g. */
bool dt_gbnf_set_tokens(struct dt_gbnf *x, struct dt_grammar *g);
/* gbnf_rules.c: adds the rules to g and sets its root. false: x->rc. */
bool dt_gbnf_rules(struct dt_gbnf *x, struct dt_grammar *g);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
