#include "rl/countdown.h"

#include "base/order.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG  (INT64_C(1) << 31) /* limit of numerators and denominators: products of two fit */
#define DEEP 32			/* depth of nested brackets */

struct fraction {
	int64_t num, den; /* den > 0 */
};

struct reader {
	const char *at;
	int64_t used[DT_COUNTDOWN_MAX];
	int nused, depth;
};

static int64_t gcd(int64_t a, int64_t b)
{
	while (b) {
		int64_t c = a % b;

		a = b;
		b = c;
	}
	return a < 0 ? -a : a;
}

/* a op b; false on division by zero or overflow. */
static bool combine(struct fraction *a, char op, struct fraction b)
{
	struct fraction r;
	int64_t g;

	switch (op) {
	case '+':
	case '-':
		r.num = a->num * b.den + (op == '+' ? b.num : -b.num) * a->den;
		r.den = a->den * b.den;
		break;
	case '*':
		r = (struct fraction){a->num * b.num, a->den * b.den};
		break;
	default:
		if (b.num == 0)
			return false;
		r = (struct fraction){a->num * b.den, a->den * b.num};
	}
	g = gcd(r.num, r.den);
	g = r.den < 0 ? -g : g;
	r.num /= g;
	r.den /= g;
	*a = r;
	return llabs(r.num) < BIG && r.den < BIG;
}

static void skip_blanks(struct reader *r)
{
	while (*r->at == ' ')
		r->at++;
}

static bool read_sum(struct reader *r, struct fraction *ret);

static bool read_factor(struct reader *r, struct fraction *ret)
{
	bool ok;

	skip_blanks(r);
	if (*r->at == '(') {
		if (r->depth++ == DEEP)
			return false;
		r->at++;
		ok = read_sum(r, ret);
		skip_blanks(r);
		r->depth--;
		if (!ok || *r->at != ')')
			return false;
		r->at++;
		return true;
	}
	*ret = (struct fraction){0, 1};
	if (!isdigit((unsigned char)*r->at) || r->nused == DT_COUNTDOWN_MAX)
		return false;
	while (isdigit((unsigned char)*r->at) && ret->num < BIG)
		ret->num = 10 * ret->num + *r->at++ - '0';
	r->used[r->nused++] = ret->num;
	return ret->num < BIG;
}

static bool read_product(struct reader *r, struct fraction *ret)
{
	bool ok = read_factor(r, ret);

	for (skip_blanks(r); ok && (*r->at == '*' || *r->at == '/'); skip_blanks(r)) {
		char op = *r->at++;
		struct fraction b;

		ok = read_factor(r, &b) && combine(ret, op, b);
	}
	return ok;
}

static bool read_sum(struct reader *r, struct fraction *ret)
{
	bool ok = read_product(r, ret);

	for (skip_blanks(r); ok && (*r->at == '+' || *r->at == '-'); skip_blanks(r)) {
		char op = *r->at++;
		struct fraction b;

		ok = read_product(r, &b) && combine(ret, op, b);
	}
	return ok;
}

/* Parses "3 7 25=46:". */
static bool read_prompt(const char *p, int n, int64_t *number, int64_t *target)
{
	for (int i = 0; i <= n; i++) {
		char *end;
		long x = isdigit((unsigned char)*p) ? strtol(p, &end, 10) : -1;

		if (x < 0 || x >= BIG || *end != (i < n - 1 ? ' ' : i < n ? '=' : ':'))
			return false;
		*(i < n ? &number[i] : target) = x;
		p = end + 1;
	}
	return !*p;
}

int dt_countdown_score(const char *prompt, int n, const char *answer, double *ret)
{
	struct reader r = {.at = answer};
	int64_t number[DT_COUNTDOWN_MAX], target;
	struct fraction f;

	if (!read_prompt(prompt, n, number, &target))
		return -EINVAL;
	*ret = 0;
	if (!read_sum(&r, &f))
		return 0;
	while (isspace((unsigned char)*r.at))
		r.at++;
	if (*r.at)
		return 0;
	*ret = 0.1;
	qsort(number, (size_t)n, sizeof(number[0]), dt_order_i64);
	qsort(r.used, (size_t)r.nused, sizeof(r.used[0]), dt_order_i64);
	if (r.nused == n && !memcmp(number, r.used, (size_t)n * sizeof(number[0])) && f.den == 1 &&
	    f.num == target)
		*ret = 1;
	return 0;
}

/*
 * Numbers from 1 to 20, combined from the left with random operations. An operation that would leave 1 .. 999
 * is replaced by another one; subtraction or addition always fits.
 */
void dt_countdown_make(const struct dt_rng *r, int n, char *prompt, char *solution)
{
	int64_t x[DT_COUNTDOWN_MAX] = {0}, value;
	int at = 0, len;

	for (int i = 0; i < n; i++)
		x[i] = 1 + (int64_t)dt_rng_below(r, (uint64_t)i, 20);
	value = x[0];
	len = sprintf(solution, "%lld", (long long)value);
	for (int i = 1; i < n; i++) {
		uint64_t op = dt_rng_below(r, (uint64_t)(n + i), 3);
		char sign = '+';

		if (op == 1 && value > x[i])
			sign = '-';
		else if (op == 2 && value * x[i] < 800)
			sign = '*';
		value = sign == '+' ? value + x[i] : sign == '-' ? value - x[i] : value * x[i];
		if (sign == '*' && i > 1) { /* brackets make the left part a factor */
			memmove(solution + 1, solution, (size_t)len);
			solution[0] = '(';
			solution[++len] = ')';
			len++;
		}
		len += sprintf(solution + len, "%c%lld", sign, (long long)x[i]);
	}
	for (int i = 0; i < n; i++)
		at += sprintf(prompt + at, "%lld%c", (long long)x[i], i < n - 1 ? ' ' : '=');
	sprintf(prompt + at, "%lld:", (long long)value);
}
/* SPDX-License-Identifier: Apache-2.0 */
