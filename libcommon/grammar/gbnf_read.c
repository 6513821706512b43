/*
 * Reads GBNF, the grammar notation of llama.cpp (grammars/README.md there):
 *
 *	# a comment
 *	root ::= item ("," item)*
 *	item ::= "a" | [^,\n]{1,8} |
 *	         "\u00e9"
 *
 * A rule ends at the end of its line, except within parentheses, after ::= or |, and before a line that
 * begins with |. Operators apply to the literal, set, name or group before them.
 */
#include "grammar/gbnf.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXT (1 << 20) /* bytes */
#define MAX_NEST 256
#define LAST	 0x10ffffu

struct seq { /* the sequence being read; the last symbol begins at `symbol`, -1: none */
	struct dt_gbnf_item *item;
	int n, cap, symbol;
};

static bool push(struct dt_gbnf *x, struct seq *s, enum dt_gbnf_kind kind, int at)
{
	if (at < 0 || !dt_gbnf_room(x, (void **)&s->item, s->n, &s->cap, sizeof(*s->item)))
		return false;
	s->item[s->n++] = (struct dt_gbnf_item){kind, at};
	return true;
}

/* ---- the text ---- */

static int peek(const struct dt_gbnf *x, size_t ahead)
{
	return (size_t)(x->end - x->at) > ahead ? (unsigned char)x->at[ahead] : -1;
}

/* Skips white space and comments, and ends of lines if `lines` is set. */
static void skip(struct dt_gbnf *x, bool lines)
{
	for (int c = peek(x, 0); c >= 0; c = peek(x, 0)) {
		if (c == '#')
			while (peek(x, 0) >= 0 && peek(x, 0) != '\n')
				x->at++;
		else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && lines))
			x->at++;
		else
			return;
	}
}

static bool is_name(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
	       c == '_';
}

static size_t name_length(const struct dt_gbnf *x)
{
	size_t n = 0;

	while (is_name(peek(x, n)))
		n++;
	return n;
}

static int hex(int c)
{
	return c >= '0' && c <= '9'   ? c - '0'
	       : c >= 'a' && c <= 'f' ? c - 'a' + 10
	       : c >= 'A' && c <= 'F' ? c - 'A' + 10
				      : -1;
}

/* The code point of n hexadecimal digits after a backslash and a letter. */
static bool read_hex(struct dt_gbnf *x, int n, uint32_t *ret)
{
	const char *from = x->at;
	uint32_t c = 0;

	x->at += 2;
	for (int i = 0; i < n; i++, x->at++) {
		if (hex(peek(x, 0)) < 0)
			return dt_gbnf_fail(x, from, -EINVAL, "\\%c needs %d hexadecimal digits", from[1], n);
		c = c << 4 | (uint32_t)hex(peek(x, 0));
	}
	if (c > LAST || (c >= 0xd800 && c <= 0xdfff))
		return dt_gbnf_fail(x, from, -EINVAL, "U+%04X is not a character", (unsigned)c);
	*ret = c;
	return true;
}

/* One character of a literal or set, which may be an escape. */
static bool read_char(struct dt_gbnf *x, uint32_t *ret)
{
	static const char from[] = "trn\\\"[]-^", to[] = "\t\r\n\\\"[]-^";
	const int c = peek(x, 1);
	const char *p;

	if (*x->at != '\\') {
		x->at += dt_utf8_decode(x->at, (size_t)(x->end - x->at), ret);
		return true;
	}
	if (c == 'x' || c == 'u' || c == 'U')
		return read_hex(x, c == 'x' ? 2 : c == 'u' ? 4 : 8, ret);
	p = c > 0 ? strchr(from, c) : NULL;
	if (!p)
		return dt_gbnf_fail(x, x->at, -EINVAL,
				    "unknown escape; known are \\t \\r \\n \\\\ \\\" \\[ \\] \\- \\^ "
				    "\\xXX \\uXXXX \\UXXXXXXXX");
	*ret = (unsigned char)to[p - from];
	x->at += 2;
	return true;
}

static bool push_char(struct dt_gbnf *x, struct seq *s, uint32_t c)
{
	uint8_t b[4];
	const int n = dt_gr_encode(c, b);

	for (int i = 0; i < n; i++)
		if (!push(x, s, DT_GBNF_BYTE, b[i]))
			return false;
	return true;
}

static bool read_literal(struct dt_gbnf *x, struct seq *s)
{
	const char *from = x->at++;
	uint32_t c;

	while (peek(x, 0) >= 0 && peek(x, 0) != '"')
		if (!read_char(x, &c) || !push_char(x, s, c))
			return false;
	if (peek(x, 0) < 0)
		return dt_gbnf_fail(x, from, -EINVAL, "the literal has no closing quote");
	x->at++;
	return true;
}

static bool add_range(struct dt_gbnf *x, uint32_t first, uint32_t last)
{
	if (!dt_gbnf_room(x, (void **)&x->range, x->nrange, &x->range_cap, sizeof(*x->range)))
		return false;
	x->range[x->nrange++] = (struct dt_gbnf_range){first, last};
	return true;
}

static bool push_set(struct dt_gbnf *x, struct seq *s, struct dt_gbnf_set set)
{
	if (!dt_gbnf_room(x, (void **)&x->set, x->nset, &x->set_cap, sizeof(*x->set)))
		return false;
	x->set[x->nset] = set;
	return push(x, s, DT_GBNF_SET, x->nset++);
}

static bool read_set(struct dt_gbnf *x, struct seq *s)
{
	struct dt_gbnf_set set = {.first = x->nrange};
	const char *from = x->at++, *at;
	uint32_t first, last;

	set.negated = peek(x, 0) == '^';
	x->at += set.negated;
	while (peek(x, 0) >= 0 && peek(x, 0) != ']') {
		at = x->at;
		if (!read_char(x, &first))
			return false;
		last = first;
		if (peek(x, 0) == '-' && peek(x, 1) >= 0 && peek(x, 1) != ']') {
			x->at++;
			if (!read_char(x, &last))
				return false;
		}
		if (last < first)
			return dt_gbnf_fail(x, at, -EINVAL, "the range ends before it begins");
		if (!add_range(x, first, last))
			return false;
	}
	if (peek(x, 0) < 0)
		return dt_gbnf_fail(x, from, -EINVAL, "the set has no closing bracket");
	x->at++;
	set.n = x->nrange - set.first;
	if (set.n == 0)
		return dt_gbnf_fail(x, from, -EINVAL, "the set is empty");
	return push_set(x, s, set);
}

/* ---- operators ---- */

static bool read_number(struct dt_gbnf *x, int *ret)
{
	const char *from = x->at;
	int64_t v = 0;

	while (peek(x, 0) >= '0' && peek(x, 0) <= '9' && v <= DT_GR_MANY)
		v = 10 * v + (*x->at++ - '0');
	if (x->at == from)
		return dt_gbnf_fail(x, from, -EINVAL, "a number of repetitions is missing");
	if (v > DT_GR_MANY)
		return dt_gbnf_fail(x, from, -E2BIG, "a number of repetitions is above %d", DT_GR_MANY);
	*ret = (int)v;
	return true;
}

static bool read_counts(struct dt_gbnf *x, int *min, int *max)
{
	const char *from = x->at++;

	skip(x, false);
	if (!read_number(x, min))
		return false;
	skip(x, false);
	*max = *min;
	if (peek(x, 0) == ',') {
		x->at++;
		skip(x, false);
		*max = -1;
		if (peek(x, 0) != '}' && !read_number(x, max))
			return false;
		skip(x, false);
	}
	if (peek(x, 0) != '}')
		return dt_gbnf_fail(x, x->at, -EINVAL, "the repetition has no closing brace");
	x->at++;
	if (*max >= 0 && *max < *min)
		return dt_gbnf_fail(x, from, -EINVAL, "the repetition has a maximum below its minimum");
	return true;
}

/* Replaces the last symbol by a repetition of it. */
static bool repeat(struct dt_gbnf *x, struct seq *s)
{
	const char *from = x->at;
	const int c = peek(x, 0);
	int min = c == '+', max = c == '?' ? 1 : -1, rule;
	struct dt_gbnf_item of;

	if (s->symbol < 0)
		return dt_gbnf_fail(x, from, -EINVAL, "'%c' follows nothing that it could repeat", c);
	if (c != '{')
		x->at++;
	else if (!read_counts(x, &min, &max))
		return false;
	if (s->n - s->symbol == 1) {
		of = s->item[s->symbol];
	} else {
		rule = dt_gbnf_new_rule(x, NULL, 0);
		if (rule < 0 ||
		    !dt_gbnf_add_alt(x, rule, s->n > 0 ? s->item + s->symbol : NULL, s->n - s->symbol))
			return false;
		of = (struct dt_gbnf_item){DT_GBNF_RULE, rule};
	}
	s->n = s->symbol;
	return push(x, s, DT_GBNF_MANY, dt_gbnf_add_many(x, from, of, min, max));
}

/* ---- sequences ---- */

static bool read_alternatives(struct dt_gbnf *x, int rule, bool nested);

static bool read_group(struct dt_gbnf *x, struct seq *s)
{
	const char *from = x->at++;
	const int rule = dt_gbnf_new_rule(x, NULL, 0);

	if (rule < 0)
		return false;
	if (++x->depth > MAX_NEST)
		return dt_gbnf_fail(x, from, -E2BIG, "parentheses are nested more than %d deep", MAX_NEST);
	skip(x, true);
	if (!read_alternatives(x, rule, true))
		return false;
	if (peek(x, 0) != ')')
		return dt_gbnf_fail(x, peek(x, 0) < 0 ? from : x->at, -EINVAL,
				    peek(x, 0) < 0 ? "the group has no closing parenthesis"
						   : "expected ')' or another part of the group");
	x->depth--;
	x->at++;
	return push(x, s, DT_GBNF_RULE, rule);
}

/* Reads one symbol or operator. *ret_more false: the sequence ends here. */
static bool read_symbol(struct dt_gbnf *x, struct seq *s, bool *ret_more)
{
	const int c = peek(x, 0), begin = s->n;
	const size_t n = name_length(x);
	bool ok;

	if (c == '*' || c == '+' || c == '?' || c == '{')
		return repeat(x, s);
	s->symbol = begin;
	if (c == '"') {
		ok = read_literal(x, s);
	} else if (c == '[') {
		ok = read_set(x, s);
	} else if (c == '(') {
		ok = read_group(x, s);
	} else if (c == '.') {
		x->at++;
		ok = add_range(x, 0, LAST) && push_set(x, s, (struct dt_gbnf_set){x->nrange - 1, 1, false});
	} else if (n > 0) {
		ok = push(x, s, DT_GBNF_RULE, dt_gbnf_rule_of(x, x->at, n));
		x->at += n;
	} else if (c == '<' || c == '!') {
		ok = push(x, s, DT_GBNF_TOKEN, dt_gbnf_read_token(x));
	} else {
		*ret_more = false;
		ok = true;
	}
	return ok;
}

static bool read_sequence(struct dt_gbnf *x, int rule, bool nested)
{
	struct seq s = {.symbol = -1};
	bool more = true, ok = true;

	while (ok && more) {
		ok = read_symbol(x, &s, &more);
		if (ok && more)
			skip(x, nested);
	}
	ok = ok && dt_gbnf_add_alt(x, rule, s.item, s.n);
	free(s.item);
	return ok;
}

/* Whether the next line that is not empty begins with '|', to which x->at then moves. */
static bool goes_on(struct dt_gbnf *x)
{
	const char *from = x->at;

	skip(x, true);
	if (peek(x, 0) == '|')
		return true;
	x->at = from;
	return false;
}

static bool read_alternatives(struct dt_gbnf *x, int rule, bool nested)
{
	while (read_sequence(x, rule, nested)) {
		if (!goes_on(x))
			return true;
		x->at++;
		skip(x, true);
	}
	return false;
}

static bool read_rule(struct dt_gbnf *x)
{
	const char *name = x->at;
	const size_t n = name_length(x);
	int rule;

	if (n == 0)
		return dt_gbnf_fail(x, name, -EINVAL, "expected the name of a rule");
	rule = dt_gbnf_rule_of(x, name, n);
	if (rule < 0)
		return false;
	if (x->rule[rule].defined)
		return dt_gbnf_fail(x, name, -EINVAL, "the rule '%.*s' is defined a second time",
				    (int)(n < 60 ? n : 60), name);
	x->rule[rule].defined = name;
	x->at += n;
	skip(x, false);
	if (peek(x, 0) != ':' || peek(x, 1) != ':' || peek(x, 2) != '=')
		return dt_gbnf_fail(x, x->at, -EINVAL, "expected '::=' after the name of a rule");
	x->at += 3;
	skip(x, true);
	if (!read_alternatives(x, rule, false))
		return false;
	if (peek(x, 0) >= 0 && *x->at != '\n')
		return dt_gbnf_fail(x, x->at, -EINVAL, "expected a part of the rule or the end of the line");
	skip(x, true);
	return true;
}

bool dt_gbnf_read(struct dt_gbnf *x)
{
	if (x->end - x->text > MAX_TEXT)
		return dt_gbnf_too_large(x);
	skip(x, true);
	while (peek(x, 0) >= 0)
		if (!read_rule(x))
			return false;
	return dt_gbnf_check_names(x);
}
/* SPDX-License-Identifier: Apache-2.0 */
