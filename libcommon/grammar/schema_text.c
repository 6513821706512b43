/* Strings, numbers and listed values of a schema, as automata and as rules. */
#include "grammar/schema.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEQ	  DT_SEQ
#define MAX_ELEMS (1 << 20)
#define MAX_SETS  256 /* sets of characters of one automaton that are remembered */
#define MAX_NO	  8   /* not in not */

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
#define QUERY "(\\?([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
#define PART  "(#([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*)?"
#define HOST  LABEL "(\\." LABEL "){0,7}"

const char *dt_schema_format(const char *name)
{
	/* RFC 3339; a leap day or second is not written. RFC 4122, 2673, 4291, 1123, 5321, 3986, 6901 */
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
		{"uri", "^[A-Za-z][A-Za-z0-9+.-]{0,15}:(//" HOST "(:[0-9]{1,5})?(/" PCHAR "*)*|/?" PCHAR
			"+(/" PCHAR "*)*)" QUERY PART "$"},
		{"uri-reference", "^(/?" PCHAR "+(/" PCHAR "*)*|[A-Za-z][A-Za-z0-9+.-]{0,15}://" HOST
				  "(/" PCHAR "*)*)" QUERY PART "$"},
		{"json-pointer", "^(/([^/~\\x00-\\x1f]|~[01])*)*$"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(name, known[i][0]))
			return known[i][1];
	return NULL;
}

/* ---- automata of texts ---- */

/* What an automaton's function answered. */
static bool good(struct dt_schema *b, int rc)
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

/* *a = *a and x, or and not x; *a NULL: anything. */
static void combine(struct dt_schema *b, struct dt_auto **a, const struct dt_auto *x, bool minus)
{
	struct dt_auto *r = NULL;

	if (!x || b->rc < 0 || (!*a && !good(b, dt_auto_length(0, -1, &b->work, a))))
		return;
	if (good(b, dt_auto_product(*a, x, minus, &b->work, &r))) {
		dt_auto_free(*a);
		*a = r;
	}
}

/* Listed texts that meet c. */
static struct dt_auto *listed(struct dt_schema *b, const struct dt_conj *c, const json_t *one,
			      const json_t *list)
{
	const char **word = calloc(json_array_size(list) + 1, sizeof(*word));
	struct dt_auto *a = NULL;
	const json_t *v;
	size_t i;
	int n = 0;

	if (!word) {
		good(b, -ENOMEM);
		return NULL;
	}
	if (json_is_string(one) && dt_schema_meets(b, one, c))
		word[n++] = json_string_value(one);
	json_array_foreach(list, i, v) if (json_is_string(v) && dt_schema_meets(b, v, c)) word[n++] =
		json_string_value(v);
	good(b, dt_auto_words(word, n, &b->work, &a));
	free(word);
	return a;
}

struct dt_auto *dt_schema_text_auto(struct dt_schema *b, const struct dt_conj *c)
{
	const json_t *one, *list = dt_schema_values(c, &one);
	struct dt_auto *a;
	int64_t min, max;

	if (one || list)
		return listed(b, c, one, list);
	a = dt_schema_text(b, c, &min, &max);
	if (!a && b->rc == 0)
		good(b, dt_auto_length(min, max, &b->work, &a));
	return a;
}

/* Takes from *a the texts that meet s. */
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
		combine(b, a, x, true);
		dt_auto_free(x);
	}
	free(all.c);
	b->depth--;
}

struct dt_auto *dt_schema_text(struct dt_schema *b, const struct dt_conj *c, int64_t *min, int64_t *max)
{
	struct dt_auto *a = NULL, *len = NULL;
	const json_t *s;

	dt_schema_counts(c, "minLength", "maxLength", min, max);
	for (int i = 0; i < c->nleaf && b->rc == 0; i++) {
		const char *pattern = json_string_value(json_object_get(c->leaf[i], "pattern")),
			   *format = json_string_value(json_object_get(c->leaf[i], "format"));

		if (pattern)
			combine(b, &a, dt_schema_pattern(b, pattern), false);
		if (format)
			combine(b, &a, dt_schema_pattern(b, dt_schema_format(format)), false);
	}
	for (int i = 0; i < c->nno; i++) {
		size_t at = 0;

		while (b->rc == 0 && (s = dt_schema_no(c->no[i].list, c->no[i].but, &at)))
			take_away(b, &a, s);
	}
	if (a && (*min > 0 || *max >= 0) && good(b, dt_auto_length(*min, *max, &b->work, &len)))
		combine(b, &a, len, false);
	dt_auto_free(len);
	if (b->rc < 0) {
		dt_auto_free(a);
		return NULL;
	}
	return a;
}

/* ---- automata as rules ---- */

static int encode(uint32_t c, uint8_t out[4])
{
	if (c < 0x800) {
		out[0] = (uint8_t)(0xc0 | c >> 6);
		out[1] = (uint8_t)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (uint8_t)(0xe0 | c >> 12);
		out[1] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
		out[2] = (uint8_t)(0x80 | (c & 0x3f));
		return 3;
	}
	out[0] = (uint8_t)(0xf0 | c >> 18);
	out[1] = (uint8_t)(0x80 | (c >> 12 & 0x3f));
	out[2] = (uint8_t)(0x80 | (c >> 6 & 0x3f));
	out[3] = (uint8_t)(0x80 | (c & 0x3f));
	return 4;
}

/* Code points lo to hi beyond ASCII, as sequences of ranges of bytes. */
static void add_wide(struct dt_grammar *g, int r, uint32_t lo, uint32_t hi)
{
	static const uint32_t cut[] = {0x7ff, 0xd7ff, 0xdfff,
				       0xffff}; /* lengths change here; no surrogates */
	uint8_t a[4], z[4];
	struct dt_elem e[4];
	int n;

	if (lo >= 0xd800 && lo <= 0xdfff)
		lo = 0xe000;
	if (lo > hi)
		return;
	for (int i = 0; i < 4; i++)
		if (lo <= cut[i] && cut[i] < hi) {
			add_wide(g, r, lo, cut[i]);
			add_wide(g, r, cut[i] + 1, hi);
			return;
		}
	if (lo >= 0xd800 && hi <= 0xdfff)
		return;
	n = encode(lo, a);
	encode(hi, z);
	for (int i = 1; i < n; i++) {
		uint32_t m = (1u << 6 * i) - 1;

		if ((lo & ~m) == (hi & ~m))
			continue;
		if (lo & m) {
			add_wide(g, r, lo, lo | m);
			add_wide(g, r, (lo | m) + 1, hi);
			return;
		}
		if ((hi & m) != m) {
			add_wide(g, r, lo, (hi & ~m) - 1);
			add_wide(g, r, hi & ~m, hi);
			return;
		}
	}
	for (int i = 0; i < n; i++)
		e[i] = dt_gr_range(g, a[i], z[i]);
	dt_gr_alt(g, r, e, n);
}

static void add_escaped(struct dt_grammar *g, int r, uint32_t c)
{
	static const char letters[] = "bfnrt\"\\", control[] = "\b\f\n\r\t\"\\";
	const char *p = c ? strchr(control, (int)c) : NULL;

	if (p) /* other control characters are left out: nobody wants them, and no pattern needs them */
		dt_gr_alt(g, r, SEQ(dt_gr_byte(g, '\\'), dt_gr_byte(g, letters[p - control])));
}

struct charset {
	int32_t *class; /* of the automaton */
	int n;
	struct dt_elem e;
};

/* What reads one character of these classes. */
static struct dt_elem characters(struct dt_schema *b, const struct dt_auto *a, const int32_t *class, int n)
{
	struct dt_grammar *g = b->g;
	char ascii[2 * 128 + 1];
	int r, k = 0, plain = 0, others = 0;

	for (int i = 0; i < n; i++) {
		uint32_t first = a->first[class[i]],
			 last = class[i] + 1 < a->nclass ? a->first[class[i] + 1] - 1 : DT_AUTO_LAST;

		for (uint32_t c = first; c <= last && c < 0x80; c++)
			if (c >= ' ' && c != '"' && c != '\\') {
				ascii[k++] = (char)c;
				plain++;
			} else {
				others++;
			}
		others += last >= 0x80;
	}
	ascii[k] = '\0';
	r = -1;
	if (others || !plain)
		r = dt_gr_rule(g);
	if (plain) {
		struct dt_elem e = dt_gr_c(dt_gr_members(g, ascii));

		if (r < 0)
			return e;
		dt_gr_alt(g, r, &e, 1);
	}
	for (int i = 0; i < n; i++) {
		uint32_t first = a->first[class[i]],
			 last = class[i] + 1 < a->nclass ? a->first[class[i] + 1] - 1 : DT_AUTO_LAST;

		for (uint32_t c = first; c <= last && c < 0x80; c++)
			if (c < ' ' || c == '"' || c == '\\')
				add_escaped(g, r, c);
		if (last >= 0x80)
			add_wide(g, r, first < 0x80 ? 0x80 : first, last);
	}
	return dt_gr_r(r);
}

struct emit {
	struct charset set[MAX_SETS];
	int nset, round;
	int32_t *class, *target; /* [nclass] scratch */
};

static struct dt_elem charset_of(struct dt_schema *b, struct emit *m, const struct dt_auto *a, int n)
{
	struct dt_elem e;

	for (int i = 0; i < m->nset; i++)
		if (m->set[i].n == n && !memcmp(m->set[i].class, m->class, (size_t)n * sizeof(*m->class)))
			return m->set[i].e;
	e = characters(b, a, m->class, n);
	if (m->nset < MAX_SETS) {
		struct charset *s = &m->set[m->nset];

		s->class = malloc((size_t)n * sizeof(*s->class));
		if (s->class) {
			memcpy(s->class, m->class, (size_t)n * sizeof(*s->class));
			s->n = n;
			s->e = e;
			m->nset++;
		}
	}
	return e;
}

/* The alternatives of one state: for each state that can follow, one of the characters that lead there. */
static void emit_state(struct dt_schema *b, struct emit *m, const struct dt_auto *a, int base, int s)
{
	const int32_t *next = a->next + (size_t)s * (size_t)a->nclass;

	if (a->accept[s])
		dt_gr_alt(b->g, base + s, NULL, 0);
	memset(m->target, 0, (size_t)a->nclass * sizeof(*m->target));
	for (int k = 0; k < a->nclass; k++) {
		int n = 0;

		if (next[k] < 0 || m->target[k])
			continue;
		for (int j = k; j < a->nclass; j++)
			if (next[j] == next[k]) {
				m->target[j] = 1;
				m->class[n++] = j;
			}
		if (!dt_schema_work(b, a->nclass))
			return;
		dt_gr_alt(b->g, base + s, SEQ(charset_of(b, m, a, n), dt_gr_r(base + next[k])));
	}
}

int dt_schema_emit(struct dt_schema *b, const struct dt_auto *a)
{
	struct emit *m = calloc(1, sizeof(*m));
	int base = dt_gr_rule(b->g);

	if (m) {
		m->class = malloc(((size_t)a->nclass + 1) * sizeof(*m->class));
		m->target = malloc(((size_t)a->nclass + 1) * sizeof(*m->target));
	}
	if (!m || !m->class || !m->target) {
		good(b, -ENOMEM);
	} else {
		for (int s = 1; s < a->nstate; s++)
			dt_gr_rule(b->g);
		for (int s = 0; s < a->nstate && b->rc == 0 && !b->g->no_memory; s++) {
			emit_state(b, m, a, base, s);
			if (b->g->nelem > MAX_ELEMS)
				good(b, -E2BIG);
		}
	}
	for (int i = 0; m && i < m->nset; i++)
		free(m->set[i].class);
	if (m) {
		free(m->class);
		free(m->target);
	}
	free(m);
	return base;
}

/* ---- strings ---- */

/* Rules of 0, 1, 2 ... characters, made once: of exactly so many, or of up to so many. */
static int chain(struct dt_schema *b, int **rule, int *n, int64_t want, bool fewer)
{
	if (want >= *n) {
		int *p = realloc(*rule, ((size_t)want + 1) * sizeof(*p));

		if (!p || !dt_schema_work(b, 10 * want)) {
			good(b, p ? -E2BIG : -ENOMEM);
			return 0;
		}
		*rule = p;
	}
	for (; *n <= want; ++*n) {
		int r = (*rule)[*n] = dt_gr_rule(b->g);

		if (*n > 0)
			dt_gr_alt(b->g, r, SEQ(dt_gr_r(b->json.character), dt_gr_r((*rule)[*n - 1])));
		if (*n == 0 || fewer)
			dt_gr_alt(b->g, r, NULL, 0);
	}
	return (*rule)[want];
}

int dt_schema_string(struct dt_schema *b, const struct dt_conj *c)
{
	int64_t min, max;
	struct dt_auto *a = dt_schema_text(b, c, &min, &max);
	struct dt_elem quote = dt_gr_byte(b->g, '"');
	int r = dt_gr_rule(b->g), first, rest;

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
	first = chain(b, &b->exact, &b->nexact, min, false);
	rest = max < 0 ? dt_gr_repeat(b->g, dt_gr_r(b->json.character), -1, 0, -1)
		       : chain(b, &b->most, &b->nmost, max - min, true);
	dt_gr_alt(b->g, r, SEQ(quote, dt_gr_r(first), dt_gr_r(rest), quote));
	return r;
}

/* ---- numbers ---- */

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
	for (int digits = 15; digits <= 17; digits++) { /* the shortest that is this number */
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

/* The largest number of units of 10^-DT_DECIMALS that is below x, |x| < 10^19. */
static __int128 units_below(long double x)
{
	const __int128 one = 1000000000000000;
	int e;
	__int128 m = (__int128)ldexpl(frexpl(x, &e), 64) * one; /* x = m / one * 2^(e - 64) */

	e = 64 - e;
	return e >= 127 ? (m > 0 ? 0 : -1) : (m - 1) >> e;
}

/*
 * The outermost decimal inside an exclusive bound x = v that a double tells from it, and so are all decimals
 * beyond, since rounding keeps their order: 99.999999999999999 would be read as 100.
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
		if (upper == (x > 0)) /* beyond everything that is written */
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
		else if (good(b, rc)) {
			combine(b, &all, a, false);
			dt_auto_free(a);
		}
	}
	if (!any)
		return integer ? b->json.integer : b->json.number;
	n.step = 0;
	if (!all && b->rc == 0)
		good(b, dt_auto_numbers(&n, &b->work, &all));
	if (b->rc == 0 && all->nstate > 0)
		dt_gr_alt(b->g, r, SEQ(dt_gr_r(dt_schema_emit(b, all))));
	dt_auto_free(all);
	return r;
}

/* ---- listed values ---- */

/* As short as says the same number. */
static char *dump(struct dt_schema *b, const json_t *v)
{
	char *text = NULL;

	for (size_t digits = 15; digits <= 17; digits++) {
		json_t *back;
		bool same;

		free(text);
		text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
		if (!text)
			break;
		back = json_loads(text, JSON_DECODE_ANY, NULL);
		same = back && json_equal(back, v);
		json_decref(back);
		if (same)
			break;
	}
	if (!text)
		good(b, -ENOMEM);
	return text;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One of n sorted texts, without their first `at` bytes, which are equal. */
static int tree(struct dt_schema *b, char **text, int n, size_t at)
{
	int r = dt_gr_rule(b->g), i = 0;

	if (n == 1)
		return dt_gr_literal(b->g, text[0] + at, strlen(text[0] + at));
	while (i < n && !text[i][at]) {
		if (i == 0)
			dt_gr_alt(b->g, r, NULL, 0);
		i++;
	}
	while (i < n && dt_schema_work(b, n)) {
		int end = i + 1, rest;

		while (end < n && text[end][at] == text[i][at])
			end++;
		rest = tree(b, text + i, end - i, at + 1);
		dt_gr_alt(b->g, r, SEQ(dt_gr_byte(b->g, (unsigned char)text[i][at]), dt_gr_r(rest)));
		i = end;
	}
	return r;
}

int dt_schema_literals(struct dt_schema *b, const json_t *const *value, int n)
{
	char **text = calloc((size_t)n + 1, sizeof(*text));
	int r = 0, k = 0;

	if (!text)
		good(b, -ENOMEM);
	for (int i = 0; text && i < n && b->rc == 0; i++)
		if ((text[k] = dump(b, value[i]))) {
			dt_schema_work(b, 20 * (int64_t)strlen(text[k]));
			k++;
		}
	for (int i = 0; i < k; i++)
		if (strlen(text[i]) > 16384) /* the tree is as deep as texts have in common */
			good(b, -E2BIG);
	if (b->rc == 0) {
		qsort(text, (size_t)k, sizeof(*text), by_text);
		r = k ? tree(b, text, k, 0) : dt_gr_rule(b->g);
	}
	for (int i = 0; i < k; i++)
		free(text[i]);
	free(text);
	return r;
}
