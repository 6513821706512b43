/* Automata of decimal numbers within bounds, and of multiples of a number. */
#include "grammar/automaton.h"

#include <errno.h>
#include <string.h>

#define MAX_STEP 65536 /* max states: remainders times decimals */
#define MAX_INT	 20    /* max digits before the point */

enum { LESS, EQUAL, MORE };
enum { C_MINUS = 1, C_DOT, C_SLASH, C_ZERO, C_AFTER = C_ZERO + 10, CLASSES };

static const uint32_t class_first[CLASSES] = {0,   '-', '.', '/', '0', '1', '2', '3',
					      '4', '5', '6', '7', '8', '9', ':'};

static __int128 power(int n)
{
	__int128 x = 1;

	while (n-- > 0)
		x *= 10;
	return x;
}

struct magnitude { /* the digits of a bound */
	int nint;
	uint8_t whole[MAX_INT], part[DT_DECIMALS];
};

static struct magnitude digits_of(__int128 x)
{
	__int128 whole = x / power(DT_DECIMALS), part = x % power(DT_DECIMALS), p;
	struct magnitude m = {.nint = 1};

	for (p = 10; p <= whole; p *= 10)
		m.nint++;
	for (int i = m.nint; i-- > 0; whole /= 10)
		m.whole[i] = (uint8_t)(whole % 10);
	for (int i = DT_DECIMALS; i-- > 0; part /= 10)
		m.part[i] = (uint8_t)(part % 10);
	return m;
}

/* How the digits so far compare to a bound's, after one more digit. */
static int step_cmp(int cmp, int digit, int of_bound)
{
	return cmp != EQUAL ? cmp : digit < of_bound ? LESS : digit > of_bound ? MORE : EQUAL;
}

/* The same when no digit follows before the point: a number with more digits is larger. */
static int end_cmp(int cmp, int n, const struct magnitude *m)
{
	return n < m->nint ? LESS : n > m->nint ? MORE : cmp;
}

static bool rest_is_zero(const struct magnitude *m, int k)
{
	while (k < DT_DECIMALS)
		if (m->part[k++])
			return false;
	return true;
}

/*
 * States of one sign, from `base`: a zero before the point; n digits before it, with comparisons lo and hi to
 * the bounds; and k digits behind it.
 */
enum { SIDES = 9, PER_SIGN = 1 + (MAX_INT + DT_DECIMALS + 2) * SIDES };

static int int_state(int base, int n, int lo, int hi)
{
	return base + 1 + n * SIDES + lo * 3 + hi;
}

static int part_state(int base, int k, int lo, int hi)
{
	return int_state(base, MAX_INT + 1 + k, lo, hi);
}

static void set(struct dt_auto *a, int from, int class, int to)
{
	a->next[from * CLASSES + class] = to;
}

static bool within(int lo, int hi, const struct magnitude *l, const struct magnitude *h, int k)
{
	return (lo == MORE || (lo == EQUAL && rest_is_zero(l, k))) && hi != MORE;
}

/* Adds the numbers of one sign with magnitude lo to hi, after state `from`. */
static void add_sign(struct dt_auto *a, int from, int base, __int128 lo, __int128 hi, int decimals)
{
	struct magnitude l = digits_of(lo), h = digits_of(hi);
	int last = h.nint;

	for (int d = 0; d < 10; d++)
		set(a, from, C_ZERO + d,
		    d ? int_state(base, 1, step_cmp(EQUAL, d, l.whole[0]), step_cmp(EQUAL, d, h.whole[0]))
		      : base);
	for (int n = 0; n <= last; n++)
		for (int side = 0; side < SIDES; side++) {
			int x = side / 3, y = side % 3, s = n ? int_state(base, n, x, y) : base;
			int le, he;

			if (n == 0) { /* the digit zero */
				x = step_cmp(EQUAL, 0, l.whole[0]);
				y = step_cmp(EQUAL, 0, h.whole[0]);
			}
			le = end_cmp(x, n ? n : 1, &l);
			he = end_cmp(y, n ? n : 1, &h);
			a->accept[s] = within(le, he, &l, &h, 0);
			if (decimals)
				set(a, s, C_DOT, part_state(base, 0, le, he));
			for (int d = 0; n > 0 && n < last && d < 10; d++)
				set(a, s, C_ZERO + d,
				    int_state(base, n + 1, n < l.nint ? step_cmp(x, d, l.whole[n]) : MORE,
					      step_cmp(y, d, h.whole[n])));
		}
	for (int k = 0; k <= decimals; k++)
		for (int side = 0; side < SIDES; side++) {
			int x = side / 3, y = side % 3, s = part_state(base, k, x, y);

			a->accept[s] = k > 0 && within(x, y, &l, &h, k);
			for (int d = 0; k < decimals && d < 10; d++)
				set(a, s, C_ZERO + d,
				    part_state(base, k + 1, step_cmp(x, d, l.part[k]),
					       step_cmp(y, d, h.part[k])));
		}
}

static int between(const struct dt_numbers *n, struct dt_auto_budget *work, struct dt_auto **ret)
{
	const __int128 far = power(16 + DT_DECIMALS);
	struct dt_auto *a = dt_auto_new(2 + 2 * PER_SIGN, CLASSES);
	__int128 lo = n->lo, hi = n->hi;

	if (!a)
		return -ENOMEM;
	memcpy(a->first, class_first, sizeof(class_first));
	if (!n->has_hi)
		hi = lo * 10 >= far && n->has_lo ? lo * 10 : far - 1;
	if (!n->has_lo)
		lo = hi * 10 <= -far ? hi * 10 : 1 - far;
	if (hi >= 0 && lo <= hi)
		add_sign(a, 0, 2, lo > 0 ? lo : 0, hi, n->integer ? 0 : DT_DECIMALS);
	if (lo < 0 && lo <= hi) {
		set(a, 0, C_MINUS, 1); /* -0 is not allowed */
		add_sign(a, 1, 2 + PER_SIGN, hi < 0 ? -hi : 1, -lo, n->integer ? 0 : DT_DECIMALS);
	}
	*ret = a;
	return dt_auto_minimise(a, work);
}

/* Automaton of multiples of the step, with at most as many decimals as the step has. */
static int multiples(const struct dt_numbers *n, struct dt_auto_budget *work, struct dt_auto **ret)
{
	__int128 step = n->step;
	int decimals = DT_DECIMALS, m, places;
	struct dt_auto *a;

	while (decimals > 0 && step % 10 == 0) {
		step /= 10;
		decimals--;
	}
	places = n->integer ? -1 : decimals;
	if (step * (decimals + 2) > MAX_STEP)
		return -E2BIG;
	m = (int)step;
	a = dt_auto_new(2 + m * (places + 2), CLASSES);
	if (!a)
		return -ENOMEM;
	memcpy(a->first, class_first, sizeof(class_first));
	set(a, 0, C_MINUS, 1);
	for (int d = 0; d < 10; d++) {
		set(a, 0, C_ZERO + d, 2 + d % m);
		set(a, 1, C_ZERO + d, 2 + d % m);
	}
	for (int k = -1; k <= places; k++) /* digits behind the point; -1: before it */
		for (int r = 0; r < m; r++) {
			int s = 2 + (k + 1) * m + r;

			a->accept[s] = k != 0 && r * power(decimals - (k < 0 ? 0 : k)) % m == 0;
			for (int d = 0; k < places + (k < 0) && d < 10; d++)
				set(a, s, C_ZERO + d, 2 + (k + 1 + (k >= 0)) * m + (r * 10 + d) % m);
			if (k < 0 && places > 0)
				set(a, s, C_DOT, 2 + m + r);
		}
	*ret = a;
	return dt_auto_minimise(a, work);
}

int dt_auto_numbers(const struct dt_numbers *n, struct dt_auto_budget *work, struct dt_auto **ret)
{
	struct dt_auto *a = NULL, *b = NULL;
	int rc = between(n, work, &a);

	if (rc < 0 || n->step == 0) {
		if (rc < 0)
			dt_auto_free(a);
		else
			*ret = a;
		return rc;
	}
	rc = multiples(n, work, &b);
	if (rc >= 0)
		rc = dt_auto_product(a, b, false, work, ret);
	dt_auto_free(a);
	dt_auto_free(b);
	return rc;
}
/* SPDX-License-Identifier: Apache-2.0 */
