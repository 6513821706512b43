/* Bounded integers, and regular expressions over the inside of a JSON string, as rules. */
#include "serve/grammar_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS 256 /* of a sequence */
#define MAX_DEPTH 32
#define MAX_TIMES 1024

/* ---- integers ---- */

static bool all_are(const char *s, int n, char c)
{
	while (n > 0 && s[n - 1] == c)
		n--;
	return n == 0;
}

/* Texts of n digits from lo to hi. */
static int digits(struct dt_grammar *g, const char *lo, const char *hi, int n)
{
	static const char zeros[] = "0000000000000000000", nines[] = "9999999999999999999";
	struct dt_elem any = dt_gr_range(g, '0', '9');
	int r = dt_gr_rule(g), a = *lo, z = *hi;

	if (n == 0) {
		dt_gr_alt(g, r, NULL, 0);
		return r;
	}
	if (a == z) {
		int rest = digits(g, lo + 1, hi + 1, n - 1);

		dt_gr_alt(g, r, (struct dt_elem[]){dt_gr_range(g, a, a), dt_gr_r(rest)}, 2);
		return r;
	}
	if (!all_are(lo + 1, n - 1, '0')) {
		int rest = digits(g, lo + 1, nines, n - 1);

		dt_gr_alt(g, r, (struct dt_elem[]){dt_gr_range(g, a, a), dt_gr_r(rest)}, 2);
		a++;
	}
	if (!all_are(hi + 1, n - 1, '9')) {
		int rest = digits(g, zeros, hi + 1, n - 1);

		dt_gr_alt(g, r, (struct dt_elem[]){dt_gr_range(g, z, z), dt_gr_r(rest)}, 2);
		z--;
	}
	if (a <= z) {
		int rest = dt_gr_repeat(g, any, -1, n - 1, n - 1);

		dt_gr_alt(g, r, (struct dt_elem[]){dt_gr_range(g, a, z), dt_gr_r(rest)}, 2);
	}
	return r;
}

/* 0 <= lo <= hi, without leading zeros. */
static int naturals(struct dt_grammar *g, int64_t lo, int64_t hi)
{
	int r = dt_gr_rule(g), n = 1;

	for (int64_t first = 0, next = 10; first <= hi; first = next, next *= 10, n++) {
		int64_t a = lo > first ? lo : first, z = hi < next - 1 ? hi : next - 1;
		char low[24], high[24];
		struct dt_elem e;

		if (a > z)
			continue;
		snprintf(low, sizeof(low), "%0*lld", n, (long long)a);
		snprintf(high, sizeof(high), "%0*lld", n, (long long)z);
		e = dt_gr_r(digits(g, low, high, n));
		dt_gr_alt(g, r, &e, 1);
	}
	return r;
}

/* Decimals of magnitude lo to hi, with a fraction where `fraction` (a rule of digits) is one. */
static void add_magnitudes(struct dt_grammar *g, int to, bool minus, int64_t lo, int64_t hi, int fraction)
{
	const struct dt_elem sign = dt_gr_range(g, '-', '-'), dot = dt_gr_range(g, '.', '.'),
			     zero = dt_gr_range(g, '0', '0');
	struct dt_elem e[4] = {sign};

	e[1] = dt_gr_r(naturals(g, lo, hi));
	dt_gr_alt(g, to, e + !minus, 1 + minus);
	if (fraction < 0)
		return;
	e[2] = dot;
	if (hi > lo) {
		e[1] = dt_gr_r(naturals(g, lo, hi - 1));
		e[3] = dt_gr_r(fraction);
		dt_gr_alt(g, to, e + !minus, 3 + minus);
	}
	e[1] = dt_gr_r(naturals(g, hi, hi));
	e[3] = dt_gr_r(dt_gr_repeat(g, zero, -1, 1, 4));
	dt_gr_alt(g, to, e + !minus, 3 + minus);
}

int dt_gr_between(struct dt_grammar *g, int64_t lo, int64_t hi, int fraction)
{
	int r = dt_gr_rule(g);

	if (hi >= 0)
		add_magnitudes(g, r, false, lo > 0 ? lo : 0, hi, fraction);
	if (lo < 0)
		add_magnitudes(g, r, true, hi < 0 ? -hi : fraction < 0, -lo, fraction);
	return r;
}

/* ---- regular expressions ---- */

struct regex {
	struct dt_grammar *g;
	const char *at;
	struct dt_gr_chars chars;
	int depth;
	struct dt_err *err;
};

struct set { /* of ASCII */
	bool has[128];
};

static int refuse(struct regex *x, const char *what)
{
	return dt_err_set(x->err, -ENOTSUP, "the schema's pattern has %s, which is not supported", what);
}

static void add_range(struct set *s, int first, int last)
{
	for (int c = first; c <= last; c++)
		s->has[c] = true;
}

/* \d, \w, \s; false: another letter. */
static bool add_named(struct set *s, char c)
{
	if (c == 'd' || c == 'w')
		add_range(s, '0', '9');
	if (c == 'w') {
		add_range(s, 'a', 'z');
		add_range(s, 'A', 'Z');
		add_range(s, '_', '_');
	}
	if (c == 's')
		s->has[' '] = s->has['\t'] = s->has['\n'] = s->has['\r'] = true;
	return c == 'd' || c == 'w' || c == 's';
}

/* What \c stands for, -1: nothing of ours. */
static int escaped(char c)
{
	static const char letters[] = "nrtf", control[] = "\n\r\t\f";
	const char *p = c ? strchr(letters, c) : NULL;

	if (p)
		return control[p - letters];
	return c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'z') &&
			       !(c >= 'A' && c <= 'Z')
		       ? c
		       : -1;
}

/* A character as JSON writes it in a string. */
static int one_char(struct regex *x, int c)
{
	static const char letters[] = "nrtf", control[] = "\n\r\t\f";
	const char *p = strchr(control, c);
	char text[2] = {'\\', p ? letters[p - control] : (char)c};
	bool escape = p || c == '"' || c == '\\';

	return dt_gr_literal(x->g, escape ? text : text + 1, escape ? 2 : 1);
}

static int set_rule(struct regex *x, const struct set *s, bool negated)
{
	int r = dt_gr_rule(x->g);
	struct dt_elem e;

	for (int c = 0; c < 0x7f; c++) {
		bool plain = c >= ' ' && c != '"' && c != '\\';
		int last = c;

		if (s->has[c] == negated || (c < ' ' && (negated || !strchr("\n\r\t\f", c) || !c)))
			continue;
		if (plain) {
			while (last + 1 < 0x7f && s->has[last + 1] != negated && last + 1 != '"' &&
			       last + 1 != '\\')
				last++;
			e = dt_gr_range(x->g, c, last);
		} else {
			e = dt_gr_r(one_char(x, c));
		}
		dt_gr_alt(x->g, r, &e, 1);
		c = last;
	}
	if (negated) {
		e = dt_gr_r(x->chars.beyond_ascii);
		dt_gr_alt(x->g, r, &e, 1);
	}
	return r;
}

/* One member of [...]; -1: a named set was added. */
static int member(struct regex *x, struct set *s)
{
	int c = (unsigned char)*x->at++;

	if (c >= 0x80)
		return refuse(x, "letters beyond ASCII in brackets");
	if (c != '\\')
		return c < ' ' ? refuse(x, "an open bracket or a control character") : c;
	if (add_named(s, *x->at)) {
		x->at++;
		return -1;
	}
	c = escaped(*x->at);
	if (c < 0)
		return refuse(x, "an unknown escape in brackets");
	x->at++;
	return c;
}

static int bracket(struct regex *x)
{
	bool negated = *x->at == '^';
	struct set s = {{false}};

	x->at += negated;
	while (*x->at != ']') {
		int first = member(x, &s), last = first;

		if (first < -1)
			return first;
		if (first >= 0 && *x->at == '-' && x->at[1] != ']') {
			x->at++;
			last = member(x, &s);
			if (last < first)
				return last < -1 ? last : refuse(x, "a range that ends before it begins");
		}
		if (first >= 0)
			add_range(&s, first, last);
	}
	x->at++;
	return set_rule(x, &s, negated);
}

static int alternatives(struct regex *x, bool *empty, int *n);

static int group(struct regex *x, bool *empty)
{
	int r, n;

	if (*x->at == '?' && x->at[1] != ':')
		return refuse(x, "a group of another kind than (?:...)");
	x->at += *x->at == '?' ? 2 : 0;
	r = alternatives(x, empty, &n);
	if (r >= 0 && *x->at++ != ')')
		return refuse(x, "an open group");
	return r;
}

static int atom(struct regex *x, bool *empty)
{
	struct set s = {{false}};
	unsigned char c = (unsigned char)*x->at++;
	int e;

	*empty = false;
	if (c == '(')
		return group(x, empty);
	if (c == '[')
		return bracket(x);
	if (c == '.')
		return x->chars.any;
	if (c == '\\') {
		bool upper = *x->at == 'D' || *x->at == 'W' || *x->at == 'S';

		if (add_named(&s, upper ? (char)(*x->at + 32) : *x->at)) {
			x->at++;
			return set_rule(x, &s, upper);
		}
		e = escaped(*x->at);
		if (e < 0)
			return refuse(x, "an unknown escape");
		x->at++;
		return one_char(x, e);
	}
	if (strchr("*+?{}]^$", c) || c < ' ')
		return refuse(x, "a sign in an unexpected place");
	if (c >= 0x80) { /* a whole character, so that it can be repeated */
		const char *from = x->at - 1;

		while (((unsigned char)*x->at & 0xc0) == 0x80)
			x->at++;
		return dt_gr_literal(x->g, from, (size_t)(x->at - from));
	}
	return one_char(x, c);
}

/* How often what came is repeated; false: {} is not as it should be. */
static bool times(struct regex *x, int *min, int *max)
{
	int end = 0;
	char c = *x->at;

	*min = c == '+' || c != '*';
	*max = c == '*' || c == '+' ? -1 : 1;
	if (c == '?')
		*min = 0;
	if (c == '*' || c == '+' || c == '?')
		x->at++;
	if (c != '{')
		return true;
	if (sscanf(x->at, "{%4d,%4d}%n", min, max, &end) == 2 && end > 0) {
	} else if (sscanf(x->at, "{%4d,}%n", min, &end) == 1 && end > 0) {
		*max = -1;
	} else if (sscanf(x->at, "{%4d}%n", min, &end) == 1 && end > 0) {
		*max = *min;
	} else {
		return false;
	}
	x->at += end;
	return *min >= 0 && *min <= MAX_TIMES && *max <= MAX_TIMES && (*max < 0 || *max >= *min);
}

/* Adds what stands between two bars as an alternative of `to`. */
static int sequence(struct regex *x, int to, bool *ret_empty)
{
	struct dt_elem e[MAX_PARTS];
	int n = 0;

	*ret_empty = true;
	while (*x->at && *x->at != '|' && *x->at != ')' && !(*x->at == '$' && !x->at[1])) {
		bool empty, counted = false;
		int r = atom(x, &empty), min, max;

		if (r < 0)
			return r;
		counted = *x->at && strchr("*+?{", *x->at);
		if (!times(x, &min, &max))
			return refuse(x, "braces that are not {n}, {n,} or {n,m} up to 1024");
		if (counted && empty && max < 0)
			return refuse(x, "an endless repetition of what may be empty");
		if (counted && *x->at == '?') /* lazy: the same texts */
			x->at++;
		if (n == MAX_PARTS)
			return refuse(x, "too many parts");
		e[n++] = dt_gr_r(counted ? dt_gr_repeat(x->g, dt_gr_r(r), -1, min, max) : r);
		*ret_empty &= empty || min == 0;
	}
	dt_gr_alt(x->g, to, e, n);
	return 0;
}

static int alternatives(struct regex *x, bool *ret_empty, int *ret_n)
{
	int r = dt_gr_rule(x->g), rc;
	bool empty;

	if (++x->depth > MAX_DEPTH)
		return refuse(x, "too many groups in groups");
	*ret_empty = false;
	*ret_n = 0;
	for (;;) {
		rc = sequence(x, r, &empty);
		if (rc < 0)
			return rc;
		*ret_empty |= empty;
		++*ret_n;
		if (*x->at != '|')
			break;
		x->at++;
	}
	x->depth--;
	return r;
}

int dt_gr_pattern(struct dt_grammar *g, struct dt_gr_chars chars, const char *pattern, struct dt_err *err)
{
	struct regex x = {.g = g, .at = pattern, .chars = chars, .err = err};
	bool begins = *pattern == '^', ends, empty;
	struct dt_elem e[3];
	int r, all, n = 0, k = 0;

	x.at += begins;
	r = alternatives(&x, &empty, &n);
	if (r < 0)
		return r;
	ends = *x.at == '$';
	x.at += ends;
	if (*x.at)
		return refuse(&x, "a closing parenthesis too many");
	if (n > 1 && (begins || ends))
		return refuse(&x, "^ or $ beside alternatives that are not in a group");
	if (begins && ends)
		return r;
	all = dt_gr_repeat(g, dt_gr_r(chars.any), -1, 0, -1);
	if (!begins)
		e[k++] = dt_gr_r(all);
	e[k++] = dt_gr_r(r);
	if (!ends)
		e[k++] = dt_gr_r(all);
	r = dt_gr_rule(g);
	dt_gr_alt(g, r, e, k);
	return r;
}

#define DAY                                                                                                  \
	"((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|02-(0[1-9]|1\\d|2[0-8]))"
#define CLOCK "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,9})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define BYTE  "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

const char *dt_gr_format(const char *name)
{
	static const char *const known[][2] = {
		{"date", "^\\d{4}-" DAY "$"},
		{"time", "^" CLOCK "$"},
		{"date-time", "^\\d{4}-" DAY "T" CLOCK "$"},
		{"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
		{"ipv4", "^" BYTE "\\." BYTE "\\." BYTE "\\." BYTE "$"},
		{"hostname", "^" LABEL "(\\." LABEL "){0,7}$"},
		{"email", "^[A-Za-z0-9_+-]+(\\.[A-Za-z0-9_+-]+){0,7}@" LABEL "(\\." LABEL "){1,7}$"},
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(name, known[i][0]))
			return known[i][1];
	return NULL;
}
