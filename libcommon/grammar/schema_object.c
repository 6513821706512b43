/* Objects of a schema: properties in the order in which the schema names them, then others. */
#include "grammar/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SEQ	     DT_SEQ
#define MAX_OPTIONAL 200 /* max consecutive optional properties: each of them may come next */

static void add_pattern_schemas(struct dt_schema *b, const json_t *leaf, const char *name,
				struct dt_places *ret, bool *hit)
{
	const char *key;
	const json_t *v;

	json_object_foreach(json_object_get(leaf, "patternProperties"), key, v)
	{
		const struct dt_auto *a = dt_schema_pattern(b, key);

		if (a && dt_auto_accepts(a, name)) {
			dt_place(b, ret, v);
			*hit = true;
		}
	}
}

static bool name_allowed(struct dt_schema *b, const json_t *names, const char *name)
{
	json_t *v = json_string(name);
	bool ok = v && dt_schema_valid(b, v, names, 0);

	json_decref(v);
	return ok;
}

void dt_schema_property(struct dt_schema *b, const struct dt_conj *c, const char *name, struct dt_places *ret)
{
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *s = json_object_get(json_object_get(c->leaf[i], "properties"), name),
			     *more = json_object_get(c->leaf[i], "additionalProperties"),
			     *names = json_object_get(c->leaf[i], "propertyNames");
		bool hit = s != NULL;

		if (s)
			dt_place(b, ret, s);
		add_pattern_schemas(b, c->leaf[i], name, ret, &hit);
		if (!hit && more)
			dt_place(b, ret, more);
		if (names && !name_allowed(b, names, name))
			dt_place(b, ret, json_false());
	}
}

static bool among(const json_t *list, const char *name)
{
	const json_t *v;
	size_t i;

	json_array_foreach(list, i, v) if (!strcmp(json_string_value(v), name)) return true;
	return false;
}

static bool is_required(const struct dt_conj *c, const char *name)
{
	for (int i = 0; i < c->nleaf; i++)
		if (among(json_object_get(c->leaf[i], "required"), name))
			return true;
	return false;
}

bool dt_schema_named(const struct dt_conj *c, const char *name)
{
	for (int i = 0; i < c->nleaf; i++)
		if (json_object_get(json_object_get(c->leaf[i], "properties"), name))
			return true;
	return is_required(c, name);
}

/* ---- members in order ---- */

/* All names in properties and required. */
static const char **all_names(struct dt_schema *b, const struct dt_conj *c, int *ret_n)
{
	size_t most = 1;
	const char **name, *key;
	int n = 0;

	for (int i = 0; i < c->nleaf; i++)
		most += json_object_size(json_object_get(c->leaf[i], "properties")) +
			json_array_size(json_object_get(c->leaf[i], "required"));
	name = calloc(most, sizeof(*name));
	if (!name) {
		dt_schema_fail(b, -ENOMEM, "cannot read the schema: out of memory");
		return NULL;
	}
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *v;
		size_t j;

		json_object_foreach(json_object_get(c->leaf[i], "properties"), key, v)
		{
			int k = 0;

			while (k < n && strcmp(name[k], key))
				k++;
			name[k] = key;
			n += k == n;
			if (!dt_schema_work(b, k))
				break;
		}
		json_array_foreach(json_object_get(c->leaf[i], "required"), j, v)
		{
			int k = 0;

			while (k < n && strcmp(name[k], json_string_value(v)))
				k++;
			if (k == n)
				name[n++] = json_string_value(v);
			if (!dt_schema_work(b, k))
				break;
		}
	}
	*ret_n = n;
	return name;
}

struct members {
	const char **name;
	int n, other;	  /* other: rule of a member with another name, -1: none */
	int64_t min, max; /* number of properties; max -1: no limit */
	int most; /* counts 0 .. most are distinct states; larger ones are state most, unless max is set */
};

/*
 * Sets after[k]: what may follow k members of which all names are given. Others come last, so they are built
 * first. Names of others may be the same, so only the first counts for min. more: room for as many rules.
 */
static void others(struct dt_schema *b, const struct members *m, int *after, int *more)
{
	for (int k = 0; k <= m->most; k++) {
		after[k] = dt_gr_rule(b->g);
		more[k] = dt_gr_rule(b->g);
		dt_gr_alt(b->g, more[k], NULL, 0);
	}
	for (int k = 0; k <= m->most; k++) {
		struct dt_elem e[3] = {dt_gr_r(b->json.comma), dt_gr_r(m->other),
				       dt_gr_r(more[k < m->most ? k + 1 : k])};

		if (k >= m->min)
			dt_gr_alt(b->g, after[k], NULL, 0);
		if (m->other < 0 || (m->max >= 0 && k >= m->max))
			continue;
		if (k + 1 >= m->min)
			dt_gr_alt(b->g, after[k], e + !k, 3 - !k);
		dt_gr_alt(b->g, more[k], e, 3);
	}
}

/* Puts property i in front of what follows. */
static void one_more(struct dt_schema *b, const struct dt_conj *c, const struct members *m, int i, int *after,
		     int *now)
{
	struct dt_places place = {.n = 0};
	json_t *text = json_string(m->name[i]);
	const json_t *const name = text;
	int word = dt_schema_literals(b, &name, text != NULL), value;
	bool required = is_required(c, m->name[i]);

	json_decref(text);
	dt_schema_property(b, c, m->name[i], &place);
	value = dt_schema_rule(b, &place);
	for (int k = 0; k <= m->most; k++) {
		struct dt_elem e[5] = {dt_gr_r(b->json.comma), dt_gr_r(word), dt_gr_r(b->json.colon),
				       dt_gr_r(value), dt_gr_r(after[k < m->most ? k + 1 : k])};

		now[k] = dt_gr_rule(b->g);
		if (m->max < 0 || k < m->max)
			dt_gr_alt(b->g, now[k], e + !k, 5 - !k);
		if (!required)
			dt_gr_alt(b->g, now[k], SEQ(dt_gr_r(after[k])));
	}
	memcpy(after, now, ((size_t)m->most + 1) * sizeof(*after));
}

static void count(struct dt_schema *b, const struct dt_conj *c, struct members *m)
{
	int required = 0, run = 0;

	dt_schema_counts(c, "minProperties", "maxProperties", &m->min, &m->max);
	for (int i = 0; i < m->n; i++) {
		bool must = is_required(c, m->name[i]);

		required += must;
		run = must ? 0 : run + 1;
		if (run > MAX_OPTIONAL)
			dt_schema_fail(b, -ENOTSUP,
				       "the schema has more than %d properties one after another that "
				       "are not required, which is not supported",
				       MAX_OPTIONAL);
	}
	if (m->min <= required)
		m->min = 0;
	if (m->max >= m->n && m->other < 0)
		m->max = -1;
	if (m->other >= 0 && m->min > m->n + 1)
		dt_schema_fail(b, -ENOTSUP,
			       "the schema's 'minProperties' of more than one property without a name is "
			       "not supported");
	m->most = m->max >= 0 ? (int)m->max : m->min > 1 ? (int)m->min : 1;
	dt_schema_work(b, (int64_t)(m->n + 1) * (m->most + 1) * 20);
}

int dt_schema_object(struct dt_schema *b, const struct dt_conj *c)
{
	struct members m = {.name = NULL};
	int *after = NULL, *now = NULL, r = 0;

	m.name = all_names(b, c, &m.n);
	if (b->rc < 0)
		goto out;
	dt_schema_refuse_not(b, c, DT_T_OBJECT, dt_schema_closed(c, m.n));
	m.other = dt_schema_other(b, c, m.name, m.n);
	count(b, c, &m);
	after = calloc((size_t)m.most + 1, sizeof(*after));
	now = calloc((size_t)m.most + 1, sizeof(*now));
	if (!after || !now)
		dt_schema_fail(b, -ENOMEM, "cannot read the schema: out of memory");
	if (b->rc < 0)
		goto out;
	others(b, &m, after, now);
	for (int i = m.n; i-- > 0 && b->rc == 0;)
		one_more(b, c, &m, i, after, now);
	r = dt_gr_object(b->g, &b->json, after[0]);
out:
	free(m.name);
	free(after);
	free(now);
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
