/*
 * Grammars in llama.cpp's notation (GBNF): what is shared by the reader (gbnf_read.c) and the making of rules
 * (gbnf_rules.c).
 */
#include "grammar/gbnf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PARTS (1 << 18) /* items, sets, ranges, alternatives, rules: of each */
#define MAX_MANY  256	    /* operators on one symbol, which are read by recursion */

bool dt_gbnf_fail(struct dt_gbnf *x, const char *at, int code, const char *fmt, ...)
{
	char msg[240];
	int line = 1, column = 1;
	va_list ap;

	if (x->rc < 0)
		return false;
	for (const char *p = x->text; p < at; p++)
		if (*p == '\n')
			line++, column = 1;
		else
			column += ((unsigned char)*p & 0xc0) != 0x80;
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	x->rc = dt_err_set(x->err, code, "the grammar, line %d, column %d: %s", line, column, msg);
	return false;
}

bool dt_gbnf_too_large(struct dt_gbnf *x)
{
	if (x->rc == 0)
		x->rc = dt_err_set(x->err, -E2BIG, "the grammar is too large");
	return false;
}

bool dt_gbnf_work(struct dt_gbnf *x, int64_t n)
{
	x->work -= n;
	return x->work < 0 ? dt_gbnf_too_large(x) : x->rc == 0;
}

bool dt_gbnf_room(struct dt_gbnf *x, void **list, int n, int *cap, size_t size)
{
	const int more = *cap ? 2 * *cap : 16;
	void *p;

	if (n < *cap)
		return true;
	if (more > MAX_PARTS)
		return dt_gbnf_too_large(x);
	p = realloc(*list, (size_t)more * size);
	if (!p) {
		x->rc = dt_err_sys(x->err, -ENOMEM, "cannot read the grammar");
		return false;
	}
	*list = p;
	*cap = more;
	return true;
}

static uint32_t name_hash(const char *s, size_t n)
{
	uint64_t h = 14695981039346656037u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ (unsigned char)s[i]) * 1099511628211u;
	return (uint32_t)(h >> 32);
}

static void table_add(struct dt_gbnf *x, int i)
{
	const struct dt_gbnf_rule *r = &x->rule[i];
	uint32_t mask = 2 * (uint32_t)x->rule_cap - 1, at = name_hash(r->name, r->n) & mask;

	while (x->table[at] >= 0)
		at = (at + 1) & mask;
	x->table[at] = i;
}

int dt_gbnf_new_rule(struct dt_gbnf *x, const char *name, size_t n)
{
	const int cap = x->rule_cap;

	if (!dt_gbnf_room(x, (void **)&x->rule, x->nrule, &x->rule_cap, sizeof(*x->rule)))
		return -1;
	if (x->rule_cap > cap) {
		free(x->table);
		x->table = malloc(2 * (size_t)x->rule_cap * sizeof(*x->table));
		if (!x->table) {
			x->rc = dt_err_sys(x->err, -ENOMEM, "cannot read the grammar");
			return -1;
		}
		memset(x->table, -1, 2 * (size_t)x->rule_cap * sizeof(*x->table));
		for (int i = 0; i < x->nrule; i++)
			if (x->rule[i].name)
				table_add(x, i);
	}
	x->rule[x->nrule] = (struct dt_gbnf_rule){.name = name, .n = n, .seen = name, .alt = -1, .last = -1};
	if (name)
		table_add(x, x->nrule);
	return x->nrule++;
}

int dt_gbnf_rule_of(struct dt_gbnf *x, const char *name, size_t n)
{
	uint32_t mask = 2 * (uint32_t)x->rule_cap - 1;

	for (uint32_t at = name_hash(name, n) & mask; x->rule_cap && x->table[at] >= 0;
	     at = (at + 1) & mask) {
		const struct dt_gbnf_rule *r = &x->rule[x->table[at]];

		if (r->n == n && !memcmp(r->name, name, n))
			return x->table[at];
	}
	return dt_gbnf_new_rule(x, name, n);
}

bool dt_gbnf_add_alt(struct dt_gbnf *x, int rule, const struct dt_gbnf_item *item, int n)
{
	struct dt_gbnf_rule *r = &x->rule[rule];

	if (!dt_gbnf_room(x, (void **)&x->alt, x->nalt, &x->alt_cap, sizeof(*x->alt)))
		return false;
	x->alt[x->nalt] = (struct dt_gbnf_alt){x->nitem, n, -1};
	for (int i = 0; i < n; i++) {
		if (!dt_gbnf_room(x, (void **)&x->item, x->nitem, &x->item_cap, sizeof(*x->item)))
			return false;
		x->item[x->nitem++] = item[i];
	}
	if (r->last >= 0)
		x->alt[r->last].next = x->nalt;
	else
		r->alt = x->nalt;
	r->last = x->nalt++;
	return true;
}

int dt_gbnf_add_many(struct dt_gbnf *x, const char *at, struct dt_gbnf_item of, int min, int max)
{
	const int depth = of.kind == DT_GBNF_MANY ? x->many[of.at].depth + 1 : 1;

	if (depth > MAX_MANY) {
		dt_gbnf_fail(x, at, -E2BIG, "more than %d operators follow one symbol", MAX_MANY);
		return -1;
	}
	if (!dt_gbnf_room(x, (void **)&x->many, x->nmany, &x->many_cap, sizeof(*x->many)))
		return -1;
	x->many[x->nmany] = (struct dt_gbnf_many){of, min, max, depth};
	return x->nmany++;
}

bool dt_gbnf_check_names(struct dt_gbnf *x)
{
	static const char root[] = "root";
	int rule;

	for (int i = 0; i < x->nrule; i++) {
		const struct dt_gbnf_rule *r = &x->rule[i];

		if (r->name && !r->defined)
			return dt_gbnf_fail(x, r->seen, -EINVAL, "the rule '%.*s' is not defined",
					    (int)(r->n < 60 ? r->n : 60), r->name);
	}
	rule = dt_gbnf_rule_of(x, root, sizeof(root) - 1);
	if (rule >= 0 && !x->rule[rule].defined)
		x->rc = dt_err_set(x->err, -EINVAL, "the grammar has no rule 'root'");
	return x->rc == 0;
}

void dt_gbnf_release(struct dt_gbnf *x)
{
	free(x->item);
	free(x->set);
	free(x->many);
	free(x->alt);
	free(x->rule);
	free(x->range);
	free(x->table);
}

/* SPDX-License-Identifier: Apache-2.0 */
