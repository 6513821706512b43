/* Members of an object whose names the schema does not give. */
#include "grammar/schema.h"

#include <errno.h>
#include <string.h>

#define SEQ	     DT_SEQ
#define MAX_PATTERNS 4 /* max patternProperties: every subset of them is a separate kind of name */

bool dt_schema_closed(const struct dt_conj *c, int n)
{
	bool closed = false, never = false;
	int64_t min, max;

	for (int i = 0; i < c->nleaf; i++) {
		const json_t *more = json_object_get(c->leaf[i], "additionalProperties");

		if (json_object_get(c->leaf[i], "patternProperties") || (more && !json_is_false(more)))
			return false;
		never |= json_is_false(more);
		closed |= json_object_size(json_object_get(c->leaf[i], "properties")) > 0 ||
			  json_array_size(json_object_get(c->leaf[i], "required")) > 0;
	}
	dt_schema_counts(c, "minProperties", "maxProperties", &min, &max);
	return never || (closed && min <= n);
}

struct patterns {
	const char *text[MAX_PATTERNS];
	int n;
};

static void collect(struct dt_schema *b, const struct dt_conj *c, struct patterns *p)
{
	for (int i = 0; i < c->nleaf; i++) {
		const char *key;
		const json_t *v;

		json_object_foreach(json_object_get(c->leaf[i], "patternProperties"), key, v)
		{
			int k = 0;

			while (k < p->n && strcmp(p->text[k], key))
				k++;
			if (k == MAX_PATTERNS) {
				dt_schema_fail(b, -ENOTSUP,
					       "the schema has more than %d 'patternProperties' for one "
					       "object, which is not supported",
					       MAX_PATTERNS);
				return;
			}
			p->text[k] = key;
			p->n += k == p->n;
		}
	}
}

/* Collects the schemas for names that match exactly this set of patterns. */
static void schemas_of(struct dt_schema *b, const struct dt_conj *c, const struct patterns *p, int set,
		       struct dt_places *ret)
{
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *mine = json_object_get(c->leaf[i], "patternProperties"),
			     *more = json_object_get(c->leaf[i], "additionalProperties");
		bool hit = false;

		for (int k = 0; k < p->n; k++) {
			const json_t *s = set >> k & 1 ? json_object_get(mine, p->text[k]) : NULL;

			if (s)
				dt_place(b, ret, s);
			hit |= s != NULL;
		}
		if (!hit && more)
			dt_place(b, ret, more);
	}
}

static void narrow(struct dt_schema *b, struct dt_auto **a, const struct dt_auto *x, bool minus)
{
	struct dt_auto *r = NULL;
	int rc = x && b->rc == 0 ? dt_auto_product(*a, x, minus, &b->work, &r) : 0;

	if (rc < 0)
		dt_schema_fail(b, rc, "the schema is too large: its names of properties cannot be followed");
	if (r) {
		dt_auto_free(*a);
		*a = r;
	}
}

/* A rule for quoted names that match exactly this set of patterns and are none of the n given. */
static int names_of(struct dt_schema *b, const struct dt_conj *c, const struct patterns *p, int set,
		    const char *const *given, int n)
{
	struct dt_auto *a = NULL, *words = NULL;
	int r = dt_gr_rule(b->g);
	bool plain = p->n == 0 && n == 0;

	for (int i = 0; i < c->nleaf; i++)
		plain &= !json_object_get(c->leaf[i], "propertyNames");
	if (plain)
		return b->json.string;
	if (dt_auto_length(0, -1, &b->work, &a) < 0 || dt_auto_words(given, n, &b->work, &words) < 0) {
		dt_schema_fail(b, -E2BIG,
			       "the schema is too large: its names of properties cannot be followed");
		dt_auto_free(a);
		return r;
	}
	narrow(b, &a, words, true);
	for (int k = 0; k < p->n; k++)
		narrow(b, &a, dt_schema_pattern(b, p->text[k]), !(set >> k & 1));
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *names = json_object_get(c->leaf[i], "propertyNames");
		struct dt_places place = {.s = {names}, .n = 1};
		struct dt_auto *any = NULL, *rest = NULL;
		struct dt_conjs all;

		if (!names || b->rc < 0)
			continue;
		/* a name must satisfy one of the conjunctions: remove those that satisfy none */
		dt_schema_flatten(b, &place, &all);
		if (dt_auto_length(0, -1, &b->work, &any) == 0 && dt_auto_length(0, -1, &b->work, &rest) == 0)
			for (int k = 0; k < all.n && b->rc == 0; k++) {
				struct dt_auto *one = dt_schema_given(&all.c[k]) & DT_T_STRING
							      ? dt_schema_text_auto(b, &all.c[k])
							      : NULL;

				narrow(b, &rest, one, true);
				dt_auto_free(one);
			}
		narrow(b, &a, rest, true);
		dt_auto_free(any);
		dt_auto_free(rest);
		free(all.c);
	}
	if (b->rc == 0 && a->nstate > 0) {
		struct dt_elem quote = dt_gr_byte(b->g, '"');

		dt_gr_alt(b->g, r, SEQ(quote, dt_gr_r(dt_schema_emit(b, a)), quote));
	}
	dt_auto_free(a);
	dt_auto_free(words);
	return r;
}

int dt_schema_other(struct dt_schema *b, const struct dt_conj *c, const char *const *given, int n)
{
	struct patterns p = {.n = 0};
	bool open;
	int r;

	if (dt_schema_closed(c, n))
		return -1;
	collect(b, c, &p);
	r = dt_gr_rule(b->g);
	open = p.n == 0;
	for (int i = 0; i < c->nleaf; i++) {
		const json_t *more = json_object_get(c->leaf[i], "additionalProperties");

		open |= more && !json_is_false(more);
	}
	for (int set = !open; set < 1 << p.n && b->rc == 0; set++) {
		struct dt_places place = {.n = 0};
		int value, name;

		schemas_of(b, c, &p, set, &place);
		value = dt_schema_rule(b, &place);
		name = names_of(b, c, &p, set, given, n);
		dt_gr_alt(b->g, r, SEQ(dt_gr_r(name), dt_gr_r(b->json.colon), dt_gr_r(value)));
	}
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
