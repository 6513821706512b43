/* Arrays of a schema. */
#include "grammar/schema.h"

#include <errno.h>
#include <stdlib.h>

#define SEQ	   DT_SEQ
#define MAX_UNIQUE 12 /* max possible values of unique items: every set of them is a rule */

void dt_schema_counts(const struct dt_conj *c, const char *min_key, const char *max_key, int64_t *min,
		      int64_t *max)
{
	*min = 0;
	*max = -1;
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *lo = json_object_get(c->leaf[i], min_key),
			     *hi = json_object_get(c->leaf[i], max_key);

		if (lo && json_integer_value(lo) > *min)
			*min = json_integer_value(lo);
		if (hi && (*max < 0 || json_integer_value(hi) < *max))
			*max = json_integer_value(hi);
	}
}

void dt_schema_item(struct dt_schema *b, const struct dt_conj *c, int64_t at, struct dt_places *ret)
{
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *prefix = json_object_get(c->leaf[i], "prefixItems"),
			     *items = json_object_get(c->leaf[i], "items");

		if (at < (int64_t)json_array_size(prefix))
			dt_place(b, ret, json_array_get(prefix, (size_t)at));
		else if (items)
			dt_place(b, ret, items);
	}
}

/* Unique items: a rule for each set of values used so far. */
static int unique(struct dt_schema *b, const struct dt_conj *c, int64_t min, int64_t max)
{
	const json_t *value[MAX_UNIQUE];
	int word[MAX_UNIQUE], n, first;
	struct dt_places p = {.n = 0};

	dt_schema_item(b, c, 0, &p);
	n = dt_schema_finite(b, &p, MAX_UNIQUE, value);
	if (n < 0) {
		dt_schema_fail(b, -ENOTSUP,
			       "the schema's 'uniqueItems' of other than at most %d listed values is "
			       "not supported",
			       MAX_UNIQUE);
		return 0;
	}
	for (int i = 0; i < n; i++)
		word[i] = dt_schema_literals(b, &value[i], 1);
	first = dt_gr_rule(b->g);
	for (int set = 1; set < 1 << n; set++)
		dt_gr_rule(b->g);
	for (int set = 0; set < 1 << n && dt_schema_work(b, 20 * n); set++) {
		int count = __builtin_popcount((unsigned)set);

		if (count >= min)
			dt_gr_alt(b->g, first + set, NULL, 0);
		for (int i = 0; i < n && (max < 0 || count < max); i++) {
			struct dt_elem e[3] = {dt_gr_r(b->json.comma), dt_gr_r(word[i]),
					       dt_gr_r(first + (set | 1 << i))};

			if (!(set >> i & 1))
				dt_gr_alt(b->g, first + set, e + !set, 3 - !set);
		}
	}
	return first;
}

/* Items of a rule with commas between them. */
static int separated(struct dt_schema *b, int item, int min, int max)
{
	int more, r;

	if (min <= DT_GR_CHAIN && max <= DT_GR_CHAIN)
		return dt_gr_repeat(b->g, dt_gr_r(item), b->json.comma, min, max);
	more = dt_gr_rule(b->g);
	dt_gr_alt(b->g, more, SEQ(dt_gr_r(b->json.comma), dt_gr_r(item)));
	more = dt_gr_many(b->g, dt_gr_r(more), min > 0 ? min - 1 : 0, max < 0 ? -1 : max - 1);
	r = dt_gr_rule(b->g);
	dt_gr_alt(b->g, r, SEQ(dt_gr_r(item), dt_gr_r(more)));
	if (min == 0)
		dt_gr_alt(b->g, r, NULL, 0);
	return r;
}

static int items(struct dt_schema *b, const struct dt_conj *c, int64_t min, int64_t max)
{
	int64_t prefix = 0;
	int after, rest;
	struct dt_places p = {.n = 0};

	for (int i = 0; i < c->nleaf; i++) {
		int64_t n = (int64_t)json_array_size(json_object_get(c->leaf[i], "prefixItems"));

		prefix = n > prefix ? n : prefix;
	}
	if (max >= 0 && prefix > max)
		prefix = max;
	dt_schema_item(b, c, prefix, &p);
	rest = dt_schema_rule(b, &p);
	if (!dt_schema_work(b, 20 * dt_gr_many_rules(min, max)))
		return 0;
	/* the items after the prefix: a comma before each, unless the prefix is empty */
	if (prefix == 0)
		return separated(b, rest, (int)min, (int)max);
	after = dt_gr_rule(b->g);
	dt_gr_alt(b->g, after, SEQ(dt_gr_r(b->json.comma), dt_gr_r(rest)));
	after = dt_gr_many(b->g, dt_gr_r(after), (int)(min > prefix ? min - prefix : 0),
			   (int)(max < 0 ? -1 : max - prefix));
	for (int64_t i = prefix; i-- > 0 && b->rc == 0;) {
		int r = dt_gr_rule(b->g);
		struct dt_elem e[3] = {dt_gr_r(b->json.comma)};

		p.n = 0;
		dt_schema_item(b, c, i, &p);
		e[1] = dt_gr_r(dt_schema_rule(b, &p));
		e[2] = dt_gr_r(after);
		dt_gr_alt(b->g, r, e + (i == 0), 3 - (i == 0));
		if (i >= min)
			dt_gr_alt(b->g, r, NULL, 0);
		after = r;
	}
	return after;
}

int dt_schema_array(struct dt_schema *b, const struct dt_conj *c)
{
	int64_t min, max;
	bool differ = false;

	dt_schema_refuse_not(b, c, DT_T_ARRAY, false);
	dt_schema_counts(c, "minItems", "maxItems", &min, &max);
	for (int i = 0; i < c->nleaf; i++)
		differ |= json_is_true(json_object_get(c->leaf[i], "uniqueItems"));
	if (b->rc < 0 || (max >= 0 && max < min))
		return dt_gr_rule(b->g);
	differ &= max < 0 || max > 1;
	for (int i = 0; i < c->nleaf && differ; i++)
		if (json_object_get(c->leaf[i], "prefixItems"))
			dt_schema_fail(b, -ENOTSUP,
				       "the schema's 'uniqueItems' with 'prefixItems' is not supported");
	return dt_gr_array(b->g, &b->json, differ ? unique(b, c, min, max) : items(b, c, min, max));
}
/* SPDX-License-Identifier: Apache-2.0 */
