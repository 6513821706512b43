/* Strings of a schema: formats, patterns and lengths as automata. */
#include "grammar/schema.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEQ    DT_SEQ
#define MAX_NO 8 /* max nested `not` */

/* ---- formats ---- */

#define DAY                                                                                                  \
	"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2["  \
	"0-8]"                                                                                               \
	"))"
#define CLOCK "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define BYTE  "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4  BYTE "\\." BYTE "\\." BYTE "\\." BYTE
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define H16   "[0-9A-Fa-f]{1,4}"
#define LS32  "(" H16 ":" H16 "|" IPV4 ")"
#define PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
#define NCHAR "([A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})" /* in a first segment without scheme */
#define QUERY "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
#define PART  "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
#define HOST  LABEL "(\\." LABEL "){0,7}"
#define URI   "[A-Za-z][A-Za-z0-9+.-]{0,15}:(//" HOST "(:[0-9]{1,5})?(/" PCHAR "*)*|/?" PCHAR "+(/" PCHAR "*)*)"

const char *dt_schema_format(const char *name)
{
	/* RFC 3339, without leap days and leap seconds. RFC 4122, 2673, 4291, 1123, 5321, 3986, 6901 */
	static const char *const known[][2] = {
		{"date", "^[0-9]{4}-" DAY "$"},
		{"time", "^" CLOCK "$"},
		{"date-time", "^[0-9]{4}-" DAY "T" CLOCK "$"},
		{"duration",
		 "^P([0-9]{1,4}W|[0-9]{1,4}Y([0-9]{1,4}M([0-9]{1,4}D)?)?(T[0-9]{1,4}H)?|[0-9]{1,4}M"
		 "([0-9]{1,4}D)?(T[0-9]{1,4}H)?|[0-9]{1,4}D(T[0-9]{1,4}H([0-9]{1,4}M)?)?|T([0-9]{1,4}H"
		 "([0-9]{1,4}M([0-9]{1,4}S)?)?|[0-9]{1,4}M([0-9]{1,4}S)?|[0-9]{1,4}S))$"},
		{"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
		{"ipv4", "^" IPV4 "$"},
		{"ipv6", "^((" H16 ":){6}" LS32 "|::(" H16 ":){5}" LS32 "|(" H16 ")?::(" H16 ":){4}" LS32
			 "|((" H16 ":){0,1}" H16 ")?::(" H16 ":){3}" LS32 "|((" H16 ":){0,2}" H16 ")?::(" H16
			 ":){2}" LS32 "|((" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|((" H16 ":){0,4}" H16
			 ")?::" LS32 "|((" H16 ":){0,5}" H16 ")?::" H16 "|((" H16 ":){0,6}" H16 ")?::)$"},
		{"hostname", "^" HOST "$"},
		{"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+){0,7}@" LABEL "(\\." LABEL "){1,7}$"},
		{"uri", "^" URI QUERY PART "$"},
		{"uri-reference", "^(" URI "|(/" PCHAR "+|" NCHAR "+)(/" PCHAR "*)*)" QUERY PART "$"},
		{"json-pointer", "^(/([^/~\\x00-\\x1f]|~[01])*)*$"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(name, known[i][0]))
			return known[i][1];
	return NULL;
}

/* ---- automata of texts ---- */

bool dt_schema_good(struct dt_schema *b, int rc)
{
	if (rc == -ENOMEM)
		dt_schema_fail(b, rc, "cannot read the schema: out of memory");
	else if (rc < 0)
		dt_schema_fail(
			b, rc,
			"the schema is too large: its patterns, lengths and numbers together are more than "
			"can be followed");
	return rc >= 0 && b->rc == 0;
}

const struct dt_auto *dt_schema_pattern(struct dt_schema *b, const char *pattern)
{
	struct dt_auto *a = NULL;
	struct dt_err err;
	int rc;

	for (int i = 0; i < b->npattern; i++)
		if (b->pattern[i].text == pattern || !strcmp(b->pattern[i].text, pattern))
			return b->pattern[i].a;
	if (!dt_schema_room(b, (void **)&b->pattern, b->npattern, &b->pattern_cap, sizeof(*b->pattern)) ||
	    !dt_schema_work(b, (int64_t)strlen(pattern)))
		return NULL;
	if (strlen(pattern) > 4096) {
		dt_schema_fail(b, -E2BIG, "the schema's pattern is too large");
		return NULL;
	}
	rc = dt_auto_regex(pattern, &b->work, &a, &err);
	if (rc < 0) {
		dt_schema_fail(b, rc, "%s", err.msg);
		return NULL;
	}
	b->pattern[b->npattern].text = pattern;
	b->pattern[b->npattern++].a = a;
	return a;
}

void dt_schema_combine(struct dt_schema *b, struct dt_auto **a, const struct dt_auto *x, bool minus)
{
	struct dt_auto *r = NULL;

	if (!x || b->rc < 0 || (!*a && !dt_schema_good(b, dt_auto_length(0, -1, &b->work, a))))
		return;
	if (dt_schema_good(b, dt_auto_product(*a, x, minus, &b->work, &r))) {
		dt_auto_free(*a);
		*a = r;
	}
}

static const char *whole(struct dt_schema *b, const json_t *v)
{
	if (strlen(json_string_value(v)) != json_string_length(v))
		dt_schema_fail(b, -ENOTSUP, DT_SCHEMA_NUL);
	return json_string_value(v);
}

/* The automaton of the listed texts that satisfy c. */
static struct dt_auto *listed(struct dt_schema *b, const struct dt_conj *c, const json_t *one,
			      const json_t *list)
{
	const char **word = calloc(json_array_size(list) + 1, sizeof(*word));
	struct dt_auto *a = NULL;
	const json_t *v;
	size_t i;
	int n = 0;

	if (!word) {
		dt_schema_good(b, -ENOMEM);
		return NULL;
	}
	if (json_is_string(one) && dt_schema_meets(b, one, c))
		word[n++] = whole(b, one);
	json_array_foreach(list, i, v) if (json_is_string(v) && dt_schema_meets(b, v, c)) word[n++] =
		whole(b, v);
	dt_schema_good(b, dt_auto_words(word, n, &b->work, &a));
	free(word);
	return a;
}

/* The automaton of the lengths, which has a state for each. */
static bool lengths(struct dt_schema *b, int64_t min, int64_t max, struct dt_auto **ret)
{
	if (min > DT_GR_CHAIN || max > DT_GR_CHAIN) {
		dt_schema_fail(
			b, -ENOTSUP,
			"the schema's 'minLength' or 'maxLength' above %d is not supported for property "
			"names or with 'pattern', 'format' or 'not'",
			DT_GR_CHAIN);
		return false;
	}
	return dt_schema_good(b, dt_auto_length(min, max, &b->work, ret));
}

/* As dt_schema_text_auto; NULL and !b->rc: any text of min to max (-1: no limit) characters. */
static struct dt_auto *narrowed(struct dt_schema *b, const struct dt_conj *c, int64_t *min, int64_t *max);

struct dt_auto *dt_schema_text_auto(struct dt_schema *b, const struct dt_conj *c)
{
	const json_t *one, *list = dt_schema_values(c, &one);
	struct dt_auto *a;
	int64_t min, max;

	if (one || list)
		return listed(b, c, one, list);
	a = narrowed(b, c, &min, &max);
	if (!a && b->rc == 0)
		lengths(b, min, max, &a);
	return a;
}

/* Removes from *a the texts that satisfy s. */
static void take_away(struct dt_schema *b, struct dt_auto **a, const json_t *s)
{
	struct dt_places p = {.s = {s}, .n = 1};
	struct dt_conjs all;

	if (++b->depth > MAX_NO)
		dt_schema_fail(b, -ENOTSUP, "the schema's 'not' within 'not' is not supported so deep");
	dt_schema_flatten(b, &p, &all);
	for (int i = 0; i < all.n && b->rc == 0; i++) {
		struct dt_auto *x;

		if (!(dt_schema_given(&all.c[i]) & DT_T_STRING))
			continue;
		x = dt_schema_text_auto(b, &all.c[i]);
		dt_schema_combine(b, a, x, true);
		dt_auto_free(x);
	}
	free(all.c);
	b->depth--;
}

static struct dt_auto *narrowed(struct dt_schema *b, const struct dt_conj *c, int64_t *min, int64_t *max)
{
	struct dt_auto *a = NULL, *len = NULL;
	const json_t *s;

	dt_schema_counts(c, "minLength", "maxLength", min, max);
	for (int i = 0; i < c->nleaf && b->rc == 0; i++) {
		const char *pattern = json_string_value(json_object_get(c->leaf[i], "pattern")),
			   *format = json_string_value(json_object_get(c->leaf[i], "format"));

		if (pattern)
			dt_schema_combine(b, &a, dt_schema_pattern(b, pattern), false);
		if (format)
			dt_schema_combine(b, &a, dt_schema_pattern(b, dt_schema_format(format)), false);
	}
	for (int i = 0; i < c->nno; i++) {
		size_t at = 0;

		while (b->rc == 0 && (s = dt_schema_no(c->no[i].list, c->no[i].but, &at)))
			take_away(b, &a, s);
	}
	if (a && (*min > 0 || *max >= 0) && lengths(b, *min, *max, &len))
		dt_schema_combine(b, &a, len, false);
	dt_auto_free(len);
	if (b->rc < 0) {
		dt_auto_free(a);
		return NULL;
	}
	return a;
}

/* ---- strings ---- */

/* Rules of a number of characters, built once: of exactly that many or (fewer) of at most that many. */
static int chain(struct dt_schema *b, int **rule, int *n, int64_t want, bool fewer)
{
	if (want >= *n) {
		int *p = realloc(*rule, ((size_t)want + 1) * sizeof(*p));

		if (!p || !dt_schema_work(b, 10 * want)) {
			dt_schema_good(b, p ? -E2BIG : -ENOMEM);
			return 0;
		}
		*rule = p;
	}
	for (; *n <= want; ++*n) {
		int r = (*rule)[*n] = dt_gr_rule(b->g);

		if (*n > 0)
			dt_gr_alt(b->g, r,
				  SEQ(dt_gr_r(b->json.character),
				      dt_gr_characters((*rule)[*n - 1], *n - 1, !fewer)));
		if (*n == 0 || fewer)
			dt_gr_alt(b->g, r, NULL, 0);
	}
	return (*rule)[want];
}

int dt_schema_string(struct dt_schema *b, const struct dt_conj *c)
{
	int64_t min, max;
	struct dt_auto *a = narrowed(b, c, &min, &max);
	struct dt_elem quote = dt_gr_byte(b->g, '"');
	int r = dt_gr_rule(b->g), first, rest = r;

	if (b->rc < 0)
		return r;
	if (a) {
		if (a->nstate > 0)
			dt_gr_alt(b->g, r, SEQ(quote, dt_gr_r(dt_schema_emit(b, a)), quote));
		dt_auto_free(a);
		return r;
	}
	if (max >= 0 && max < min)
		return r;
	if (min == 0 && max < 0)
		return b->json.string;
	if (min > DT_GR_CHAIN || max > DT_GR_CHAIN) {
		if (dt_schema_work(b, 10 * dt_gr_many_rules(min, max)))
			rest = dt_gr_many(b->g, dt_gr_r(b->json.character), (int)min, (int)max);
		dt_gr_alt(b->g, r, SEQ(quote, dt_gr_r(rest), quote));
		return r;
	}
	first = chain(b, &b->exact, &b->nexact, min, false);
	rest = max < 0 ? b->json.characters : chain(b, &b->most, &b->nmost, max - min, true);
	dt_gr_alt(b->g, r,
		  SEQ(quote, dt_gr_r(first), dt_gr_characters(rest, max < 0 ? -1 : max - min, false), quote));
	return r;
}
/* SPDX-License-Identifier: Apache-2.0 */
