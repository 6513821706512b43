/* Resolves $ref, allOf, anyOf and oneOf of a place into conjunctions. */
#include "grammar/schema.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CONJS  2048
#define MAX_CHOICE 16
#define MAX_PLACE  64 /* max nested $ref and allOf */

struct flat {
	struct dt_conj now;
	struct {
		const json_t *s;
		int depth;
	} todo[2 * DT_MAX_LEAF];
	struct {
		const json_t *list;
		int depth;
		bool one;
	} choice[MAX_CHOICE];
	int ntodo, nchoice;
};

static void push(struct dt_schema *b, struct flat *f, const json_t *s, int depth)
{
	if (depth > MAX_PLACE)
		dt_schema_fail(b, -EINVAL, "the schema refers to itself without end, or is too deep");
	else if (f->ntodo == 2 * DT_MAX_LEAF)
		dt_schema_fail(b, -E2BIG, "the schema has too many schemas for one place");
	if (b->rc == 0) {
		f->todo[f->ntodo].s = s;
		f->todo[f->ntodo++].depth = depth;
	}
}

static void add_choice(struct dt_schema *b, struct flat *f, const json_t *list, bool one, int depth)
{
	if (!list)
		return;
	if (f->nchoice == MAX_CHOICE) {
		dt_schema_fail(b, -E2BIG, "the schema has too many choices for one place");
		return;
	}
	f->choice[f->nchoice].list = list;
	f->choice[f->nchoice].depth = depth;
	f->choice[f->nchoice++].one = one;
}

static void add_not(struct dt_schema *b, struct flat *f, const json_t *list, int64_t but)
{
	if (f->now.nno == DT_MAX_NOT) {
		dt_schema_fail(b, -E2BIG, "the schema has too many of 'not' and 'oneOf' for one place");
		return;
	}
	f->now.no[f->now.nno].list = list;
	f->now.no[f->now.nno++].but = but;
}

/* Adds one schema to the conjunction; false: no value satisfies it. */
static bool follow(struct dt_schema *b, struct flat *f, const json_t *s, int depth)
{
	const json_t *v, *e;
	size_t i;

	if (json_is_boolean(s))
		return json_is_true(s);
	if (!json_is_object(s)) {
		dt_schema_fail(b, -EINVAL, "a schema is an object, or true or false");
		return false;
	}
	dt_schema_check(b, s);
	if (b->rc < 0)
		return false;
	if (dt_schema_holds(s)) {
		int k = 0;

		while (k < f->now.nleaf && f->now.leaf[k] != s)
			k++;
		if (k == DT_MAX_LEAF)
			dt_schema_fail(b, -E2BIG, "the schema has too many schemas for one place");
		else if (k == f->now.nleaf)
			f->now.leaf[f->now.nleaf++] = s;
	}
	v = json_object_get(s, "$ref");
	if (v && (v = dt_schema_resolve(b, json_string_value(v))))
		push(b, f, v, depth + 1);
	for (i = json_array_size(json_object_get(s, "allOf")); i-- > 0;) /* the first is followed first */
		push(b, f, json_array_get(json_object_get(s, "allOf"), i), depth + 1);
	add_choice(b, f, json_object_get(s, "anyOf"), false, depth + 1);
	add_choice(b, f, json_object_get(s, "oneOf"), true, depth + 1);
	json_array_foreach(dt_schema_dependent(b, s), i, e) add_choice(b, f, e, false, depth + 1);
	if (json_object_get(s, "not"))
		add_not(b, f, s, -1);
	return b->rc == 0;
}

static void flatten(struct dt_schema *b, const struct flat *from, struct dt_conjs *ret)
{
	struct flat *f;
	const json_t *v;
	size_t i;

	if (!dt_schema_work(b, 200))
		return;
	f = malloc(sizeof(*f));
	if (!f) {
		dt_schema_fail(b, -ENOMEM, "cannot read the schema: out of memory");
		return;
	}
	*f = *from;
	while (f->ntodo > 0 && b->rc == 0) {
		const json_t *s = f->todo[--f->ntodo].s;

		if (!follow(b, f, s, f->todo[f->ntodo].depth))
			goto out;
	}
	if (b->rc < 0)
		goto out;
	if (f->nchoice > 0) {
		int k = --f->nchoice, nno = f->now.nno;

		json_array_foreach(f->choice[k].list, i, v)
		{
			f->ntodo = 0; /* the recursive call works on a copy */
			f->now.nno = nno;
			push(b, f, v, f->choice[k].depth);
			if (f->choice[k].one && json_array_size(f->choice[k].list) > 1)
				add_not(b, f, f->choice[k].list, (int64_t)i);
			if (b->rc < 0)
				break;
			flatten(b, f, ret);
		}
		goto out;
	}
	if (ret->n == MAX_CONJS)
		dt_schema_fail(b, -E2BIG, "the schema has too many choices that multiply in one place");
	else if (dt_schema_room(b, (void **)&ret->c, ret->n, &ret->cap, sizeof(*ret->c)))
		ret->c[ret->n++] = f->now;
out:
	free(f);
}

void dt_schema_flatten(struct dt_schema *b, const struct dt_places *p, struct dt_conjs *ret)
{
	struct flat *f = calloc(1, sizeof(*f));

	*ret = (struct dt_conjs){0};
	if (!f) {
		dt_schema_fail(b, -ENOMEM, "cannot read the schema: out of memory");
		return;
	}
	for (int i = p->n; i-- > 0;)
		push(b, f, p->s[i], 0);
	if (b->rc == 0)
		flatten(b, f, ret);
	free(f);
}
/* SPDX-License-Identifier: Apache-2.0 */
