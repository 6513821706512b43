/* Parses regular expressions to a tree. */
#include "base/utf8.h"
#include "grammar/regex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64
#define MAX_TIMES 65535

static const char *name_of(const struct dt_regex *x)
{
	return x->whole ? "the regular expression" : "the schema's pattern";
}

static int refuse(struct dt_regex *x, const char *what)
{
	return dt_err_set(x->err, -ENOTSUP, "%s has %s, which is not supported", name_of(x), what);
}

static int malformed(struct dt_regex *x, const char *what)
{
	return dt_err_set(x->err, -EINVAL, "%s is malformed: %s", name_of(x), what);
}

/* The escape after the backslash is unknown. */
static int refuse_escape(struct dt_regex *x)
{
	uint32_t c;
	const int n = *x->at ? (int)dt_utf8_decode(x->at, strlen(x->at), &c) : 0;

	return n == 0 ? malformed(x, "it ends with a backslash")
		      : dt_err_set(x->err, -ENOTSUP, "%s has the escape \\%.*s, which is not supported",
				   name_of(x), n, x->at);
}

bool dt_regex_room(struct dt_regex *x, void **p, int n, int *cap, size_t size)
{
	int more = *cap ? 2 * *cap : 32;
	void *q;

	if (n < *cap)
		return true;
	q = n < DT_REGEX_NODES ? realloc(*p, (size_t)more * size) : NULL;
	if (!q) {
		x->no_memory |= n < DT_REGEX_NODES;
		x->too_large |= n >= DT_REGEX_NODES;
		return false;
	}
	*p = q;
	*cap = more;
	return true;
}

static int node(struct dt_regex *x, enum dt_regex_kind kind, int a, int b)
{
	if (!dt_regex_room(x, (void **)&x->tree, x->ntree, &x->tree_cap, sizeof(*x->tree)))
		return 0;
	x->tree[x->ntree] = (struct dt_regex_tree){.kind = kind, .a = a, .b = b};
	return x->ntree++;
}

static int hex(struct dt_regex *x, int digits)
{
	int value = 0;

	for (int i = 0; i < digits; i++) {
		static const char set[] = "0123456789abcdef";
		char c = x->at[i];
		const char *p = c ? strchr(set, c >= 'A' && c <= 'F' ? c | 32 : c) : NULL;

		if (!p)
			return malformed(x, "\\x needs 2 hexadecimal digits, \\u needs 4");
		value = 16 * value + (int)(p - set);
	}
	x->at += digits;
	return value;
}

/* The character of an escape, after the backslash. */
static int escaped(struct dt_regex *x)
{
	static const char letters[] = "nrtfv0", control[] = "\n\r\t\f\v";
	char c = *x->at;
	const char *p = c ? strchr(letters, c) : NULL;

	if (p && (c != '0' || x->at[1] < '0' || x->at[1] > '9')) {
		x->at++;
		return control[p - letters];
	}
	if (c == 'x' || c == 'u') {
		x->at++;
		return hex(x, c == 'x' ? 2 : 4);
	}
	if (!(c > ' ' && c < 0x7f) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	    (c >= 'A' && c <= 'Z'))
		return refuse_escape(x);
	x->at++;
	return c;
}

static int plain(struct dt_regex *x)
{
	uint32_t c;

	x->at += dt_utf8_decode(x->at, strlen(x->at), &c);
	return (int)c;
}

/* One member of [...]; -1: a named set was added. */
static int member(struct dt_regex *x)
{
	if (!*x->at)
		return malformed(x, "a [ is not closed");
	if (*x->at != '\\')
		return plain(x);
	x->at++;
	if (*x->at == 'b') {
		x->at++;
		return '\b';
	}
	if (dt_regex_add_named(x, *x->at)) {
		x->at++;
		return -1;
	}
	return escaped(x);
}

static int bracket(struct dt_regex *x)
{
	bool negated = *x->at == '^';
	int from = x->nrange;

	x->at += negated;
	while (*x->at != ']') {
		int first = member(x), last = first;

		if (first < -1)
			return first;
		if (first >= 0 && *x->at == '-' && x->at[1] != ']') {
			x->at++;
			last = member(x);
			if (last < first)
				return last < -1 ? last
						 : malformed(x, "a range in brackets ends before it begins");
		}
		if (first >= 0)
			dt_regex_add(x, (uint32_t)first, (uint32_t)last);
	}
	x->at++;
	dt_regex_tidy(x, from, negated);
	return node(x, DT_REGEX_SET, from, x->nrange - from);
}

static int one(struct dt_regex *x, uint32_t first, uint32_t last)
{
	int from = x->nrange;

	dt_regex_add(x, first, last);
	return node(x, DT_REGEX_SET, from, 1);
}

/* ---- the tree ---- */

static int alternatives(struct dt_regex *x);

static int group(struct dt_regex *x)
{
	int r;

	if (*x->at == '?' && x->at[1] == '<' && x->at[2] != '=' && x->at[2] != '!') { /* a named group */
		x->at += strcspn(x->at, ">");
		x->at += *x->at == '>';
	} else if (*x->at == '?') {
		if (x->at[1] && strchr("=!<", x->at[1]))
			return refuse(x, "a look ahead or behind");
		if (x->at[1] != ':')
			return refuse(x, "a group that begins with (? and is none of (?: and (?<name>");
		x->at += 2;
	}
	r = alternatives(x);
	if (r >= 0 && *x->at++ != ')')
		return malformed(x, "a parenthesis is not closed");
	return r;
}

static int atom(struct dt_regex *x)
{
	unsigned char c = (unsigned char)*x->at++;
	int e, from = x->nrange;

	if (c == '(')
		return group(x);
	if (c == '[')
		return bracket(x);
	if (c == '.') {
		dt_regex_add(x, '\n', '\n');
		dt_regex_add(x, '\r', '\r');
		dt_regex_add(x, 0x2028, 0x2029);
		dt_regex_tidy(x, from, true);
		return node(x, DT_REGEX_SET, from, x->nrange - from);
	}
	if (c == '\\') {
		if (dt_regex_add_named(x, *x->at)) {
			x->at++;
			dt_regex_tidy(x, from, false);
			return node(x, DT_REGEX_SET, from, x->nrange - from);
		}
		e = escaped(x);
		return e < 0 ? e : one(x, (uint32_t)e, (uint32_t)e);
	}
	if (c == '^' || c == '$')
		return refuse(x, "^ or $ within an alternative");
	if (strchr("*+?{}]", c))
		return malformed(x, "one of * + ? { } ] is in a place where it has no meaning");
	x->at--;
	e = plain(x);
	return one(x, (uint32_t)e, (uint32_t)e);
}

/* The number at x->at, at most MAX_TIMES; -1: none, or too large. */
static int number(struct dt_regex *x)
{
	int n = -1;

	for (; *x->at >= '0' && *x->at <= '9' && n <= MAX_TIMES; x->at++)
		n = 10 * (n < 0 ? 0 : n) + (*x->at - '0');
	return n <= MAX_TIMES ? n : -1;
}

/* Parses {n}, {n,} or {n,m}; false: another text. */
static bool braces(struct dt_regex *x, int *min, int *max)
{
	x->at++;
	*max = *min = number(x);
	if (*min >= 0 && *x->at == ',') {
		x->at++;
		*max = *x->at == '}' ? -1 : number(x);
		if (*max < 0 && *x->at != '}')
			return false;
	}
	return *min >= 0 && *x->at++ == '}' && (*max < 0 || *max >= *min);
}

/* Parses a quantifier; false: malformed {}. */
static bool times(struct dt_regex *x, int *min, int *max)
{
	if (*x->at == '{')
		return braces(x, min, max);
	*min = *x->at == '+';
	*max = *x->at == '?' ? 1 : -1;
	x->at++;
	return true;
}

/* Parses one alternative, between two bars. */
static int sequence(struct dt_regex *x)
{
	int all = node(x, DT_REGEX_EMPTY, 0, 0);

	while (*x->at && *x->at != '|' && *x->at != ')' &&
	       !(*x->at == '$' && x->depth == 1 && (!x->at[1] || x->at[1] == '|'))) {
		int r = atom(x), min, max;

		if (r < 0)
			return r;
		if (*x->at && strchr("*+?{", *x->at)) {
			if (!times(x, &min, &max))
				return refuse(x, "braces that are not {n}, {n,} or {n,m} up to 65535");
			x->at += *x->at == '?'; /* lazy quantifiers match the same texts */
			r = node(x, DT_REGEX_REP, r, 0);
			if (!x->no_memory && !x->too_large) {
				x->tree[r].min = min;
				x->tree[r].max = max;
			}
		}
		all = node(x, DT_REGEX_CAT, all, r);
		if (x->no_memory || x->too_large)
			return 0;
	}
	return all;
}

/* A node that matches any text: stands before and after alternatives that are not anchored. */
static int anything(struct dt_regex *x)
{
	int r = node(x, DT_REGEX_REP, one(x, 0, DT_AUTO_LAST), 0);

	if (!x->no_memory && !x->too_large)
		x->tree[r].max = -1;
	return r;
}

static int alternatives(struct dt_regex *x)
{
	int all = -1;

	if (++x->depth > MAX_DEPTH)
		return refuse(x, "too many groups in groups");
	for (;;) {
		bool outer = x->depth == 1, begins = outer && *x->at == '^';
		int r;

		x->at += begins;
		r = sequence(x);
		if (r < 0)
			return r;
		if (outer && !begins && !x->whole)
			r = node(x, DT_REGEX_CAT, anything(x), r);
		if (outer && *x->at == '$')
			x->at++;
		else if (outer && !x->whole)
			r = node(x, DT_REGEX_CAT, r, anything(x));
		all = all < 0 ? r : node(x, DT_REGEX_ALT, all, r);
		if (*x->at != '|')
			break;
		x->at++;
	}
	x->depth--;
	return all;
}

int dt_regex_parse(struct dt_regex *x)
{
	int root = alternatives(x);

	if (root >= 0 && *x->at && !x->no_memory && !x->too_large)
		return malformed(x, "a parenthesis is closed that was not opened");
	return root;
}
/* SPDX-License-Identifier: Apache-2.0 */
