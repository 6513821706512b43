/* Whether a value satisfies a schema, and whether any value can satisfy two schemas. */
#include "base/utf8.h"
#include "grammar/schema.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64

bool dt_schema_equal(const json_t *a, const json_t *b)
{
	const json_t *v, *w;
	const char *key;
	size_t i;

	if (json_is_integer(a) && json_is_integer(b))
		return json_integer_value(a) == json_integer_value(b);
	if (json_is_number(a) && json_is_number(b))
		return json_number_value(a) == json_number_value(b);
	if (json_is_array(a) && json_is_array(b)) {
		if (json_array_size(a) != json_array_size(b))
			return false;
		json_array_foreach(a, i, v) if (!dt_schema_equal(v, json_array_get(b, i))) return false;
		return true;
	}
	if (json_is_object(a) && json_is_object(b)) {
		if (json_object_size(a) != json_object_size(b))
			return false;
		json_object_foreach((json_t *)a, key, v)
		{
			w = json_object_get(b, key);
			if (!w || !dt_schema_equal(v, w))
				return false;
		}
		return true;
	}
	return json_equal(a, b);
}

static int type_of(const json_t *v)
{
	if (json_is_real(v))
		return floor(json_real_value(v)) == json_real_value(v) ? DT_T_INTEGER : DT_T_NUMBER;
	return json_is_null(v)	    ? DT_T_NULL
	       : json_is_boolean(v) ? DT_T_BOOLEAN
	       : json_is_integer(v) ? DT_T_INTEGER
	       : json_is_string(v)  ? DT_T_STRING
	       : json_is_array(v)   ? DT_T_ARRAY
				    : DT_T_OBJECT;
}

/* Checks the keywords of a schema that apply to the type of v; others have no effect. */
static bool valid_number(struct dt_schema *b, const json_t *v, const json_t *s)
{
	const json_t *step = json_object_get(s, "multipleOf"), *k;
	double x = json_number_value(v);
	__int128 u, m;

	if (((k = json_object_get(s, "minimum")) && x < json_number_value(k)) ||
	    ((k = json_object_get(s, "maximum")) && x > json_number_value(k)) ||
	    ((k = json_object_get(s, "exclusiveMinimum")) && x <= json_number_value(k)) ||
	    ((k = json_object_get(s, "exclusiveMaximum")) && x >= json_number_value(k)))
		return false;
	if (!step)
		return true;
	if (!dt_schema_decimal(v, &u) || !dt_schema_decimal(step, &m)) {
		dt_schema_fail(b, -ENOTSUP,
			       "the schema's 'multipleOf' of so large or small a number is not "
			       "supported");
		return false;
	}
	return u % m == 0;
}

static bool valid_string(struct dt_schema *b, const json_t *v, const json_t *s)
{
	const char *text = json_string_value(v);
	json_int_t n = (json_int_t)dt_utf8_count(text, json_string_length(v));
	const json_t *k;
	const struct dt_auto *a;

	if (((k = json_object_get(s, "minLength")) && n < json_integer_value(k)) ||
	    ((k = json_object_get(s, "maxLength")) && n > json_integer_value(k)))
		return false;
	if (json_string_length(v) != strlen(text) &&
	    (json_object_get(s, "pattern") || json_object_get(s, "format"))) {
		dt_schema_fail(b, -ENOTSUP, DT_SCHEMA_NUL);
		return false;
	}
	k = json_object_get(s, "pattern");
	if (k && (a = dt_schema_pattern(b, json_string_value(k))) && !dt_auto_accepts(a, text))
		return false;
	k = json_object_get(s, "format");
	if (k && (a = dt_schema_pattern(b, dt_schema_format(json_string_value(k)))) &&
	    !dt_auto_accepts(a, text))
		return false;
	return b->rc == 0;
}

static bool valid_array(struct dt_schema *b, const json_t *v, const json_t *s, int depth)
{
	const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items"), *k,
		     *e;
	json_int_t n = (json_int_t)json_array_size(v);
	size_t i;

	if (((k = json_object_get(s, "minItems")) && n < json_integer_value(k)) ||
	    ((k = json_object_get(s, "maxItems")) && n > json_integer_value(k)))
		return false;
	json_array_foreach(v, i, e)
	{
		const json_t *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;

		if (of && !dt_schema_valid(b, e, of, depth))
			return false;
		if (!json_is_true(json_object_get(s, "uniqueItems")))
			continue;
		for (size_t j = 0; j < i; j++)
			if (!dt_schema_work(b, 1) || dt_schema_equal(e, json_array_get(v, j)))
				return false;
	}
	return true;
}

static bool valid_object(struct dt_schema *b, const json_t *v, const json_t *s, int depth)
{
	json_int_t n = (json_int_t)json_object_size(v);
	const json_t *k, *e;
	struct dt_conj one = {.leaf = {s}, .nleaf = 1};
	const char *key;
	size_t i;

	if (((k = json_object_get(s, "minProperties")) && n < json_integer_value(k)) ||
	    ((k = json_object_get(s, "maxProperties")) && n > json_integer_value(k)))
		return false;
	json_array_foreach(json_object_get(s, "required"), i, k)
	{
		if (!json_object_get(v, json_string_value(k)))
			return false;
	}
	json_object_foreach((json_t *)v, key, e)
	{
		struct dt_places p = {.n = 0};

		dt_schema_property(b, &one, key, &p);
		for (int j = 0; j < p.n; j++)
			if (!dt_schema_valid(b, e, p.s[j], depth))
				return false;
	}
	return b->rc == 0;
}

static bool valid_here(struct dt_schema *b, const json_t *v, const json_t *s, int depth)
{
	const json_t *type = json_object_get(s, "type"), *k;
	struct dt_conj one = {.leaf = {s}, .nleaf = 1};

	if (type && !(dt_schema_given(&one) & type_of(v)))
		return false;
	if (((k = json_object_get(s, "const")) && !dt_schema_equal(v, k)) ||
	    ((k = json_object_get(s, "enum")) && !dt_schema_listed(b, v, k)))
		return false;
	switch (type_of(v)) {
	case DT_T_INTEGER:
	case DT_T_NUMBER:
		return valid_number(b, v, s);
	case DT_T_STRING:
		return valid_string(b, v, s);
	case DT_T_ARRAY:
		return valid_array(b, v, s, depth);
	case DT_T_OBJECT:
		return valid_object(b, v, s, depth);
	default:
		return true;
	}
}

static int how_many(struct dt_schema *b, const json_t *v, const json_t *list, int depth)
{
	const json_t *e;
	size_t i;
	int n = 0;

	json_array_foreach(list, i, e) n += dt_schema_valid(b, v, e, depth);
	return n;
}

bool dt_schema_valid(struct dt_schema *b, const json_t *v, const json_t *s, int depth)
{
	const json_t *k, *e;
	size_t i;

	if (json_is_boolean(s))
		return json_is_true(s);
	if (depth > MAX_DEPTH)
		dt_schema_fail(b, -E2BIG, "the schema's values are too deep");
	if (!dt_schema_work(b, 100))
		return false;
	dt_schema_check(b, s);
	if (b->rc < 0 || !valid_here(b, v, s, depth + 1))
		return false;
	k = json_object_get(s, "$ref");
	if (k && (!(k = dt_schema_resolve(b, json_string_value(k))) || !dt_schema_valid(b, v, k, depth + 1)))
		return false;
	json_array_foreach(json_object_get(s, "allOf"), i,
			   k) if (!dt_schema_valid(b, v, k, depth + 1)) return false;
	json_array_foreach(dt_schema_dependent(b, s), i, e) if (!how_many(b, v, e, depth + 1)) return false;
	k = json_object_get(s, "anyOf");
	if (k && !how_many(b, v, k, depth + 1))
		return false;
	k = json_object_get(s, "oneOf");
	if (k && how_many(b, v, k, depth + 1) != 1)
		return false;
	k = json_object_get(s, "not");
	return !(k && dt_schema_valid(b, v, k, depth + 1)) && b->rc == 0;
}

/* Whether v satisfies some schema of a `no`. */
static bool excluded(struct dt_schema *b, const json_t *v, const json_t *list, int64_t but)
{
	const json_t *e;
	size_t i;

	if (json_is_object(list))
		return dt_schema_valid(b, v, json_object_get(list, "not"), 0);
	json_array_foreach(list, i, e) if ((int64_t)i != but && dt_schema_valid(b, v, e, 0)) return true;
	return false;
}

bool dt_schema_meets(struct dt_schema *b, const json_t *v, const struct dt_conj *c)
{
	for (int i = 0; i < c->nleaf; i++)
		if (!valid_here(b, v, c->leaf[i], 0))
			return false;
	for (int i = 0; i < c->nno; i++)
		if (excluded(b, v, c->no[i].list, c->no[i].but))
			return false;
	return b->rc == 0;
}

const json_t *dt_schema_values(const struct dt_conj *c, const json_t **ret_one)
{
	const json_t *list = NULL;

	*ret_one = NULL;
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *e = json_object_get(c->leaf[i], "enum");

		*ret_one = json_object_get(c->leaf[i], "const");
		if (*ret_one)
			return NULL;
		if (e && (!list || json_array_size(e) < json_array_size(list)))
			list = e;
	}
	return list;
}

/* ---- two conjunctions together ---- */

static bool nothing_for(struct dt_schema *b, const struct dt_places *p, int depth);

/* Whether no listed value of this type satisfies c. */
static bool no_value(struct dt_schema *b, const struct dt_conj *c, int type)
{
	const json_t *one, *list = dt_schema_values(c, &one), *v;
	size_t i;

	if (one)
		return !(type_of(one) & type) || !dt_schema_meets(b, one, c);
	json_array_foreach(list, i, v) if ((type_of(v) & type) && dt_schema_meets(b, v, c)) return false;
	return true;
}

static bool no_object(struct dt_schema *b, const struct dt_conj *c, int depth)
{
	int64_t min, max;
	const json_t *k;
	size_t j;

	dt_schema_counts(c, "minProperties", "maxProperties", &min, &max);
	if (max >= 0 && max < min)
		return true;
	for (int i = 0; i < c->nleaf; i++)
		json_array_foreach(json_object_get(c->leaf[i], "required"), j, k)
		{
			struct dt_places p = {.n = 0};

			dt_schema_property(b, c, json_string_value(k), &p);
			if (nothing_for(b, &p, depth + 1))
				return true;
		}
	return false;
}

static bool no_array(struct dt_schema *b, const struct dt_conj *c, int depth)
{
	int64_t min, max;

	dt_schema_counts(c, "minItems", "maxItems", &min, &max);
	if (max >= 0 && max < min)
		return true;
	for (int64_t i = 0; i < min && i < 16; i++) {
		struct dt_places p = {.n = 0};

		dt_schema_item(b, c, i, &p);
		if (nothing_for(b, &p, depth + 1))
			return true;
	}
	return false;
}

/* Whether certainly no value of this type satisfies c. */
static bool nothing_of(struct dt_schema *b, const struct dt_conj *c, int type, int depth)
{
	const json_t *one, *list = dt_schema_values(c, &one);
	struct dt_numbers n;
	struct dt_auto *a;
	bool none;

	if (depth > 8 || !dt_schema_work(b, 1000))
		return false;
	if (one || list)
		return no_value(b, c, type);
	switch (type) {
	case DT_T_STRING:
		a = dt_schema_text_auto(b, c);
		none = a && a->nstate == 0;
		dt_auto_free(a);
		return none;
	case DT_T_INTEGER:
	case DT_T_NUMBER:
		return dt_schema_bounds(b, c, type == DT_T_INTEGER, &n) && n.has_lo && n.has_hi &&
		       n.lo > n.hi;
	case DT_T_ARRAY:
		return no_array(b, c, depth);
	case DT_T_OBJECT:
		return no_object(b, c, depth);
	default:
		return false;
	}
}

static bool nothing_for(struct dt_schema *b, const struct dt_places *p, int depth)
{
	struct dt_conjs all;
	bool none = true;

	dt_schema_flatten(b, p, &all);
	for (int i = 0; i < all.n && none; i++) {
		int types = dt_schema_given(&all.c[i]);

		for (int t = 1; t < DT_T_ALL && none; t *= 2)
			none = !(types & t) || nothing_of(b, &all.c[i], t, depth);
	}
	free(all.c);
	return none && b->rc == 0;
}

bool dt_schema_apart(struct dt_schema *b, const struct dt_conj *a, const struct dt_conj *c, int type,
		     bool closed, int depth)
{
	struct dt_conj both = *a;
	int types;

	if (a->nleaf + c->nleaf > DT_MAX_LEAF)
		return false;
	both.nno = 0; /* ignoring exclusions is safe: they can only remove values */
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *k, *required = json_object_get(c->leaf[i], "required");
		size_t j;

		both.leaf[both.nleaf++] = c->leaf[i];
		json_array_foreach(required, j, k) if (closed && type == DT_T_OBJECT &&
						       !dt_schema_named(a, json_string_value(k))) return true;
	}
	types = dt_schema_given(&both);
	return !(types & type) || nothing_of(b, &both, type, depth);
}
/* SPDX-License-Identifier: Apache-2.0 */
