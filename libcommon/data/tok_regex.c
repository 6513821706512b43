/*
 * Patterns of tokenizer.json are for Oniguruma with Ruby syntax. PCRE2 reads them too, except for a few
 * constructs with another meaning: those are rewritten, or refused by name.
 */
#include "data/tok_priv.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Unicode's White_Space, without U+180E, which PCRE2's \s includes. */
#define SPACE                                                                                                \
	"\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{" \
	"3000}"
#define NOT_SPACE                                                                                            \
	"\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"  \
	"\\x{202a}-"                                                                                         \
	"\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
/* Word of UTS 18. Outside of brackets Oniguruma looks at Latin-1 first, where six numbers are in it too. */
#define WORD	   "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_ALONE WORD "\\xb2\\xb3\\xb9\\xbc-\\xbe"
#define EDGE(A, B)                                                                                           \
	"(?<=[" WORD_ALONE "])(?" A "[" WORD_ALONE "])|(?<![" WORD_ALONE "])(?" B "[" WORD_ALONE "])"

/* Brackets like [:alpha:]. [:digit:], [:xdigit:], [:cntrl:] and [:ascii:] are the same in both engines. */
static const struct {
	const char *name, *set, *negated; /* NULL: cannot be said inside a class */
} posix[] = {
	{"alpha", "\\p{Alphabetic}", "\\P{Alphabetic}"},
	{"upper", "\\p{Uppercase}", "\\P{Uppercase}"},
	{"lower", "\\p{Lowercase}", "\\P{Lowercase}"},
	{"alnum", "\\p{Alphabetic}\\p{Nd}", NULL},
	{"word", WORD, NULL},
	{"punct", "\\p{P}\\p{S}", NULL},
	{"space", SPACE, NOT_SPACE},
	{"blank", "\\t\\p{Zs}", NULL},
	{"digit", "[:digit:]", "[:^digit:]"},
	{"xdigit", "[:xdigit:]", "[:^xdigit:]"},
	{"cntrl", "[:cntrl:]", "[:^cntrl:]"},
	{"ascii", "[:ascii:]", "[:^ascii:]"},
};

#define MAX_PATTERN 65536

/*
 * Steps of one match: as many as PCRE2 allows by default, and some for each byte of the text. A repetition
 * such as \s*[\r\n]+ steps back over all the blanks that it took, and a pattern contains several.
 */
#define MATCH_LIMIT	 10000000
#define MATCH_LIMIT_BYTE 32

struct out {
	char *s;
	size_t n, cap;
};

static int put(struct out *o, const char *s, size_t n)
{
	if (o->n + n + 1 > o->cap) {
		size_t cap = 2 * (o->cap + n + 64);
		char *p = realloc(o->s, cap);

		if (!p)
			return -ENOMEM;
		o->s = p;
		o->cap = cap;
	}
	memcpy(o->s + o->n, s, n);
	o->n += n;
	o->s[o->n] = '\0';
	return 0;
}

static int put_str(struct out *o, const char *s)
{
	return put(o, s, strlen(s));
}

static int put_class(struct out *o, bool in_class, bool negated, const char *set)
{
	int rc = 0;

	if (!in_class)
		rc = put_str(o, negated ? "[^" : "[");
	if (rc == 0)
		rc = put_str(o, set);
	if (rc == 0 && !in_class)
		rc = put_str(o, "]");
	return rc;
}

/* [:alpha:] and its like at p, end behind it. */
static int put_posix(struct out *o, const char *p, const char *end, struct dt_err *err)
{
	bool negated = p[2] == '^';
	const char *name = p + 2 + negated, *set = NULL;
	int rc;

	for (size_t i = 0; i < sizeof(posix) / sizeof(*posix); i++)
		if (strlen(posix[i].name) == (size_t)(end - 2 - name) &&
		    !strncmp(posix[i].name, name, strlen(posix[i].name)))
			set = negated ? posix[i].negated : posix[i].set;
	if (!set)
		return dt_err_set(err, -ENOTSUP, "'%.*s' in a pattern is not supported", (int)(end - p), p);
	rc = put_str(o, set);
	return rc < 0 ? dt_err_sys(err, rc, "cannot read a pattern") : 0;
}

/*
 * \p{Han} is the script in Oniguruma, but in PCRE2 since 10.40 all that the script's text may have (Script
 * Extensions), its punctuation too. p points at the backslash, end behind the brace. Returns whether it was
 * one.
 */
static int put_script(struct out *o, const char *p, const char *end)
{
	const char *name = p + 3 + (p[3] == '^');
	char script[80];
	PCRE2_SIZE at;
	pcre2_code *re;
	int code, rc,
		n = snprintf(script, sizeof(script), "\\%c{%ssc:%.*s", p[1], p[3] == '^' ? "^" : "",
			     (int)(end - name), name);

	if (n < 0 || (size_t)n >= sizeof(script) || memchr(name, ':', (size_t)(end - name)) ||
	    memchr(name, '=', (size_t)(end - name)))
		return 0;
	re = pcre2_compile((PCRE2_SPTR)script, (size_t)n, PCRE2_UTF, &code, &at, NULL);
	if (!re)
		return 0;
	pcre2_code_free(re);
	rc = put_str(o, script);
	return rc < 0 ? rc : 1;
}

/* The escape at p (which points at the backslash). Returns its length in the source. */
static int put_escape(struct out *o, const char *p, bool in_class, struct dt_err *err)
{
	size_t n = 2;
	const char *end;
	int rc;

	switch (p[1]) {
	case 'v': /* one character there, all vertical space in PCRE2 */
		rc = put_str(o, "\\x0b");
		return rc < 0 ? dt_err_sys(err, rc, "cannot read a pattern") : 2;
	case 'b':
	case 'B':
		if (in_class)
			break;
		rc = put_str(o, p[1] == 'b' ? "(?:" EDGE("!", "=") ")" : "(?:" EDGE("=", "!") ")");
		return rc < 0 ? dt_err_sys(err, rc, "cannot read a pattern") : 2;
	case '\0':
		return dt_err_set(err, -EINVAL, "the pattern ends in a backslash");
	case 'h':
	case 'H':
	case 'R':
	case 'X':
		return dt_err_set(err, -ENOTSUP, "'\\%c' in a pattern is not supported", p[1]);
	case 's':
	case 'S':
	case 'w':
	case 'W':
		if (in_class && p[1] == 'W')
			return dt_err_set(err, -ENOTSUP, "'\\W' in a class of a pattern is not supported");
		if (in_class && p[1] == 'S')
			rc = put_str(o, NOT_SPACE);
		else
			rc = put_class(o, in_class, isupper((unsigned char)p[1]) != 0,
				       tolower((unsigned char)p[1]) == 's' ? SPACE
				       : in_class			   ? WORD
									   : WORD_ALONE);
		return rc < 0 ? dt_err_sys(err, rc, "cannot read a pattern") : 2;
	case 'p':
	case 'P':
	case 'x':
		end = p[2] == '{' ? strchr(p, '}') : NULL;
		if (end)
			n = (size_t)(end - p) + 1;
		rc = end && p[1] != 'x' ? put_script(o, p, end + 1) : 0;
		if (rc != 0)
			return rc < 0 ? dt_err_sys(err, rc, "cannot read a pattern") : (int)n;
		break;
	}
	rc = put(o, p, n);
	return rc < 0 ? dt_err_sys(err, rc, "cannot read a pattern") : (int)n;
}

/* Refuses constructs that the engines interpret differently. */
static int check_plain(const char *p, bool in_class, struct dt_err *err)
{
	if (in_class && p[0] == '[' && p[1] != ':')
		return dt_err_set(err, -ENOTSUP, "a class inside a class in a pattern is not supported");
	if (in_class && p[0] == '&' && p[1] == '&')
		return dt_err_set(err, -ENOTSUP, "'&&' in a class of a pattern is not supported");
	if (!in_class && p[0] == '}' && p[1] == '+')
		return dt_err_set(err, -ENOTSUP, "'}+' in a pattern is not supported");
	if (!in_class && !strncmp(p, "(?m", 3))
		return dt_err_set(err, -ENOTSUP, "'(?m' in a pattern is not supported");
	return 0;
}

static int translate(const char *p, struct out *o, struct dt_err *err)
{
	bool in_class = false;
	const char *class_at = NULL;

	while (*p) {
		int rc;

		if (*p == '\\') {
			rc = put_escape(o, p, in_class, err);
			if (rc < 0)
				return rc;
			p += rc;
			continue;
		}
		rc = check_plain(p, in_class, err);
		if (rc < 0)
			return rc;
		if (in_class && p[0] == '[' && strstr(p, ":]")) { /* such as [:alpha:] */
			const char *end = strstr(p, ":]") + 2;

			rc = put_posix(o, p, end, err);
			if (rc < 0)
				return rc;
			p = end;
		} else {
			if (!in_class && *p == '[') {
				in_class = true;
				class_at = p[1] == '^' ? p + 2 : p + 1;
			} else if (in_class && *p == ']' && p != class_at) {
				in_class = false;
			}
			rc = put(o, p++, 1);
		}
		if (rc < 0)
			return dt_err_sys(err, rc, "cannot read a pattern");
	}
	return 0;
}

int dt_tok_compile(const char *pattern, bool literal, pcre2_code **ret, struct dt_err *err)
{
	uint32_t flags = PCRE2_UTF | PCRE2_NO_UTF_CHECK;
	struct out o = {0};
	pcre2_compile_context *cc = NULL;
	pcre2_code *re;
	size_t at;
	int rc, code;
	char why[128];

	if (!*pattern || strlen(pattern) > MAX_PATTERN)
		return dt_err_set(err, -EINVAL, "a pattern is empty or longer than %d bytes", MAX_PATTERN);
	if (literal) {
		flags |= PCRE2_LITERAL;
		rc = put_str(&o, pattern) < 0 ? dt_err_sys(err, -ENOMEM, "cannot read a pattern") : 0;
	} else {
		flags |= PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
		rc = translate(pattern, &o, err);
	}
	if (rc < 0)
		goto out;
	cc = pcre2_compile_context_create(NULL);
	if (!cc) {
		rc = dt_err_sys(err, -ENOMEM, "cannot read a pattern");
		goto out;
	}
	pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
	re = pcre2_compile((PCRE2_SPTR)o.s, o.n, flags, &code, &at, cc);
	if (!re) {
		pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof(why));
		rc = dt_err_set(err, -EINVAL, "pattern '%.200s': %s", pattern, why);
		goto out;
	}
	pcre2_jit_compile(re, PCRE2_JIT_COMPLETE); /* if this fails, matching is slower but the same */
	*ret = re;
out:
	pcre2_compile_context_free(cc);
	free(o.s);
	return rc;
}

pcre2_match_context *dt_tok_match_context(size_t n)
{
	pcre2_match_context *mc = pcre2_match_context_create(NULL);
	uint64_t limit = MATCH_LIMIT + MATCH_LIMIT_BYTE * (uint64_t)n;

	if (mc)
		pcre2_set_match_limit(mc, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
	return mc;
}

int dt_tok_match(const pcre2_code *re, pcre2_match_data *md, pcre2_match_context *mc, const char *s, size_t n,
		 size_t from, size_t *ret_begin, size_t *ret_end, struct dt_err *err)
{
	PCRE2_SIZE *v = pcre2_get_ovector_pointer(md);
	char why[128];
	int rc = pcre2_match(re, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK, md, mc);

	if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
		rc = pcre2_match(re, (PCRE2_SPTR)s, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, md, mc);
	if (rc == PCRE2_ERROR_NOMATCH)
		return 0;
	if (rc < 0) {
		pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof(why));
		return dt_err_set(err, -EBADMSG, "the tokenizer's pattern failed on the text: %s", why);
	}
	if (v[1] < v[0] || v[0] < from) /* possible with \K */
		return dt_err_set(err, -EBADMSG, "the tokenizer's pattern moves backwards");
	*ret_begin = v[0];
	*ret_end = v[1];
	return 1;
}
/* SPDX-License-Identifier: Apache-2.0 */
