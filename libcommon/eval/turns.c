/* The order of a task's questions. */
#include "eval/asker.h"

#include <stdlib.h>

/* A question: its number, the item it belongs to, and its place among that item's questions. */
struct turn {
	int64_t at, item, place;
};

/*
 * By windows of DT_TURNS_AHEAD items, in each the first questions of all items, then the second ones, and so
 * on.
 */
static int by_turn(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;
	const int64_t window = x->item / DT_TURNS_AHEAD - y->item / DT_TURNS_AHEAD,
		      place = x->place - y->place;
	const int64_t d = window ? window : place ? place : x->item - y->item;

	return d < 0 ? -1 : d > 0;
}

int64_t *dt_question_turns(const struct dt_question *q, int64_t n)
{
	struct turn *t = malloc((size_t)n * sizeof(*t) + 1);
	int64_t *ret = malloc((size_t)n * sizeof(*ret) + 1);

	for (int64_t i = 0; t && i < n; i++) {
		const bool same = i > 0 && q[i].context == q[i - 1].context;

		t[i] = (struct turn){i, i == 0 ? 0 : t[i - 1].item + !same, same ? t[i - 1].place + 1 : 0};
	}
	if (t)
		qsort(t, (size_t)n, sizeof(*t), by_turn);
	for (int64_t i = 0; t && ret && i < n; i++)
		ret[i] = t[i].at;
	if (!t) {
		free(ret);
		ret = NULL;
	}
	free(t);
	return ret;
}
/* SPDX-License-Identifier: Apache-2.0 */
