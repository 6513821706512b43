/* Sets of characters of a regular expression: runs of ranges. */
#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>

void dt_regex_add(struct dt_regex *x, uint32_t first, uint32_t last)
{
	if (dt_regex_room(x, (void **)&x->range, x->nrange, &x->range_cap, sizeof(*x->range)))
		x->range[x->nrange++] = (struct dt_regex_range){first, last};
}

void dt_regex_tidy(struct dt_regex *x, int from, bool negated)
{
	int n = from, m;
	uint32_t at = 0;

	if (x->no_memory || x->too_large)
		return;
	if (x->nrange > from)
		qsort(x->range + from, (size_t)(x->nrange - from), sizeof(*x->range), dt_regex_by_first);
	for (int i = from; i < x->nrange; i++) {
		struct dt_regex_range r = x->range[i];

		if (n > from && r.first <= x->range[n - 1].last + 1)
			x->range[n - 1].last = r.last > x->range[n - 1].last ? r.last : x->range[n - 1].last;
		else
			x->range[n++] = r;
	}
	m = n;
	x->nrange = n;
	if (!negated)
		return;
	for (int i = from; i < m; i++) {
		struct dt_regex_range r = x->range[i];

		if (r.first > at)
			dt_regex_add(x, at, r.first - 1);
		at = r.last + 1;
	}
	if (at <= DT_AUTO_LAST)
		dt_regex_add(x, at, DT_AUTO_LAST);
	if (x->no_memory || x->too_large)
		return;
	memmove(x->range + from, x->range + m, (size_t)(x->nrange - m) * sizeof(*x->range));
	x->nrange -= m - from;
}

bool dt_regex_add_named(struct dt_regex *x, char c)
{
	static const struct dt_regex_range digit[] = {{'0', '9'}},
					   word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
					   space[] = {{9, 13},		{' ', ' '},	  {0xa0, 0xa0},
						      {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
						      {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000},
						      {0xfeff, 0xfeff}};
	char low = (char)(c | 32);
	const struct dt_regex_range *r = low == 'd' ? digit : low == 'w' ? word : space;
	int n = low == 'd' ? 1 : low == 'w' ? 4 : 10;
	uint32_t at = 0;

	if (low != 'd' && low != 'w' && low != 's')
		return false;
	for (int i = 0; i < n; i++) {
		if (c == low)
			dt_regex_add(x, r[i].first, r[i].last);
		else if (r[i].first > at)
			dt_regex_add(x, at, r[i].first - 1);
		at = r[i].last + 1;
	}
	if (c != low)
		dt_regex_add(x, at, DT_AUTO_LAST);
	return true;
}

bool dt_regex_in_set(const struct dt_regex *x, int t, uint32_t c)
{
	const struct dt_regex_range *r = x->range + x->tree[t].a;
	int lo = 0, hi = x->tree[t].b;

	while (lo < hi) {
		int mid = (lo + hi) / 2;

		if (r[mid].last < c)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < x->tree[t].b && r[lo].first <= c;
}
/* SPDX-License-Identifier: Apache-2.0 */
