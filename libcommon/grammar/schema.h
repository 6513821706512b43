/*
 * JSON Schema (draft 2020-12) to a grammar. Private to schema_*.c.
 *
 * A place is a position in the JSON text. What it may hold is a conjunction: schemas that must all hold,
 * with $ref and allOf followed and one branch of every anyOf and oneOf chosen; a place with several of them
 * is an alternative. Equal conjunctions are one rule, which makes recursive schemas finite. Texts, names and
 * numbers are automata, so that intersections are decided before a token is drawn.
 *
 * Errors are sticky: the first one stays in rc and err, and what is built afterwards is thrown away.
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

#define DT_MAX_LEAF 48
#define DT_MAX_NOT  8

/* All of leaf hold, and none of the schemas of each no[].list but the one numbered `but`. */
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

struct dt_places { /* schemas that hold in one place */
	const json_t *s[2 * DT_MAX_LEAF];
	int n;
};

struct dt_schema {
	struct dt_grammar *g;
	struct dt_gr_json json;
	const json_t *top;
	struct dt_auto_budget work;
	struct { /* conjunctions and their rules: filled in this order */
		struct dt_conj *c;
		int rule;
	} * memo;
	int nmemo, memo_cap;
	int32_t *table;	   /* twice memo_cap */
	int *most, *exact; /* rules of up to, and of exactly, so many characters */
	int nmost, nexact;
	struct {
		const json_t *of;
		json_t *choice;
	} * made; /* of dependentRequired and dependentSchemas: alternatives that say the same */
	int nmade, made_cap;
	struct {
		const char *text;
		struct dt_auto *a;
	} * pattern; /* compiled; text is the schema's */
	int npattern, pattern_cap;
	int depth; /* of not in not */
	struct dt_err *err;
	int rc;
};

/* ---- schema_keys.c ---- */
int dt_schema_fail(struct dt_schema *b, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* n more steps of work; a schema that costs too many is refused. False when something failed. */
bool dt_schema_work(struct dt_schema *b, int64_t n);
/* Makes room for one more of size bytes. */
bool dt_schema_room(struct dt_schema *b, void **p, int n, int *cap, size_t size);
/* Every keyword of s is known and of the right form. */
void dt_schema_check(struct dt_schema *b, const json_t *s);
/* The conjunctions of a place; c is to be freed. */
void dt_schema_flatten(struct dt_schema *b, const struct dt_places *p, struct dt_conjs *ret);
/* Types that a conjunction allows. */
int dt_schema_given(const struct dt_conj *c);
/* Some keyword of s says what a value must be. */
bool dt_schema_holds(const json_t *s);
/* Types that are generated: where no schema names one, those that their keywords are about. */
int dt_schema_types(const struct dt_conj *c);
const json_t *dt_schema_resolve(struct dt_schema *b, const char *ref);
/* Alternatives that say what dependentRequired and dependentSchemas of s do: an array of arrays for anyOf. */
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
/* v satisfies s. */
bool dt_schema_valid(struct dt_schema *b, const json_t *v, const json_t *s, int depth);
/* v satisfies all of c. */
bool dt_schema_meets(struct dt_schema *b, const json_t *v, const struct dt_conj *c);
/* It is certain that no value can meet both; `closed`: a's objects have no properties but those a names. */
bool dt_schema_apart(struct dt_schema *b, const struct dt_conj *a, const struct dt_conj *c, int type,
		     bool closed, int depth);
/* The const or enum of c that has the fewest values; NULL: none. A const is in *ret_one. */
const json_t *dt_schema_values(const struct dt_conj *c, const json_t **ret_one);

/* ---- schema_text.c, schema_number.c, schema_emit.c ---- */
/* rc is what a function on automata returned; false: the schema fails with it, or has failed. */
bool dt_schema_good(struct dt_schema *b, int rc);
/* *a becomes *a and x, or (minus) *a without x; *a NULL stands for any text. */
void dt_schema_combine(struct dt_schema *b, struct dt_auto **a, const struct dt_auto *x, bool minus);
/* A pattern or a format (NULL: none such), compiled once. Borrowed. */
const struct dt_auto *dt_schema_pattern(struct dt_schema *b, const char *pattern);
const char *dt_schema_format(const char *name);
/* What a text must be; NULL and !rc: anything from min to max (-1: no end) long. */
struct dt_auto *dt_schema_text(struct dt_schema *b, const struct dt_conj *c, int64_t *min, int64_t *max);
/* The same, never NULL unless failed. */
struct dt_auto *dt_schema_text_auto(struct dt_schema *b, const struct dt_conj *c);
int dt_schema_string(struct dt_schema *b, const struct dt_conj *c); /* rules */
int dt_schema_number(struct dt_schema *b, const struct dt_conj *c, bool integer);
/* A bound or a step in units of 10^-DT_DECIMALS; false: it has more decimals, or is beyond 10^19 (*ret is).
 */
bool dt_schema_decimal(const json_t *v, __int128 *ret);
/* The bounds of all of c; false: there are none. */
bool dt_schema_bounds(struct dt_schema *b, const struct dt_conj *c, bool integer, struct dt_numbers *ret);
/* Rule of the contents of a JSON string: the automaton's texts, escaped. */
int dt_schema_emit(struct dt_schema *b, const struct dt_auto *a);
/* Rule of one of n values: a prefix tree of their JSON texts. */
int dt_schema_literals(struct dt_schema *b, const json_t *const *value, int n);

/* ---- schema_object.c ---- */
/* Which schemas the property `name` must meet. */
void dt_schema_property(struct dt_schema *b, const struct dt_conj *c, const char *name,
			struct dt_places *ret);
bool dt_schema_required(const struct dt_conj *c, const char *name);
bool dt_schema_named(const struct dt_conj *c, const char *name); /* required or among properties */
/* Objects hold only properties that are named. */
bool dt_schema_closed(const struct dt_conj *c);
int dt_schema_object(struct dt_schema *b, const struct dt_conj *c);

/* ---- schema_array.c ---- */
void dt_schema_item(struct dt_schema *b, const struct dt_conj *c, int64_t i, struct dt_places *ret);
/* The smallest and largest count of these keywords; *max -1: no end. */
void dt_schema_counts(const struct dt_conj *c, const char *min_key, const char *max_key, int64_t *min,
		      int64_t *max);
int dt_schema_array(struct dt_schema *b, const struct dt_conj *c);

/* ---- schema_rules.c ---- */
/* The rule of a place, now or later filled in. */
int dt_schema_rule(struct dt_schema *b, const struct dt_places *p);
/* All values that may stand in a place, when they are known and at most this many (borrowed); -1: not. */
int dt_schema_finite(struct dt_schema *b, const struct dt_places *p, int most, const json_t **ret);
/* Says no to what is excluded of values of these types, unless it is certain that none of them meets it. */
void dt_schema_refuse_not(struct dt_schema *b, const struct dt_conj *c, int types, bool closed);
/* The schemas of a `no`, one by one: NULL after the last. */
const json_t *dt_schema_no(const json_t *list, int64_t but, size_t *at);

#endif
/* SPDX-License-Identifier: Apache-2.0 */
