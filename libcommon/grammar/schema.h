/*
 * JSON Schema (draft 2020-12) to a grammar. Private to schema_*.c.
 *
 * A place is a position in the JSON text. The values allowed there are described by conjunctions: schemas
 * that must all hold, with $ref and allOf resolved and one branch of every anyOf and oneOf chosen. A place
 * with several conjunctions is an alternative. Equal conjunctions share a rule, which makes recursive schemas
 * finite. Texts, names and numbers are automata, so that intersections are decided before a token is drawn.
 *
 * Errors are sticky: the first one stays in rc and err, and what is built afterwards is discarded.
 */
#ifndef DT_GRAMMAR_SCHEMA_H
#define DT_GRAMMAR_SCHEMA_H

#include "grammar/automaton.h"
#include "grammar/priv.h"

#include <errno.h>

enum {
	DT_T_NULL = 1,
	DT_T_BOOLEAN = 2,
	DT_T_INTEGER = 4,
	DT_T_NUMBER = 8, /* includes integers */
	DT_T_STRING = 16,
	DT_T_ARRAY = 32,
	DT_T_OBJECT = 64,
	DT_T_ALL = 127
};

#define DT_MAX_ELEMS (1 << 20) /* elements of the grammar of a schema */
#define DT_MAX_LEAF  48
#define DT_MAX_NOT   8

/* All schemas of leaf hold, and none of the schemas in each no[].list, except number `but` of it. */
struct dt_conj {
	const json_t *leaf[DT_MAX_LEAF];
	struct {
		const json_t *list;
		int64_t but; /* -1: none */
	} no[DT_MAX_NOT];
	int nleaf, nno;
};

struct dt_conjs {
	struct dt_conj *c;
	int n, cap;
};

struct dt_places { /* schemas that must all hold in one place */
	const json_t *s[2 * DT_MAX_LEAF];
	int n;
};

struct dt_values {	     /* a set of values, equal ones once; borrowed */
	const json_t **slot; /* hash table (open addressing), NULL: free */
	size_t mask;
	const json_t *list; /* the array that it holds, where it holds one */
};

enum { DT_SCHEMA_LISTS = 16 };

struct dt_schema {
	struct dt_grammar *g;
	struct dt_gr_json json;
	const json_t *top;
	struct dt_auto_budget work;
	struct { /* conjunctions and their rules; rules are filled in in this order */
		struct dt_conj *c;
		int rule;
	} * memo;
	int nmemo, memo_cap;
	int32_t *table;	   /* hash table, twice memo_cap */
	int *most, *exact; /* rules of at most, and of exactly, a number of characters */
	int nmost, nexact;
	struct {
		const json_t *of;
		json_t *choice;
	} * made; /* dependentRequired and dependentSchemas, rewritten as alternatives */
	int nmade, made_cap;
	struct {
		const char *text;
		struct dt_auto *a;
	} * pattern; /* compiled patterns; text belongs to the schema */
	int npattern, pattern_cap;
	struct dt_values
		listed[DT_SCHEMA_LISTS]; /* of enums that were asked for last; at a place by address */
	int depth;			 /* depth of nested `not` */
	bool raw; /* texts are emitted as they are, not as the contents of a JSON string */
	struct dt_err *err;
	int rc;
};

/* ---- schema_keys.c ---- */
#define DT_SCHEMA_NUL "a value of the schema's 'enum' or 'const' with a NUL character is only supported alone"
int dt_schema_fail(struct dt_schema *b, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Charges n steps of work; schemas that need too many are refused. false: there was an error. */
bool dt_schema_work(struct dt_schema *b, int64_t n);
/* Ensures room for one more entry of size bytes. */
bool dt_schema_room(struct dt_schema *b, void **p, int n, int *cap, size_t size);
/* Checks that all keywords of s are known and well-formed. */
void dt_schema_check(struct dt_schema *b, const json_t *s);
/* Computes the conjunctions of a place; the caller frees ret->c. */
void dt_schema_flatten(struct dt_schema *b, const struct dt_places *p, struct dt_conjs *ret);
/* The types that a conjunction allows. */
int dt_schema_given(const struct dt_conj *c);
/* Whether some keyword of s restricts values. */
bool dt_schema_holds(const json_t *s);
/* The types to generate: if no schema names any, those to which its keywords apply. */
int dt_schema_types(const struct dt_conj *c);
const json_t *dt_schema_resolve(struct dt_schema *b, const char *ref);
/* Alternatives equivalent to dependentRequired and dependentSchemas of s: an array of arrays for anyOf. */
const json_t *dt_schema_dependent(struct dt_schema *b, const json_t *s);
static inline void dt_place(struct dt_schema *b, struct dt_places *p, const json_t *s)
{
	if (p->n == 2 * DT_MAX_LEAF)
		dt_schema_fail(b, -E2BIG, "the schema has too many schemas for one place");
	else
		p->s[p->n++] = s;
}

/* ---- schema_valid.c ---- */
bool dt_schema_equal(const json_t *a, const json_t *b);
/* Whether v satisfies s. */
bool dt_schema_valid(struct dt_schema *b, const json_t *v, const json_t *s, int depth);
/* Whether v satisfies all of c. */
bool dt_schema_meets(struct dt_schema *b, const json_t *v, const struct dt_conj *c);
/* Whether certainly no value satisfies both; `closed`: a's objects have only properties that a names. */
bool dt_schema_apart(struct dt_schema *b, const struct dt_conj *a, const struct dt_conj *c, int type,
		     bool closed, int depth);
/* The const or enum of c with the fewest values; NULL: none. A const is returned in *ret_one. */
const json_t *dt_schema_values(const struct dt_conj *c, const json_t **ret_one);

/* ---- schema_values.c ---- */
/* Room for `most` values; false: out of memory. */
bool dt_values_init(struct dt_values *s, size_t most);
void dt_values_release(struct dt_values *s);
/* false: an equal value is there already, or there was an error. */
bool dt_values_add(struct dt_schema *b, struct dt_values *s, const json_t *v);
/* Whether v equals one of the values of an enum. */
bool dt_schema_listed(struct dt_schema *b, const json_t *v, const json_t *list);

/* ---- schema_text.c, schema_number.c, schema_emit.c ---- */
/* Checks the result of an automaton function. false: the schema fails with rc, or has failed before. */
bool dt_schema_good(struct dt_schema *b, int rc);
/* Intersects *a with x or (minus) subtracts x from it; *a NULL stands for all texts. */
void dt_schema_combine(struct dt_schema *b, struct dt_auto **a, const struct dt_auto *x, bool minus);
/*
 * The automaton of a pattern (borrowed), compiled once. dt_schema_format: the pattern of a format, NULL:
 * unknown.
 */
const struct dt_auto *dt_schema_pattern(struct dt_schema *b, const char *pattern);
const char *dt_schema_format(const char *name);
/* The automaton of the texts that c allows; NULL: failed. */
struct dt_auto *dt_schema_text_auto(struct dt_schema *b, const struct dt_conj *c);
int dt_schema_string(struct dt_schema *b, const struct dt_conj *c); /* returns a rule */
int dt_schema_number(struct dt_schema *b, const struct dt_conj *c, bool integer);
/*
 * A bound or step in units of 10^-DT_DECIMALS; false: it has more decimals or |v| >= 10^19, and *ret has only
 * its sign.
 */
bool dt_schema_decimal(const json_t *v, __int128 *ret);
/* The bounds of all of c together; false: there are no bounds. */
bool dt_schema_bounds(struct dt_schema *b, const struct dt_conj *c, bool integer, struct dt_numbers *ret);
/* Rule of the contents of a JSON string: the automaton's texts, escaped. */
int dt_schema_emit(struct dt_schema *b, const struct dt_auto *a);
/* Rule that matches one of n values: a prefix tree of their JSON texts. */
int dt_schema_literals(struct dt_schema *b, const json_t *const *value, int n);

/* ---- schema_object.c ---- */
/* The schemas that property `name` must satisfy. */
void dt_schema_property(struct dt_schema *b, const struct dt_conj *c, const char *name,
			struct dt_places *ret);
bool dt_schema_named(const struct dt_conj *c, const char *name); /* required or in properties */
int dt_schema_object(struct dt_schema *b, const struct dt_conj *c);

/* ---- schema_other.c ---- */
/*
 * Whether members have no other names than the n that the schema gives. Without additionalProperties they
 * have none either, unless minProperties cannot be met so.
 */
bool dt_schema_closed(const struct dt_conj *c, int n);
/* A rule for a member with a name that is not among the n given; -1: none is allowed. */
int dt_schema_other(struct dt_schema *b, const struct dt_conj *c, const char *const *given, int n);

/* ---- schema_array.c ---- */
void dt_schema_item(struct dt_schema *b, const struct dt_conj *c, int64_t i, struct dt_places *ret);
/* The largest minimum and smallest maximum of these keywords; *max -1: no limit. */
void dt_schema_counts(const struct dt_conj *c, const char *min_key, const char *max_key, int64_t *min,
		      int64_t *max);
int dt_schema_array(struct dt_schema *b, const struct dt_conj *c);

/* ---- schema_rules.c ---- */
/* The rule of a place; filled in now or later. */
int dt_schema_rule(struct dt_schema *b, const struct dt_places *p);
/* All values allowed in a place, if they are known and at most this many (borrowed); -1: otherwise. */
int dt_schema_finite(struct dt_schema *b, const struct dt_places *p, int most, const json_t **ret);
/* Fails if values of these types may satisfy an excluded schema, unless it is certain that none does. */
void dt_schema_refuse_not(struct dt_schema *b, const struct dt_conj *c, int types, bool closed);
/* Iterates over the schemas of a `no`: NULL after the last. */
const json_t *dt_schema_no(const json_t *list, int64_t but, size_t *at);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
