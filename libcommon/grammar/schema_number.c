/* Numbers of a schema: their bounds and multiples in decimal. */
#include "grammar/schema.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEQ DT_SEQ

bool dt_schema_decimal(const json_t *v, __int128 *ret)
{
	double x = json_number_value(v);
	char text[64], *e;
	__int128 u = 0;
	int exp, places = 0;
	bool point = false;

	if (json_is_integer(v)) {
		*ret = (__int128)json_integer_value(v);
		for (int i = 0; i < DT_DECIMALS; i++)
			*ret *= 10;
		return true;
	}
	*ret = x < 0 ? -1 : 1;
	if (!(fabs(x) < 1e19))
		return false;
	for (int digits = 15; digits <= 17; digits++) { /* the shortest text that reads back as this number */
		snprintf(text, sizeof(text), "%.*e", digits - 1, x);
		if (strtod(text, NULL) == x)
			break;
	}
	e = strchr(text, 'e');
	exp = (int)strtol(e + 1, NULL, 10);
	while (e[-1] == '0')
		e--;
	for (char *p = text; p < e; p++) {
		point |= *p == '.';
		if (*p < '0' || *p > '9')
			continue;
		u = u * 10 + (*p - '0');
		places += point;
	}
	if (u == 0)
		exp = places = 0;
	if (places - exp > DT_DECIMALS)
		return false;
	for (int i = places - exp; i < DT_DECIMALS; i++)
		u *= 10;
	*ret = x < 0 ? -u : u;
	return true;
}

/* The largest number of units of 10^-DT_DECIMALS below x, |x| < 10^19. */
static __int128 units_below(long double x)
{
	const __int128 one = 1000000000000000;
	int e;
	__int128 m = (__int128)ldexpl(frexpl(x, &e), 64) * one; /* x = m / one * 2^(e - 64) */

	e = 64 - e;
	return e >= 127 ? (m > 0 ? 0 : -1) : (m - 1) >> e;
}

/*
 * The outermost decimal inside an exclusive bound x = v whose double differs from v. All decimals further
 * inside differ too, because rounding preserves order; 99.999999999999999, for example, would be read as 100.
 */
static __int128 inside(__int128 x, double v, bool upper)
{
	long double half = ((long double)v + nextafter(v, upper ? -INFINITY : INFINITY)) / 2;
	__int128 next = upper ? units_below(half) : -units_below(-half);

	if (upper)
		return next < x - 1 ? next : x - 1;
	return next > x + 1 ? next : x + 1;
}

static void bound(struct dt_schema *b, const json_t *v, const char *key, bool upper, int exclusive,
		  struct dt_numbers *n)
{
	bool *has = upper ? &n->has_hi : &n->has_lo;
	__int128 x, *have = upper ? &n->hi : &n->lo;

	if (!v)
		return;
	if (!dt_schema_decimal(v, &x)) {
		if (fabs(json_number_value(v)) < 1e19)
			dt_schema_fail(b, -ENOTSUP,
				       "the schema's '%s' has more than %d decimals, which is not "
				       "supported",
				       key, DT_DECIMALS);
		if (upper == (x > 0)) /* beyond all numbers that are generated */
			return;
		for (int i = 0; i < DT_DECIMALS + 19; i++)
			x *= 10;
		x += exclusive * (upper ? -1 : 1);
	} else if (exclusive) {
		x = n->integer ? x + (upper ? -1 : 1) : inside(x, json_number_value(v), upper);
	}
	*have = !*has ? x : upper == (x < *have) ? x : *have;
	*has = true;
}

bool dt_schema_bounds(struct dt_schema *b, const struct dt_conj *c, bool integer, struct dt_numbers *n)
{
	bool any = false;

	*n = (struct dt_numbers){.integer = integer};
	for (int i = 0; i < c->nleaf; i++)
		for (int k = 0; k < 4; k++) {
			static const char *const key[] = {"minimum", "exclusiveMinimum", "maximum",
							  "exclusiveMaximum"};
			const json_t *v = json_object_get(c->leaf[i], key[k]);

			any |= v != NULL;
			bound(b, v, key[k], k >= 2, k % 2, n);
		}
	return any;
}

int dt_schema_number(struct dt_schema *b, const struct dt_conj *c, bool integer)
{
	int r = dt_gr_rule(b->g);
	struct dt_auto *all = NULL, *a = NULL;
	struct dt_numbers n;
	bool any = dt_schema_bounds(b, c, integer, &n);

	for (int i = 0; i < c->nleaf && b->rc == 0; i++) {
		const json_t *step = json_object_get(c->leaf[i], "multipleOf");
		int rc;

		if (!step)
			continue;
		any = true;
		if (!dt_schema_decimal(step, &n.step))
			dt_schema_fail(b, -ENOTSUP,
				       "the schema's 'multipleOf' has more than %d decimals, which is not "
				       "supported",
				       DT_DECIMALS);
		else if ((rc = dt_auto_numbers(&n, &b->work, &a)) == -E2BIG)
			dt_schema_fail(b, -ENOTSUP,
				       "the schema's 'multipleOf' has too many digits to be followed");
		else if (dt_schema_good(b, rc)) {
			dt_schema_combine(b, &all, a, false);
			dt_auto_free(a);
		}
	}
	if (!any)
		return integer ? b->json.integer : b->json.number;
	n.step = 0;
	if (!all && b->rc == 0)
		dt_schema_good(b, dt_auto_numbers(&n, &b->work, &all));
	if (b->rc == 0 && all->nstate > 0)
		dt_gr_alt(b->g, r, SEQ(dt_gr_r(dt_schema_emit(b, all))));
	dt_auto_free(all);
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
