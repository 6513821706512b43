/* Conjunctions and their rules, and the conversion of a whole schema. */
#include "grammar/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQ	  DT_SEQ
#define MAX_STEPS 60000000 /* takes well under a second */

const json_t *dt_schema_no(const json_t *list, int64_t but, size_t *at)
{
	if (json_is_object(list)) /* a schema with "not" */
		return (*at)++ == 0 ? json_object_get(list, "not") : NULL;
	*at += but >= 0 && (size_t)but == *at;
	return json_array_get(list, (*at)++);
}

void dt_schema_refuse_not(struct dt_schema *b, const struct dt_conj *c, int types, bool closed)
{
	for (int i = 0; i < c->nno; i++) {
		const json_t *s;
		size_t at = 0;

		while (b->rc == 0 && (s = dt_schema_no(c->no[i].list, c->no[i].but, &at))) {
			struct dt_places p = {.s = {s}, .n = 1};
			struct dt_conjs all;

			dt_schema_flatten(b, &p, &all);
			for (int k = 0; k < all.n && b->rc == 0; k++)
				for (int t = 1; t < DT_T_ALL; t *= 2)
					if ((types & t) && !dt_schema_apart(b, c, &all.c[k], t, closed, 0))
						dt_schema_fail(b, -ENOTSUP,
							       json_is_object(c->no[i].list)
								       ? "the schema's 'not' is not "
									 "supported here: it "
									 "cannot be known beforehand to hold"
								       : "the schema's 'oneOf' is not "
									 "supported here: a value "
									 "could meet two of its choices "
									 "(anyOf allows that)");
			free(all.c);
		}
	}
}

/* ---- conjunctions by content ---- */

static uint32_t hash(const struct dt_conj *c)
{
	uint64_t h = (uint64_t)c->nleaf;

	for (int i = 0; i < c->nleaf; i++)
		h = (h ^ (uintptr_t)c->leaf[i]) * 0x9e3779b97f4a7c15u + (h >> 31);
	for (int i = 0; i < c->nno; i++)
		h = (h ^ (uintptr_t)c->no[i].list ^ (uint64_t)c->no[i].but) * 0x9e3779b97f4a7c15u + (h >> 31);
	return (uint32_t)(h >> 32);
}

static bool same(const struct dt_conj *a, const struct dt_conj *b)
{
	if (a->nleaf != b->nleaf || a->nno != b->nno)
		return false;
	for (int i = 0; i < a->nleaf; i++)
		if (a->leaf[i] != b->leaf[i])
			return false;
	for (int i = 0; i < a->nno; i++)
		if (a->no[i].list != b->no[i].list || a->no[i].but != b->no[i].but)
			return false;
	return true;
}

static bool grow(struct dt_schema *b)
{
	int cap = b->memo_cap;
	int32_t *t;

	if (b->nmemo < cap)
		return true;
	if (!dt_schema_room(b, (void **)&b->memo, b->nmemo, &b->memo_cap, sizeof(*b->memo)))
		return false;
	t = realloc(b->table, 2 * (size_t)b->memo_cap * sizeof(*t));
	if (!t) {
		b->memo_cap = cap;
		dt_schema_fail(b, -ENOMEM, "cannot read the schema: out of memory");
		return false;
	}
	b->table = t;
	memset(t, -1, 2 * (size_t)b->memo_cap * sizeof(*t));
	for (int i = 0; i < b->nmemo; i++) {
		uint32_t mask = 2 * (uint32_t)b->memo_cap - 1, at = hash(b->memo[i].c) & mask;

		while (t[at] >= 0)
			at = (at + 1) & mask;
		t[at] = i;
	}
	return true;
}

/* The rule of a conjunction; filled in now or later. */
static int rule_of(struct dt_schema *b, const struct dt_conj *c)
{
	uint32_t mask, at;
	struct dt_conj *copy;

	if (c->nleaf == 0 && c->nno == 0)
		return b->json.value;
	if (!grow(b))
		return 0;
	mask = 2 * (uint32_t)b->memo_cap - 1;
	for (at = hash(c) & mask; b->table[at] >= 0; at = (at + 1) & mask)
		if (same(b->memo[b->table[at]].c, c))
			return b->memo[b->table[at]].rule;
	copy = malloc(sizeof(*copy));
	if (!copy) {
		dt_schema_fail(b, -ENOMEM, "cannot read the schema: out of memory");
		return 0;
	}
	*copy = *c;
	b->table[at] = b->nmemo;
	b->memo[b->nmemo].c = copy;
	return b->memo[b->nmemo++].rule = dt_gr_rule(b->g);
}

int dt_schema_rule(struct dt_schema *b, const struct dt_places *p)
{
	struct dt_conjs all;
	int r;

	if (b->rc < 0)
		return 0;
	dt_schema_flatten(b, p, &all);
	if (all.n == 1) {
		r = rule_of(b, &all.c[0]);
	} else {
		r = dt_gr_rule(b->g);
		for (int i = 0; i < all.n && b->rc == 0; i++) {
			int one = rule_of(b, &all.c[i]);

			dt_gr_alt(b->g, r, SEQ(dt_gr_r(one)));
		}
	}
	free(all.c);
	return r;
}

/* Collects the listed values that satisfy c; returns their number. */
static int meeting(struct dt_schema *b, const struct dt_conj *c, const json_t *one, const json_t *list,
		   const json_t **ret)
{
	struct dt_values seen;
	const json_t *v;
	size_t i;
	int n = 0;

	if (one && dt_schema_meets(b, one, c))
		ret[n++] = one;
	if (!dt_values_init(&seen, json_array_size(list)))
		return dt_schema_fail(b, -ENOMEM, "cannot read the schema");
	json_array_foreach(list, i, v) if (b->rc == 0 && dt_schema_meets(b, v, c) &&
					   dt_values_add(b, &seen, v)) ret[n++] = v;
	dt_values_release(&seen);
	return n;
}

int dt_schema_finite(struct dt_schema *b, const struct dt_places *p, int most, const json_t **ret)
{
	struct dt_conjs all;
	int n = 0;

	dt_schema_flatten(b, p, &all);
	for (int i = 0; i < all.n && n >= 0 && b->rc == 0; i++) {
		const struct dt_conj *c = &all.c[i];
		const json_t *one, *list = dt_schema_values(c, &one), *v;
		json_t *simple = json_array();
		size_t k;

		if (!one && !list && !(dt_schema_types(c) & ~(DT_T_NULL | DT_T_BOOLEAN))) {
			if (dt_schema_types(c) & DT_T_NULL)
				json_array_append_new(simple, json_null());
			if (dt_schema_types(c) & DT_T_BOOLEAN) {
				json_array_append_new(simple, json_true());
				json_array_append_new(simple, json_false());
			}
			list = simple; /* these three are never freed */
		} else if (!one && !list) {
			n = -1;
		}
		for (k = 0; n >= 0 && (v = one ? (k ? NULL : one) : json_array_get(list, k)); k++) {
			int at = 0;

			if (!dt_schema_meets(b, v, c))
				continue;
			while (at < n && !dt_schema_equal(ret[at], v))
				at++;
			if (at == most) {
				n = -1;
				break;
			}
			ret[at] = v;
			n += at == n;
		}
		json_decref(simple);
	}
	free(all.c);
	return n;
}

static int words(struct dt_schema *b, const char *one, const char *two)
{
	int r = dt_gr_rule(b->g);

	dt_gr_alt(b->g, r, SEQ(dt_gr_r(dt_gr_literal(b->g, one, strlen(one)))));
	if (two)
		dt_gr_alt(b->g, r, SEQ(dt_gr_r(dt_gr_literal(b->g, two, strlen(two)))));
	return r;
}

static int typed(struct dt_schema *b, const struct dt_conj *c, int type)
{
	switch (type) {
	case DT_T_NULL:
	case DT_T_BOOLEAN:
		dt_schema_refuse_not(b, c, type, false);
		return type == DT_T_NULL ? words(b, "null", NULL) : words(b, "true", "false");
	case DT_T_INTEGER:
	case DT_T_NUMBER: /* includes integers */
		dt_schema_refuse_not(b, c, DT_T_INTEGER | type, false);
		return dt_schema_number(b, c, type == DT_T_INTEGER);
	case DT_T_STRING:
		return dt_schema_string(b, c);
	case DT_T_ARRAY:
		return dt_schema_array(b, c);
	default:
		return dt_schema_object(b, c);
	}
}

static void fill(struct dt_schema *b, const struct dt_conj *c, int rule)
{
	const json_t *one, *list = dt_schema_values(c, &one);
	int types = dt_schema_types(c);

	if (one || list) {
		const json_t **v = calloc(json_array_size(list) + 1, sizeof(*v));
		int n = v ? meeting(b, c, one, list, v)
			  : dt_schema_fail(b, -ENOMEM, "cannot read the schema");

		if (n > 0 && b->rc == 0)
			dt_gr_alt(b->g, rule, SEQ(dt_gr_r(dt_schema_literals(b, v, n))));
		free(v);
		return;
	}
	if (types & DT_T_NUMBER)
		types &= ~DT_T_INTEGER;
	for (int t = 1; t < DT_T_ALL && b->rc == 0; t *= 2)
		if (types & t) {
			int r = typed(b, c, t);

			dt_gr_alt(b->g, rule, SEQ(dt_gr_r(r)));
		}
}

static void release(struct dt_schema *b)
{
	for (int i = 0; i < b->nmemo; i++)
		free(b->memo[i].c);
	for (int i = 0; i < b->nmade; i++)
		json_decref(b->made[i].choice);
	for (int i = 0; i < b->npattern; i++)
		dt_auto_free(b->pattern[i].a);
	for (int i = 0; i < DT_SCHEMA_LISTS; i++)
		dt_values_release(&b->listed[i]);
	free(b->memo);
	free(b->table);
	free(b->most);
	free(b->exact);
	free(b->made);
	free(b->pattern);
}

int dt_grammar_schema(const json_t *schema, struct dt_grammar **ret, struct dt_err *err)
{
	struct dt_schema b = {.g = dt_grammar_new(), .top = schema, .work = {MAX_STEPS}, .err = err};
	struct dt_places top = {.s = {schema}, .n = 1};
	struct dt_matcher *m;

	if (!b.g)
		return dt_err_sys(err, -ENOMEM, "cannot read the schema");
	dt_gr_json(b.g, &b.json);
	b.g->root = dt_schema_rule(&b, &top);
	for (int i = 0; i < b.nmemo && b.rc == 0 && !b.g->no_memory; i++) { /* fill may add more */
		fill(&b, b.memo[i].c, b.memo[i].rule);
		if (b.g->nelem > DT_MAX_ELEMS)
			dt_schema_fail(&b, -E2BIG, "the schema is too large");
	}
	if (b.rc == 0 && !dt_gr_prune(b.g) && !b.g->no_memory)
		dt_schema_fail(&b, -EINVAL, "no value can meet the schema");
	if (b.g->no_memory)
		dt_schema_fail(&b, -ENOMEM, "cannot read the schema: out of memory");
	if (b.rc == 0) {
		m = dt_matcher_new(b.g);
		if (!m)
			dt_schema_fail(&b, -E2BIG, "the schema is too large: too much may come first");
		dt_matcher_free(m);
	}
	release(&b);
	if (b.rc < 0) {
		dt_grammar_drop(b.g);
		return b.rc;
	}
	*ret = b.g;
	return 0;
}
/* SPDX-License-Identifier: Apache-2.0 */
